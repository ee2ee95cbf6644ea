//! The client as a process, against servers of these tests: what it does with bad input, broken servers and proxies, and
//! on a terminal. What it does with a real server is compared with upstream's client in the tests of `tiphys`.

mod bad_input;
mod credentials;
mod hints;
mod interrupts;
mod preferences;
mod proxies;
mod run;
mod support;
