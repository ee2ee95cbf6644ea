//! The protocol between the runtime and a shim. Large data is on disk, so that messages stay small.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::container::user::User;
use crate::spec::{PidMode, ProcessSpec, SandboxSpec};

/// A request to the shim.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub id: u64,
    pub call: Call,
}

/// The operation of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// The first request: sets up the pod's namespaces.
    Sandbox(Box<SandboxSpec>),
    Start(Start),
    /// The standard streams are passed as file descriptors, unless there is a terminal.
    Exec(Exec),
    Signal {
        target: Target,
        signal: i32,
    },
    /// Kills every process of a container.
    KillAll {
        container: String,
    },
    /// The file descriptors of `streams` are passed in this order.
    Attach {
        container: String,
        streams: Vec<AttachedStream>,
    },
    Resize {
        container: String,
        width: u16,
        height: u16,
    },
    ReopenLog {
        container: String,
    },
    /// Returns a socket in the pod's network namespace.
    Socket {
        ipv6: bool,
    },
    Status,
    /// From now on, exits are sent on this connection.
    Watch,
    /// Removes an exited container.
    Forget {
        container: String,
    },
    /// Kills everything, then exits.
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub container: String,
    pub pid: PidMode,
    pub terminal: bool,
    pub stdin: bool,
    pub stdin_once: bool,
    pub log_path: Option<PathBuf>,
    pub cgroup: String,
    pub handler: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Exec {
    pub container: String,
    pub exec: String,
    pub args: Vec<String>,
    pub terminal: bool,
}

impl Exec {
    /// The container's own process, with other arguments.
    pub(crate) fn process(&self, container: &ProcessSpec) -> ProcessSpec {
        let mut process = ProcessSpec { args: self.args.clone(), terminal: self.terminal, ..container.clone() };
        if self.terminal && !process.env.iter().any(|e| e.starts_with("TERM=")) {
            process.env.push("TERM=xterm".into());
        }
        process
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Target {
    Container(String),
    Exec(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AttachedStream {
    Stdin,
    Stdout,
    Stderr,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Reply { id: u64, reply: Reply },
    Event(Event),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Sandbox {
        pid: i32,
        warnings: Vec<String>,
    },
    /// The process runs. The terminal of an exec is passed as a file descriptor.
    Started {
        pid: i32,
        started_at: i64,
        user: User,
        warnings: Vec<String>,
    },
    Status {
        pause: i32,
        containers: Vec<ContainerState>,
    },
    Failed(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::enum_variant_names, reason = "running shims of earlier versions send these names")]
pub(crate) enum Event {
    ContainerExit { container: String, exit: Exit },
    ExecExit { exec: String, code: i32 },
    SandboxExit,
}

/// The exit of a container, also written to [`EXIT_FILE`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub code: i32,
    pub oom: bool,
    pub started_at: i64,
    pub finished_at: i64,
}

pub(crate) const EXIT_FILE: &str = "exit.json";
pub(crate) const SPEC_FILE: &str = "spec.json";
pub(crate) const SOCKET_FILE: &str = "shim.sock";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerState {
    pub container: String,
    pub pid: i32,
    pub started_at: i64,
    pub user: User,
    pub exit: Option<Exit>,
}
