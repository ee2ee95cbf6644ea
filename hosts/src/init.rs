//! What runs in a host before its program: the process that creates the namespaces, and the first process in them.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use cgroup::Hierarchies;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Error, io};

/// The hidden command of the process that creates the namespaces.
pub const HOST_COMMAND: &str = "host-namespaces";
/// The hidden command of the first process in them.
pub const INIT_COMMAND: &str = "host-init";
/// Set for the program of a simulated host.
pub const HOST_VARIABLE: &str = "TIPHYS_SIMULATED_HOST";
/// What the outer process prints when its namespaces exist.
pub(crate) const READY: u8 = b'r';
/// What lets it go on when the network is there.
pub(crate) const GO: u8 = b'g';
/// Stands for this binary where the path of the program is expected.
pub(crate) const THIS_BINARY: &str = "-";
/// The cgroup of the host's own processes, beside those of pods.
const SYSTEM: &str = "system";
/// How long the program may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Directories of the machine that a host has its own of, and the names of those in the host's directory.
const OWN: [(&str, &str); 3] = [("/run/tiphys", "run"), ("/var/log/pods", "pod-logs"), ("/var/lib/cni", "cni")];

/// The arguments of both commands.
struct Arguments {
    dir: PathBuf,
    name: String,
    cgroup: String,
    program: Vec<String>,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
        let (dir, name, cgroup) = (words.next()?.into(), words.next()?, words.next()?);
        Some(Arguments { dir, name, cgroup, program: words.collect() })
    }
}

/// This binary by its path: `/proc/self/exe` leads into the mounts of the process that created the namespaces, in which
/// the program could not be mounted for containers.
fn executable() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or(own)
}

fn finish(outcome: Result<ExitCode, Error>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Creates the namespaces, waits until the network is there, and runs the first process in them.
pub fn run_host(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    let Some(arguments) = Arguments::read(words.iter().cloned()) else { return ExitCode::FAILURE };
    finish(create_namespaces(&arguments).and_then(|()| start_init(&words)))
}

fn create_namespaces(arguments: &Arguments) -> Result<(), Error> {
    let hierarchies = Hierarchies::detect()?;
    let system = format!("{}/{SYSTEM}", arguments.cgroup);
    hierarchies.create(&system)?;
    // The cgroup of a process is the root of its new cgroup namespace.
    hierarchies.join(&arguments.cgroup)?;
    let flags = UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWCGROUP;
    // SAFETY: this process has one thread, and the file table stays shared with nothing.
    unsafe { unshare_unsafe(flags) }.map_err(io("failed to create namespaces"))?;
    hierarchies.join(&system)?;
    let mut byte = [READY];
    let mut out = std::io::stdout();
    out.write_all(&byte).and_then(|()| out.flush()).map_err(io("failed to report"))?;
    std::io::stdin().read_exact(&mut byte).map_err(io("the process that started this host has ended"))
}

fn start_init(words: &[String]) -> Result<ExitCode, Error> {
    let mut init = Command::new(executable());
    let spawned = init.arg(INIT_COMMAND).args(words).stdin(Stdio::inherit()).spawn();
    let ended = spawned.and_then(|mut init| init.wait()).map_err(io("failed to run the first process"))?;
    Ok(ended.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1))))
}

/// The first process: mounts, the host name, the program, and the processes that it leaves.
pub fn run_init(words: impl Iterator<Item = String>) -> ExitCode {
    let Some(arguments) = Arguments::read(words) else { return ExitCode::FAILURE };
    finish(prepare(&arguments).and_then(|()| supervise(&arguments)))
}

fn prepare(arguments: &Arguments) -> Result<(), Error> {
    rustix::system::sethostname(arguments.name.as_bytes()).map_err(io("failed to set the host name"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(io("failed to separate the mounts"))?;
    // Before `/proc` shows only the processes of this host.
    mount_cgroups(&arguments.cgroup)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(io("failed to mount /proc"))?;
    for (target, name) in OWN {
        bind(&arguments.dir.join(name), Path::new(target))?;
    }
    Ok(())
}

/// Each hierarchy begins at the host's own cgroup.
fn mount_cgroups(path: &str) -> Result<(), Error> {
    let hierarchies = Hierarchies::detect()?;
    let (own, roots) = (hierarchies.roots(path), hierarchies.roots("/"));
    own.iter().zip(&roots).try_for_each(|(own, root)| {
        mount_bind(own, root).map_err(io(format!("failed to mount {} at {}", own.display(), root.display())))
    })
}

fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    let what = || format!("failed to mount {} at {}", source.display(), target.display());
    for dir in [source, target] {
        std::fs::create_dir_all(dir).map_err(io(what()))?;
    }
    mount_bind(source, target).map_err(io(what()))
}

fn supervise(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("failed to start"))?;
    let ended = runtime.block_on(run_program(arguments));
    // One thread reads from the process that started this host, which may never write.
    runtime.shutdown_background();
    ended
}

async fn run_program(arguments: &Arguments) -> Result<ExitCode, Error> {
    let mut exits = signal(SignalKind::child()).map_err(io("failed to wait for processes"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(io("failed to wait for signals"))?;
    let program = start_program(arguments)?;
    let mut parent = tokio::task::spawn_blocking(wait_for_parent);
    let mut is_stopping = false;
    let deadline = tokio::time::sleep(Duration::MAX);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            _ = exits.recv() => {
                if let Some(code) = reap(&program) {
                    return Ok(code);
                }
            }
            _ = &mut parent, if !is_stopping => is_stopping = true,
            _ = terminate.recv(), if !is_stopping => is_stopping = true,
            () = &mut deadline => return Ok(ExitCode::FAILURE),
        }
        if is_stopping && deadline.deadline() > tokio::time::Instant::now() + STOP_TIMEOUT {
            stop(&program);
            deadline.as_mut().reset(tokio::time::Instant::now() + STOP_TIMEOUT);
        }
    }
}

fn start_program(arguments: &Arguments) -> Result<Child, Error> {
    let missing = || io("failed to start the program")(std::io::Error::from(std::io::ErrorKind::InvalidInput));
    let (path, words) = arguments.program.split_first().ok_or_else(missing)?;
    let mut program = Command::new(if path == THIS_BINARY { executable() } else { path.into() });
    // Variables that configure the process that created this host are not meant for its program.
    program.args(words).env(HOST_VARIABLE, "1").stdin(Stdio::null());
    program.spawn().map_err(io(format!("failed to start {}", program.get_program().display())))
}

/// Returns when the process that started this host has closed its end of the pipe.
fn wait_for_parent() {
    let mut byte = [0];
    while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
}

fn stop(program: &Child) {
    if let Some(pid) = Pid::from_raw(program.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Collects all processes that have exited; the code of the program, if it is one of them.
fn reap(program: &Child) -> Option<ExitCode> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get() as u32 == program.id() {
            let status = std::process::ExitStatus::from_raw(status.as_raw());
            ended =
                Some(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1))));
        }
    }
    ended
}
