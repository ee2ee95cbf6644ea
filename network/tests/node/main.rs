//! Networks of pods on this machine, in namespaces that the tests make. They need root, and Debian's nftables and
//! containernetworking-plugins.

mod builtin;
mod external;
mod faults;
mod kernel;
mod sample;
mod support;
