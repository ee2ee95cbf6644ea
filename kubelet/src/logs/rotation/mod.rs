//! Rotates logs of containers: a log that is too large is renamed, and the runtime begins a new one. [`rotated`]
//! decides which rotated files are compressed or removed.

pub(crate) mod rotated;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::Mode;
use stdx::clock::Clock;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::logs::files::{LogDir, name};
use crate::model::state::{Container, ListPods};
use crate::runtime::Runtime;

/// How large logs become, and how many are kept of each.
#[derive(Clone, Copy)]
struct Policy {
    most_bytes: u64,
    most_files: u32,
}

/// The log of a container that runs.
#[derive(Debug, Clone)]
struct Log {
    container: String,
    path: PathBuf,
}

/// Rotates all logs until it is dropped.
pub(crate) async fn run(config: Arc<Config>, runtime: Runtime, clock: Arc<dyn Clock>, pods: ListPods) {
    let policy = Policy { most_bytes: config.container_logs.max_size, most_files: config.container_logs.max_files };
    let turns = usize::try_from(config.container_logs.max_workers).unwrap_or(1).max(1);
    loop {
        tokio::time::sleep(config.container_logs.monitor_interval).await;
        rotate_logs(&runtime, &clock, logs(&pods), policy, turns).await;
    }
}

/// Only running containers write logs.
fn logs(pods: &ListPods) -> Vec<Log> {
    let is_written = |seen: &&Container| seen.is_running() && !seen.log_path.is_empty();
    let log = |seen: &Container| Log { container: seen.id.clone(), path: (&seen.log_path).into() };
    pods()
        .iter()
        .flat_map(|(_, state)| state.containers.iter().filter(is_written).map(log).collect::<Vec<_>>())
        .collect()
}

async fn rotate_logs(runtime: &Runtime, clock: &Arc<dyn Clock>, logs: Vec<Log>, policy: Policy, turns: usize) {
    let turns = Arc::new(Semaphore::new(turns));
    let mut tasks = JoinSet::new();
    for log in logs.into_iter().filter(|log| is_due(&log.path, policy)) {
        let (runtime, clock, turns) = (runtime.clone(), clock.clone(), turns.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let now = clock.now().seconds;
            if let Err(error) = rotate(&runtime, &log, policy, now).await {
                tracing::warn!(log = %log.path.display(), %error, "failed to rotate log");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// A missing log is due too: a rotation was interrupted between the rename and the new file.
fn is_due(path: &Path, policy: Policy) -> bool {
    std::fs::symlink_metadata(path)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |meta| meta.len() >= policy.most_bytes)
}

async fn rotate(runtime: &Runtime, log: &Log, policy: Policy, now: i64) -> io::Result<()> {
    let path = log.path.clone();
    let aside = format!("{}.{}", name(&path), rotated::stamp(now));
    let to = aside.clone();
    tokio::task::spawn_blocking(move || move_aside(&path, &to, policy)).await.map_err(io::Error::other)??;
    let reopened = reopen(runtime, &log.container).await;
    if reopened.is_err() && log.path.with_file_name(&aside).exists() && !log.path.exists() {
        // The runtime still writes to the renamed file: restore its name until the next attempt.
        LogDir::of(&log.path)?.rename(&aside, &name(&log.path))?;
    }
    reopened
}

async fn reopen(runtime: &Runtime, container: &str) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let request = cri::ReopenContainerLogRequest { container_id: container.to_string() };
    let reopened = tokio::time::timeout(PATIENCE, runtime.service.reopen_container_log(request)).await;
    let answer = reopened.map_err(|_| io::Error::other("the runtime does not answer"))?;
    answer.map(drop).map_err(|status| io::Error::other(status.message().to_string()))
}

fn move_aside(log: &Path, aside: &str, policy: Policy) -> io::Result<()> {
    let dir = LogDir::of(log)?;
    let tidy = rotated::plan_cleanup(&rotated::rotated_names(log), policy.most_files);
    for name in &tidy.remove {
        dir.remove(name)?;
    }
    for name in &tidy.compress {
        compress(&dir, name)?;
    }
    match dir.rename(&name(log), aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Compresses a file. The compressed file gets its final name only when it is complete.
fn compress(dir: &LogDir, name: &str) -> io::Result<()> {
    let (unfinished, done) = (format!("{name}{}", rotated::UNFINISHED), format!("{name}{}", rotated::COMPRESSED));
    let mut from = dir.open(name)?;
    let to = dir.create(&unfinished, Mode::from(0o600))?;
    to.set_permissions(from.metadata()?.permissions())?;
    let mut writer = GzEncoder::new(io::BufWriter::new(to), Compression::default());
    io::copy(&mut from, &mut writer)?;
    writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    dir.rename(&unfinished, &done)?;
    dir.remove(name)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const POLICY: Policy = Policy { most_bytes: 10, most_files: 3 };

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("a directory").flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    #[test]
    fn rotates_a_log_and_compresses_older_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("0.log");
        for (at, text) in ["first", "second", "third"].into_iter().enumerate() {
            std::fs::write(&log, text).expect("a log");
            move_aside(&log, &format!("0.log.{at}"), POLICY).expect("a rotation");
        }
        assert_eq!(names(dir.path()), ["0.log.1.gz", "0.log.2"]);
        let mut text = String::new();
        let (file, is_compressed) = rotated::open(dir.path(), "0.log.1").expect("a file");
        assert!(is_compressed);
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a text");
        assert_eq!(text, "second");
        move_aside(&log, "0.log.9", POLICY).expect("nothing to put aside");
        assert_eq!(names(dir.path()), ["0.log.2.gz"]);
    }

    #[test]
    fn does_not_compress_symbolic_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("logs")).expect("a directory");
        std::fs::write(at("secret"), "secret").expect("a file");
        std::os::unix::fs::symlink(at("secret"), at("logs/0.log.1")).expect("a link");
        std::fs::write(at("logs/0.log"), "log").expect("a log");
        assert!(move_aside(&at("logs/0.log"), "0.log.2", POLICY).is_err());
        assert_eq!(names(&at("logs")), ["0.log", "0.log.1"], "nothing of it is readable under another name");
        assert_eq!(std::fs::read_to_string(at("secret")).expect("a file"), "secret");
    }

    #[test]
    fn log_is_due_when_large_or_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("0.log");
        assert!(is_due(&log, POLICY));
        std::fs::write(&log, "123456789").expect("a log");
        assert!(!is_due(&log, POLICY));
        std::fs::write(&log, "1234567890").expect("a log");
        assert!(is_due(&log, POLICY));
    }
}
