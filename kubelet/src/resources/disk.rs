//! Disk usage of directories. Walking many files is expensive: it is done on request, in the background, and cached for
//! a while.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};

use crate::resources::machine::{self, Filesystem};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl AddAssign for DiskUsage {
    fn add_assign(&mut self, other: DiskUsage) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

/// Measures a directory recursively, or a file, on the same file system. Hard links count once.
pub(crate) fn measure(root: &Path) -> DiskUsage {
    let Ok(meta) = std::fs::symlink_metadata(root) else { return DiskUsage::default() };
    let device = meta.dev();
    let mut sum = of(&meta);
    let (mut directories, mut linked) = (Vec::new(), BTreeSet::new());
    if meta.is_dir() {
        directories.push(root.to_path_buf());
    }
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let again = !meta.is_dir() && meta.nlink() > 1 && !linked.insert(meta.ino());
            if meta.dev() != device || again {
                continue;
            }
            sum += of(&meta);
            if meta.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    sum
}

fn of(meta: &std::fs::Metadata) -> DiskUsage {
    DiskUsage { bytes: meta.blocks() * 512, inodes: 1 }
}

/// A location whose usage is measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    /// A directory, or a file, whose contents are counted.
    Tree(PathBuf),
    /// A separate file system, which reports its own usage.
    Mount(PathBuf),
}

/// The usage of a path, and its file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathUsage {
    pub(crate) used: DiskUsage,
    pub(crate) whole: Filesystem,
}

fn find(place: &Location) -> PathUsage {
    let (Location::Tree(path) | Location::Mount(path)) = place;
    let whole = machine::filesystem(path).unwrap_or_default();
    let used = match place {
        Location::Tree(path) => measure(path),
        Location::Mount(_) => DiskUsage { bytes: whole.used, inodes: whole.inodes_used },
    };
    PathUsage { used, whole }
}

/// How long a request waits; a result that comes later is returned next time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Directories that were not requested for so many periods are dropped.
const KEPT_PERIODS: u32 = 10;

pub(crate) struct Disks {
    clock: Arc<dyn Clock>,
    /// None if directories are not measured.
    period: Option<Duration>,
    known: Mutex<BTreeMap<Location, CachedUsage>>,
    /// One measurement at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct CachedUsage {
    found: Option<PathUsage>,
    /// Nanoseconds since the epoch.
    measured: i64,
    requested_at: i64,
}

impl Disks {
    pub(crate) fn new(clock: Arc<dyn Clock>, period: Option<Duration>) -> Arc<Disks> {
        Arc::new(Disks { clock, period, known: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// The usage of paths, none older than a period; those not measured in time are missing.
    pub(crate) async fn of(self: &Arc<Disks>, places: &[Location]) -> BTreeMap<Location, PathUsage> {
        let Some(period) = self.period else { return BTreeMap::new() };
        let now = self.now();
        let stale: Vec<Location> = {
            let mut known = self.known();
            for place in places {
                known.entry(place.clone()).or_default().requested_at = now;
            }
            known.retain(|_, one| now - one.requested_at <= nanos(period * KEPT_PERIODS));
            let is_stale = |place: &&Location| known.get(*place).is_none_or(|one| one.is_stale(now, period));
            places.iter().filter(is_stale).cloned().collect()
        };
        if !stale.is_empty() {
            let disks = self.clone();
            let looking = tokio::spawn(async move { disks.look(stale, period).await });
            let _ = tokio::time::timeout(PATIENCE, looking).await;
        }
        let known = self.known();
        places.iter().filter_map(|place| Some((place.clone(), known.get(place)?.found?))).collect()
    }

    async fn look(&self, places: Vec<Location>, period: Duration) {
        let _turn = self.turn.lock().await;
        for place in places {
            let now = self.now();
            // Another request may have measured it meanwhile.
            if self.known().get(&place).is_some_and(|one| !one.is_stale(now, period)) {
                continue;
            }
            let looked_at = place.clone();
            let found = tokio::task::spawn_blocking(move || find(&looked_at)).await.unwrap_or_default();
            let measured = self.now();
            let mut known = self.known();
            let one = known.entry(place).or_default();
            *one = CachedUsage { found: Some(found), measured, requested_at: one.requested_at };
        }
    }

    fn now(&self) -> i64 {
        let now = self.clock.now();
        now.seconds * 1_000_000_000 + i64::from(now.nanos)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Location, CachedUsage>> {
        self.known.lock()
    }
}

impl CachedUsage {
    fn is_stale(&self, now: i64, period: Duration) -> bool {
        self.found.is_none() || now - self.measured >= nanos(period)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use stdx::clock::RuntimeClock;

    use super::*;

    #[test]
    fn measures_a_directory_recursively() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, size: usize| std::fs::write(dir.path().join(name), vec![1; size]).expect("a file");
        let empty = measure(dir.path());
        assert_eq!(empty.inodes, 1);
        std::fs::create_dir(dir.path().join("below")).expect("a directory");
        write("below/a", 100_000);
        std::fs::hard_link(dir.path().join("below/a"), dir.path().join("b")).expect("a link");
        std::os::unix::fs::symlink("/", dir.path().join("c")).expect("a link");
        let used = measure(dir.path());
        assert_eq!(used.inodes, 4);
        assert!((100_000..150_000).contains(&(used.bytes - empty.bytes)), "{used:?}");
        assert_eq!(measure(&dir.path().join("none")), DiskUsage::default());
    }

    #[tokio::test(start_paused = true)]
    async fn caches_measurements_for_a_period() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        let clock = Arc::new(RuntimeClock::starting_at(Duration::from_secs(1000)));
        let disks = Disks::new(clock.clone(), Some(Duration::from_secs(60)));
        let requested_at = [Location::Tree(path.clone())];
        let bytes = async || disks.of(&requested_at).await.values().next().map(|found| found.used.bytes);
        assert_eq!(bytes().await, Some(0));
        std::fs::write(&path, vec![1; 9000]).expect("a file");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(bytes().await, Some(0), "it is not looked at again so soon");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(bytes().await.is_some_and(|bytes| bytes >= 9000));
        assert!(Disks::new(clock, None).of(&requested_at).await.is_empty());
    }
}
