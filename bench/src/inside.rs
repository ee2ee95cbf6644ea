//! A benchmark that makes pods runs in namespaces of its own: nothing of it is left on the machine, however it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::Result;

/// All cgroups of such a benchmark are below it.
pub(crate) const CGROUP: &str = "/tiphys-bench";

/// Set inside, to the directory of the benchmark.
const INSIDE: &str = "TIPHYS_BENCH_INSIDE";

/// A network with a way out that leads nowhere, and no directory of the machine's written to: Debian's plugins keep
/// addresses in one, sockets and logs have theirs.
const ENTER: &str = "ip link set lo up && ip link add way type veth peer name out && \
    ip address add 192.0.2.10/24 dev way && ip link set way up && ip link set out up && \
    ip route add default via 192.0.2.1 && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
    mkdir -p /var/lib/cni && mount -t tmpfs none /var/lib/cni && exec \"$0\" \"$@\"";

/// The directory of the benchmark that runs in here.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(PathBuf::from)
}

/// Runs this very command again inside, and takes away what it leaves; whether every figure was reached.
pub(crate) async fn run(dir: &Path) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return Err("this benchmark runs pods in namespaces of its own, which needs root".into());
    }
    let child = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER])
        .args(std::env::args_os())
        .env(INSIDE, dir)
        .spawn()
        .map_err(|error| format!("unshare (Debian package util-linux): {error}"))?;
    let ended = finish(child).await;
    cgroup::Hierarchies::detect()?.remove_when_empty(CGROUP, Duration::from_secs(10))?;
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    ended
}

/// Waits for the child, or ends it with all that it has started.
async fn finish(mut child: Child) -> Result<bool> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut ended = signal(SignalKind::child())?;
    let interrupted = loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        tokio::select! {
            biased;
            _ = interrupt.recv() => break "interrupted",
            _ = terminate.recv() => break "terminated",
            _ = ended.recv() => {}
        }
    };
    kill_inside(&mut child)?;
    child.wait()?;
    Err(interrupted.into())
}

/// Kills the first process of the namespace. `unshare` waits for it, and the kernel ends it after all others: when
/// `unshare` has ended, nothing inside can create anything any more.
fn kill_inside(child: &mut Child) -> Result<()> {
    let id = child.id();
    let pids = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let pids: Vec<Pid> = pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    if pids.is_empty() {
        child.kill()?;
    }
    for pid in pids {
        // A process that has exited already is no error.
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(())
}
