//! Why a cluster does not start. Each text names what to do; the cause is the `source`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of an operation of the command line.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Flags that are not supported, one text each.
    #[error("{}", .0.join("\n"))]
    Flags(Vec<String>),
    /// The hint names the flag for another port.
    #[error("the port of {0} is in use: stop what listens there, or {1}")]
    PortInUse(SocketAddr, &'static str),
    #[error(
        "{} is in use by another tiphys process (pid {pid}): stop that one with `tiphys down`, or choose another --data-dir \
         or --name",
        path.display()
    )]
    DataDirInUse { path: PathBuf, pid: String },
    #[error(
        "the range {range} of this cluster is in use by the cluster of {data_dir} (pid {pid}) on this machine: stop that \
         one, or start this one with --disable-agent"
    )]
    RangeInUse { range: String, pid: String, data_dir: String },
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} contains no usable certificate or key", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("failed to create certificates")]
    Certificate(#[from] rcgen::Error),
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("failed to open store")]
    Store(#[from] store::Error),
    /// What is wrong with this machine or its data directory, and what to do.
    #[error("{0}")]
    Machine(String),
    #[error("this machine cannot be a node: {0}")]
    Node(String),
    #[error("failed to create the bootstrap objects: {0}")]
    Bootstrap(String),
    #[error("stopped: {0}")]
    Ended(String),
    /// The API server rejects the credentials of a kubelet that has no certificate yet.
    #[error("--bootstrap-kubeconfig: {0}")]
    BootstrapRejected(String),
    /// The response of a server, in its own words.
    #[error("{0}")]
    Response(String),
    #[error("failed to start the async runtime")]
    Runtime(#[source] io::Error),
}

impl Error {
    /// Adds the path to a system error.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }

    /// Suggests a cluster without pods, for a machine that cannot run them.
    pub(crate) fn suggest_disable_agent(self) -> Error {
        match self {
            Error::Node(why) => Error::Node(format!(
                "{why}; with --disable-agent the cluster starts without running pods on this machine"
            )),
            other => other,
        }
    }

    /// The text with all its causes, for people.
    pub fn describe(&self) -> String {
        stdx::error::chain(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_disable_agent_if_pods_cannot_run() {
        let check = |error: Error, want: usize| {
            let text = error.suggest_disable_agent().describe();
            assert_eq!(text.matches("--disable-agent").count(), want, "{text}");
        };
        check(Error::Node("its kernel is too old".to_string()), 1);
        check(Error::Response("x".to_string()), 0);
    }
}
