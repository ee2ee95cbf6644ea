//! `tiphys bench api`, `gate`, `extensions`, `controllers`, `scheduler`, `runtime`, `pods`, `dns`, `network`, `nodes`,
//! `kubectl`: each figure is compared with a limit, most of them measured in the same run. The server runs as a child
//! process, and so does the bare hyper server that sets most limits. This process is the client. It is independent of the
//! server's internals: it measures what a client and the kernel observe.

#![warn(unreachable_pub)]

mod bare;
mod child;
mod cli;
mod client;
mod cores;
mod etcd;
mod figure;
mod figures;
mod inside;
mod large_cluster;
mod load;
mod objects;
mod process;
mod traffic;
mod watchers;

pub use cli::main;

/// Whatever went wrong: a measurement that fails ends the run.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;
