//! A host while it runs.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cgroup::Hierarchies;
use network::ns::Netns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use crate::init::{GO, HOST_COMMAND, READY, THIS_BINARY};
use crate::{Error, HostLink, Router, io};

/// How long cgroups may take to become empty after everything in them was killed.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the program may take to stop, and everything else after it.
const STOP_TIMEOUT: Duration = Duration::from_secs(65);

/// What a host is started with.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its host name.
    pub name: String,
    /// Its directory on the machine, which it keeps when it stops.
    pub dir: PathBuf,
    /// Its cgroup on the machine.
    pub cgroup: String,
    /// How it is attached to the others.
    pub link: HostLink,
    /// What runs in it.
    pub program: Program,
}

/// The program of a host: the host ends with it.
#[derive(Clone, Debug)]
pub enum Program {
    /// This binary, with these arguments.
    Own(Vec<String>),
    /// The executable of an absolute path, with these arguments.
    Other(PathBuf, Vec<String>),
}

impl Program {
    /// The arguments of the processes that start it.
    fn words(&self) -> Vec<OsString> {
        let (first, arguments) = match self {
            Program::Own(arguments) => (THIS_BINARY.into(), arguments),
            Program::Other(path, arguments) => (path.as_os_str().to_owned(), arguments),
        };
        std::iter::once(first).chain(arguments.iter().map(OsString::from)).collect()
    }
}

/// A running host. It ends with the process that started it.
pub struct Host {
    name: String,
    cgroup: String,
    child: Child,
    /// Closed to stop the host.
    pipe: Option<ChildStdin>,
}

impl Spec {
    /// The file with the output of the host's program.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl Host {
    /// Starts a host and its program.
    pub async fn start(spec: &Spec, router: &Router) -> Result<Host, Error> {
        std::fs::create_dir_all(&spec.dir).map_err(io(spec.dir.display().to_string()))?;
        let log = spec.log();
        let output = File::options().create(true).append(true).open(&log).map_err(io(log.display().to_string()))?;
        let mut child = Command::new("/proc/self/exe")
            .arg(HOST_COMMAND)
            .arg(&spec.dir)
            .args([&spec.name, &spec.cgroup])
            .args(spec.program.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(io(format!("failed to start host {}", spec.name)))?;
        let mut pipe = child.stdin.take();
        let ended = || Error::Ended { name: spec.name.clone(), log: log.display().to_string() };
        let mut byte = [0];
        let read = match child.stdout.as_mut() {
            Some(out) => out.read_exact(&mut byte).await.map(drop),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        if read.is_err() || byte != [READY] {
            return Err(ended());
        }
        let pid = child.id().ok_or_else(ended)?;
        let netns = Netns::open(Path::new(&format!("/proc/{pid}/ns/net"))).map_err(io("failed to open its network"))?;
        let (router, link) = (router.clone(), spec.link.clone());
        let attached = tokio::task::spawn_blocking(move || router.attach(&netns, &link)).await;
        attached.map_err(|error| Error::Io { what: spec.name.clone(), source: error.into() })??;
        if let Some(pipe) = &mut pipe {
            pipe.write_all(&[GO]).await.map_err(|_| ended())?;
        }
        Ok(Host { name: spec.name.clone(), cgroup: spec.cgroup.clone(), child, pipe })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it runs: it may have ended by itself.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) {
        let _ = self.child.wait().await;
    }

    /// Stops the program, then switches the host off. Nothing of it is left on the machine but its directory.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.pipe = None;
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            tracing::warn!(host = self.name, "the host does not stop; killing its processes");
        }
        self.switch_off().await
    }

    /// Ends all of its processes at once, as a power failure does.
    pub async fn switch_off(mut self) -> Result<(), Error> {
        let cgroup = self.cgroup.clone();
        let removed = tokio::task::spawn_blocking(move || remove_all(&cgroup));
        let removed = removed.await.map_err(|error| Error::Io { what: self.name.clone(), source: error.into() })?;
        let _ = self.child.wait().await;
        removed
    }
}

/// Ends everything in a cgroup, and removes it.
pub fn remove_all(cgroup: &str) -> Result<(), Error> {
    let hierarchies = Hierarchies::detect()?;
    hierarchies.kill(cgroup);
    Ok(hierarchies.remove_when_empty(cgroup, REMOVE_TIMEOUT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_their_first_word() {
        let words = |program: Program| program.words();
        assert_eq!(words(Program::Own(vec!["agent".to_string()])), ["-", "agent"]);
        assert_eq!(
            words(Program::Other("/usr/bin/etcd".into(), vec!["--name".to_string()])),
            ["/usr/bin/etcd", "--name"]
        );
    }
}
