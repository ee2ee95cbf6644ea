//! Simulated hosts: namespaces with their own network, mounts, processes, cgroups and host name, in which a program runs
//! as on another machine. They are joined by a bridge of the real machine, which is their router.
//!
//! A host has two processes of its own. The [outer one](init::run_host) creates the namespaces and waits; the
//! [init process](init::run_init) is the first process in them, prepares the mounts, starts the program, and reaps what it
//! leaves. Both end when the pipe from the process that started the host is closed, and the kernel ends everything else
//! with the init process, as if the machine had been switched off.

#![warn(unreachable_pub)]

mod host;
pub mod init;
mod link;

pub use host::{Host, Program, Spec, remove_all};
pub use link::{HostLink, Router};

use network::netlink::Error as NetlinkError;

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device, an address or a route cannot be created.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A cgroup cannot be created.
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    /// A file, a mount or a process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The host ended before it was ready.
    #[error("host {name} ended before it was ready: see {log}")]
    Ended {
        /// Its name.
        name: String,
        /// The file with its output.
        log: String,
    },
}

pub(crate) fn io<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    let what = what.into();
    |error| Error::Io { what, source: error.into() }
}
