//! Execs in a running container.

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

/// The limit of each output stream of ExecSync; the chunk is dropped.
const MAX_OUTPUT: usize = 16 << 20;
/// How long to wait for the remaining output of a killed process, whose streams other processes may hold open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A running exec.
pub(crate) struct RunningExec {
    shim: Arc<ShimClient>,
    exec: String,
    pub exit: oneshot::Receiver<i32>,
    /// With a terminal, its master.
    pub terminal: Option<OwnedFd>,
}

impl RunningExec {
    pub(crate) async fn kill(&self) {
        let target = Target::Exec(self.exec.clone());
        let _ = self.shim.call(Call::Signal { target, signal: libc::SIGKILL }, &[]).await;
    }
}

impl Drop for RunningExec {
    fn drop(&mut self) {
        self.shim.forget_exec(&self.exec);
    }
}

/// The streams of an exec without a terminal.
pub(crate) struct ExecStreams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Service {
    pub(crate) fn container_by_id(&self, id: &str) -> Result<Arc<Container>> {
        self.0.containers.find(id).map_or_else(|| refused(format!("container {id:?} does not exist")), Ok)
    }

    /// Connects to a port of a pod, from within its network namespace.
    pub(crate) async fn connect_to_pod(&self, sandbox: &str, port: i32) -> Result<tokio::net::TcpStream> {
        let Ok(number) = u16::try_from(port) else { return refused(format!("{port} is not a port")) };
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

    /// The shim of a running container; otherwise an error with the container's state.
    pub(crate) fn running_shim(&self, container: &Container) -> Result<Arc<ShimClient>> {
        if !container.is_running() {
            let state = convert::state_name(container.status().state);
            return refused(format!("container is in {state} state"));
        }
        match container.sandbox.shim() {
            Some(shim) => Ok(shim),
            None => refused("the pod's shim has exited"),
        }
    }

    pub(crate) async fn execute(
        &self,
        container: &Container,
        args: Vec<String>,
        streams: Option<ExecStreams>,
    ) -> Result<RunningExec> {
        if args.is_empty() {
            return refused("cmd is empty");
        }
        let shim = self.running_shim(container)?;
        let exec = new_id()?;
        let exit = shim.exec_exit(&exec);
        let call = Exec { container: container.id.clone(), exec: exec.clone(), args, terminal: streams.is_none() };
        let files: Vec<_> =
            streams.iter().flat_map(|s| [s.stdin.as_fd(), s.stdout.as_fd(), s.stderr.as_fd()]).collect();
        let mut running = RunningExec { shim: shim.clone(), exec, exit, terminal: None };
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
        let [stdout, stderr] = outputs.map(|fd| tokio::spawn(read_output(fd)));
        let exit = tokio::time::timeout(timeout_or_max(timeout), &mut running.exit).await;
        let exit_code = match exit {
            Ok(Ok(code)) => code,
            Ok(Err(_)) => return Err(Status::unknown("the pod's shim exited before the command")),
            Err(_) => {
                running.kill().await;
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut running.exit).await;
                let text =
                    format!("failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded");
                return Err(Status::deadline_exceeded(text));
            }
        };
        let (stdout, stderr) = (read_remaining(stdout).await, read_remaining(stderr).await);
        Ok(ExecSyncResponse { stdout, stderr, exit_code })
    }
}

/// Zero means no limit.
fn timeout_or_max(timeout: Duration) -> Duration {
    if timeout.is_zero() { Duration::from_secs(u64::from(u32::MAX)) } else { timeout }
}

fn pipes() -> Result<(ExecStreams, [OwnedFd; 2])> {
    let pair = || pipe_with(PipeFlags::CLOEXEC).at("creating a pipe");
    let ((stdin, _), (from_stdout, stdout), (from_stderr, stderr)) = (pair()?, pair()?, pair()?);
    Ok((ExecStreams { stdin, stdout, stderr }, [from_stdout, from_stderr]))
}

async fn read_output(fd: OwnedFd) -> io::Result<Vec<u8>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    let mut output = Vec::new();
    let mut receiver = Receiver::from_owned_fd(fd)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        match receiver.read(&mut chunk).await? {
            0 => return Ok(output),
            length => {
                let room = MAX_OUTPUT - output.len();
                output.extend_from_slice(&chunk[..length.min(room)]);
            }
        }
    }
}

/// A child of the command may keep its streams open. Then the output is dropped after the timeout.
async fn read_remaining(mut reading: tokio::task::JoinHandle<io::Result<Vec<u8>>>) -> Vec<u8> {
    match tokio::time::timeout(DRAIN_TIMEOUT, &mut reading).await {
        Ok(Ok(Ok(output))) => output,
        _ => {
            reading.abort();
            Vec::new()
        }
    }
}
