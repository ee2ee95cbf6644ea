//! `tiphys bench api`, `gate`, `controllers`, `scheduler`, `runtime` and `pods`: how fast it is, each figure against a limit, most of them
//! measured in the same run. The server runs as a child of its own; so does the bare hyper server that sets most limits.
//! This process is the client. It must not know the server's inside: it measures what a client sees and
//! what the kernel says of the process.

#![warn(unreachable_pub)]

mod bare;
mod child;
mod cli;
mod client;
mod cores;
mod figure;
mod figures;
mod inside;
mod load;
mod objects;
mod process;
mod watchers;

pub use cli::main;

/// Whatever went wrong: a measurement that fails ends the run.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;
