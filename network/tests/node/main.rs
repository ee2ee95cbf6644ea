//! Pod networks on this machine, in namespaces that the tests create. They need root, and the Debian packages nftables
//! and containernetworking-plugins.

mod builtin;
mod external;
mod faults;
mod kernel;
mod sample;
mod spoofing;
mod support;
