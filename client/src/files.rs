//! Watches files for changes with inotify.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// A set of watched files.
pub struct Files {
    events: AsyncFd<OwnedFd>,
}

impl Files {
    /// Watches the directories, not the files, since files are often replaced by rename.
    pub fn watch(paths: &[PathBuf]) -> io::Result<Files> {
        Files::watch_for(paths, WatchFlags::empty())
    }

    /// Watches a file that is appended to, also after it was replaced.
    pub fn watch_writes(path: &Path) -> io::Result<Files> {
        Files::watch_for(&[path.to_path_buf()], WatchFlags::MODIFY)
    }

    fn watch_for(paths: &[PathBuf], more: WatchFlags) -> io::Result<Files> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let directory = |path: &PathBuf| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            if path.is_dir() { path.clone() } else { parent.unwrap_or(Path::new(".")).to_path_buf() }
        };
        let directories: BTreeSet<PathBuf> = paths.iter().map(directory).collect();
        let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVE | WatchFlags::CREATE | WatchFlags::DELETE | more;
        for directory in directories {
            inotify::add_watch(&events, &directory, what)?;
        }
        #[expect(deprecated, reason = "unsound only for types that change their descriptor; this one owns it")]
        let events = AsyncFd::new(events)?;
        Ok(Files { events })
    }

    /// Waits until something has changed since the last call.
    pub async fn changed(&self) {
        loop {
            let Ok(mut ready) = self.events.readable().await else { return std::future::pending().await };
            // The event content does not matter: all files are read again.
            let mut bytes = [0; 4096];
            let read = ready.try_io(|events| Ok(rustix::io::read(events.get_ref(), &mut bytes)?));
            if matches!(read, Ok(Ok(1..))) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn notices_replaced_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        std::fs::write(&path, "1").expect("a file");
        let files = Files::watch(std::slice::from_ref(&path)).expect("a watch");
        std::fs::write(dir.path().join("new"), "2").expect("a file");
        std::fs::rename(dir.path().join("new"), &path).expect("a file");
        tokio::time::timeout(Duration::from_secs(10), files.changed()).await.expect("a change");
        assert!(Files::watch(&[dir.path().join("none/a")]).is_err());
    }

    #[tokio::test]
    async fn notices_moved_files() {
        let (dir, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        std::fs::write(dir.path().join("a"), "1").expect("a file");
        let files = Files::watch(&[dir.path().to_path_buf()]).expect("a watch");
        std::fs::rename(dir.path().join("a"), elsewhere.path().join("a")).expect("a file");
        tokio::time::timeout(Duration::from_secs(10), files.changed()).await.expect("a change");
    }
}
