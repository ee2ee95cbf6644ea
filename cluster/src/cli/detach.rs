//! `tiphys up --detach`: the cluster runs in a process of its own session, and this one shows its start.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use super::{interrupted, runtime, say};
use crate::error::{Error, Result};
use crate::logs::LogFile;
use crate::machine::run_state::RunState;

/// Set for the process in the background.
const VARIABLE: &str = "TIPHYS_DETACHED";
/// The most that is shown of the log when the start has failed.
const MAX_SHOWN: u64 = 64 << 10;

/// Whether this process is the one in the background.
pub(super) fn is_background() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Leaves the session of the terminal, so that neither ctrl-c nor its end reach the cluster.
pub(super) fn leave_session() {
    // It fails only for the leader of a process group, which was started in another way.
    let _ = rustix::process::setsid();
}

/// Ends the output to the process that shows the start.
pub(super) fn end_output() {
    if let Ok(log) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&log);
    }
}

/// Starts this command in the background and shows its output until the cluster is ready.
pub(super) fn run(data_dir: &Path, arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let log = log(data_dir)?;
    let shown_from = log.metadata().map_err(Error::file(data_dir))?.len();
    let mut child = spawn(&log, arguments)?;
    let result = runtime()?.block_on(follow_start(&mut child));
    match result {
        Ok(()) if is_ready(data_dir, &child) => Ok(()),
        Ok(()) => Err(Error::Ended(why(data_dir, &mut child, shown_from))),
        Err(error) => Err(error),
    }
}

/// The log of the cluster; what is written to standard error gets there too.
fn log(data_dir: &Path) -> Result<File> {
    let path = log_path(data_dir);
    LogFile::open(data_dir).map_err(Error::file(&path))?;
    OpenOptions::new().append(true).open(&path).map_err(Error::file(&path))
}

fn log_path(data_dir: &Path) -> PathBuf {
    crate::logs::path(data_dir)
}

fn spawn(log: &File, arguments: impl Iterator<Item = OsString>) -> Result<Child> {
    let program = std::env::current_exe().map_err(Error::Runtime)?;
    let arguments = arguments.filter(|argument| argument != "--detach" && argument != "-d");
    Command::new(program)
        .args(arguments)
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone().map_err(Error::Runtime)?)
        .spawn()
        .map_err(Error::Runtime)
}

/// Shows what the process prints until it is ready or exits; ctrl-c stops it.
async fn follow_start(child: &mut Child) -> Result<()> {
    let Some(output) = child.stdout.take() else { return Ok(()) };
    let output = pipe::Receiver::from_owned_fd(output.into()).map_err(Error::Runtime)?;
    let mut lines = BufReader::new(output).lines();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            () = interrupted(), if !is_stopping => {
                is_stopping = true;
                terminate(child);
            }
            line = lines.next_line() => match line {
                Ok(Some(line)) => say(&line),
                Ok(None) | Err(_) => return Ok(()),
            },
        }
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// A process that is ready has written its state before it ended its output.
fn is_ready(data_dir: &Path, child: &Child) -> bool {
    RunState::read(data_dir).is_some_and(|state| state.pid == child.id())
}

/// Why the process exited, in its own words.
fn why(data_dir: &Path, child: &mut Child, from: u64) -> String {
    let status = child.wait();
    let path = log_path(data_dir);
    let text = File::open(&path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(MAX_SHOWN).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    });
    let text = text.unwrap_or_default();
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    match (errors.is_empty(), status.ok().and_then(|status| status.signal())) {
        (false, _) => errors.join("\n"),
        (true, Some(signal)) => format!("killed by signal {signal}; its log is {}", path.display()),
        (true, None) => format!("the cluster did not start; its log is {}", path.display()),
    }
}
