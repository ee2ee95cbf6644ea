//! OOM kills outside of pods, from the kernel's log.

use std::io;
use std::sync::Arc;

use client::Recorder;
use rustix::fs::{Mode, OFlags, SeekFrom};
use tokio::net::unix::pipe::Receiver;

use crate::config::Config;
use crate::model::resources::Class;
use crate::node::NodeView;

const LOG: &str = "/dev/kmsg";
/// A record of the log is never longer.
const RECORD: usize = 8192;

/// A process that the kernel has killed.
#[derive(Debug, PartialEq, Eq)]
struct OomKill {
    process: String,
    pid: i64,
    /// The cgroup of the process.
    group: String,
    /// Whether a cgroup was out of memory, not the machine.
    is_of_group: bool,
}

/// Records an event for each kill that concerns the system.
pub(crate) struct OomWatcher {
    pub(crate) config: Arc<Config>,
    pub(crate) node: NodeView,
    pub(crate) recorder: Recorder,
}

/// Watches the kernel's log until it is dropped.
pub(crate) async fn watch(watcher: OomWatcher) {
    if let Err(error) = read(&watcher).await {
        tracing::warn!(file = LOG, %error, "failed to watch the kernel log; OOM kills outside of pods are not reported");
    }
}

async fn read(watcher: &OomWatcher) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open(LOG, flags, Mode::empty())?;
    // Earlier messages are skipped: they were reported already.
    rustix::fs::seek(&log, SeekFrom::End(0))?;
    // The kernel log is read like a pipe, one record at a time.
    let log = Receiver::from_owned_fd_unchecked(log)?;
    let mut record = vec![0; RECORD];
    loop {
        log.readable().await?;
        match log.try_read(&mut record) {
            Ok(length) => record_kill(watcher, &String::from_utf8_lossy(&record[..length])),
            // Another reader was faster, or the record was overwritten meanwhile.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe) => {}
            Err(error) => return Err(error),
        }
    }
}

fn record_kill(watcher: &OomWatcher, record: &str) {
    if let Some(kill) = parse(record).filter(|kill| concerns_system(kill, &watcher.config)) {
        let text = format!("System OOM encountered, victim process: {}, pid: {}", kill.process, kill.pid);
        watcher.recorder.warning(&watcher.node.reference(), "SystemOOM", text);
    }
}

/// Kills in pods are reported with their containers; kills in other cgroups concern their owners.
fn concerns_system(kill: &OomKill, config: &Config) -> bool {
    let pods = super::names::of_class(config, Class::Guaranteed);
    let in_pods = kill.group == pods || kill.group.starts_with(&format!("{pods}/"));
    !in_pods && (!kill.is_of_group || kill.group == "/")
}

/// A line like `3,9,1,-;oom-kill:constraint=CONSTRAINT_NONE,…,task_memcg=/a,task=b,pid=4,uid=0`.
fn parse(record: &str) -> Option<OomKill> {
    let (_, text) = record.split_once(';')?;
    let fields = text.lines().next()?.strip_prefix("oom-kill:")?;
    // A process can have any name: it is between two known fields.
    let (front, rest) = fields.split_once(",task=")?;
    let (process, rest) = rest.rsplit_once(",pid=")?;
    let field = |name: &str| front.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(OomKill {
        process: process.to_string(),
        pid: rest.split(',').next()?.parse().ok()?,
        group: field("task_memcg")?.to_string(),
        is_of_group: field("constraint") == Some("CONSTRAINT_MEMCG"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_oom_kills_outside_of_pods() {
        let line = |constraint: &str, group: &str, task: &str| {
            format!(
                "3,9,1,-;oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
                 task_memcg={group},task={task},pid=4711,uid=0\n SUBSYSTEM=x\n"
            )
        };
        let cases = [
            (line("CONSTRAINT_NONE", "/", "a"), Some(("a", true))),
            (line("CONSTRAINT_NONE", "/system.slice/x", "b,pid=1"), Some(("b,pid=1", true))),
            (line("CONSTRAINT_MEMCG", "/system.slice/x", "b"), Some(("b", false))),
            (line("CONSTRAINT_NONE", "/kubepods/burstable/podu/c", "d"), Some(("d", false))),
            ("6,1,2,-;eth0: link up".to_string(), None),
            ("nonsense".to_string(), None),
        ];
        for (record, expected) in cases {
            let found = parse(&record);
            let reported =
                found.as_ref().map(|kill| (kill.process.as_str(), concerns_system(kill, &Config::default())));
            assert_eq!(reported, expected, "{record}");
            assert!(found.is_none_or(|kill| kill.pid == 4711));
        }
    }
}
