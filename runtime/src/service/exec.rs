//! Processes executed in a running container.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cri::{ExecSyncResponse, Status};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

use super::client::ShimClient;
use super::state::Container;
use super::{Service, convert, new_id, status};
use crate::error::{Context, Result, refused};
use crate::shim::protocol::{Call, Exec, Target};

/// More than this of either stream is not kept.
const MOST_OUTPUT: usize = 16 << 20;
/// What a killed process wrote is waited for no longer than this: others may hold its streams.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A process that runs: how it ends, and a hand on it.
pub struct Running {
    shim: Arc<ShimClient>,
    exec: String,
    pub exit: oneshot::Receiver<i32>,
    /// With a terminal, the side that is not the process's.
    pub terminal: Option<OwnedFd>,
}

impl Running {
    pub async fn kill(&self) {
        let target = Target::Exec(self.exec.clone());
        let _ = self.shim.call(Call::Signal { target, signal: libc::SIGKILL }, &[]).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shim.forget_exec(&self.exec);
    }
}

/// What the process gets as its streams, unless it has a terminal.
pub struct ExecStreams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Service {
    pub(crate) fn container_by_id(&self, id: &str) -> Result<Arc<Container>> {
        self.0.containers.find(id).map_or_else(|| refused(format!("container {id:?} is gone")), Ok)
    }

    /// A connection to a port of a pod, from within its network.
    pub(crate) async fn connect_to_pod(&self, sandbox: &str, port: i32) -> Result<tokio::net::TcpStream> {
        let Ok(number) = u16::try_from(port) else { return refused(format!("{port} is no port")) };
        let shim = self.0.sandboxes.find(sandbox).and_then(|s| s.shim());
        let Some(shim) = shim else { return refused(format!("sandbox {sandbox:?} is not running")) };
        let mut failure = None;
        for ipv6 in [false, true] {
            let (_, files) = shim.call_with_files(Call::Socket { ipv6 }, &[]).await?;
            let Some(socket) = files.into_iter().next() else { return refused("the shim sent no socket") };
            match super::streaming::connect(socket, number, ipv6).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| io::ErrorKind::NotConnected.into()))
            .context(|| format!("connecting to port {port} of the pod"))
    }

    /// The shim of a container that runs; otherwise an error that says what it does instead.
    pub(crate) fn running_shim(&self, container: &Container) -> Result<Arc<ShimClient>> {
        if !container.is_running() {
            let state = convert::state_name(container.status().state);
            return refused(format!("container is in {state} state"));
        }
        match container.sandbox.shim() {
            Some(shim) => Ok(shim),
            None => refused("the pod's shim is gone"),
        }
    }

    pub(crate) async fn execute(
        &self,
        container: &Container,
        args: Vec<String>,
        streams: Option<ExecStreams>,
    ) -> Result<Running> {
        if args.is_empty() {
            return refused("cmd is empty");
        }
        let shim = self.running_shim(container)?;
        let exec = new_id()?;
        let exit = shim.exec_exit(&exec);
        let call = Exec { container: container.id.clone(), exec: exec.clone(), args, terminal: streams.is_none() };
        let files: Vec<_> =
            streams.iter().flat_map(|s| [s.stdin.as_fd(), s.stdout.as_fd(), s.stderr.as_fd()]).collect();
        let mut running = Running { shim: shim.clone(), exec, exit, terminal: None };
        let (_, files) = shim.call_with_files(Call::Exec(call), &files).await?;
        running.terminal = files.into_iter().next();
        Ok(running)
    }

    pub(super) async fn execute_sync(
        &self,
        container: &Container,
        args: Vec<String>,
        timeout: Duration,
    ) -> std::result::Result<ExecSyncResponse, Status> {
        let (streams, outputs) = pipes().map_err(status)?;
        let mut running = self.execute(container, args, Some(streams)).await.map_err(status)?;
        let [stdout, stderr] = outputs.map(|fd| tokio::spawn(collect(fd)));
        let exit = tokio::time::timeout(effective(timeout), &mut running.exit).await;
        let exit_code = match exit {
            Ok(Ok(code)) => code,
            Ok(Err(_)) => return Err(Status::unknown("the container's shim ended before the command")),
            Err(_) => {
                running.kill().await;
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut running.exit).await;
                let text =
                    format!("failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded");
                return Err(Status::deadline_exceeded(text));
            }
        };
        let (stdout, stderr) = (gather(stdout).await, gather(stderr).await);
        Ok(ExecSyncResponse { stdout, stderr, exit_code })
    }
}

/// Zero is no limit.
fn effective(timeout: Duration) -> Duration {
    if timeout.is_zero() { Duration::from_secs(u64::from(u32::MAX)) } else { timeout }
}

fn pipes() -> Result<(ExecStreams, [OwnedFd; 2])> {
    let pair = || pipe_with(PipeFlags::CLOEXEC).at("making a pipe");
    let ((stdin, _), (from_stdout, stdout), (from_stderr, stderr)) = (pair()?, pair()?, pair()?);
    Ok((ExecStreams { stdin, stdout, stderr }, [from_stdout, from_stderr]))
}

async fn collect(fd: OwnedFd) -> io::Result<Vec<u8>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    let mut output = Vec::new();
    let mut receiver = Receiver::from_owned_fd(fd)?;
    let mut rest = vec![0; 64 << 10];
    loop {
        match receiver.read(&mut rest).await? {
            0 => return Ok(output),
            length => {
                let room = MOST_OUTPUT - output.len();
                output.extend_from_slice(&rest[..length.min(room)]);
            }
        }
    }
}

/// A child that the command left behind may keep its streams open; what was written until now is the answer.
async fn gather(mut reading: tokio::task::JoinHandle<io::Result<Vec<u8>>>) -> Vec<u8> {
    match tokio::time::timeout(DRAIN_TIMEOUT, &mut reading).await {
        Ok(Ok(Ok(output))) => output,
        _ => {
            reading.abort();
            Vec::new()
        }
    }
}
