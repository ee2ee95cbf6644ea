//! Waits for more of a log, with inotify; a file that was closed, as at a container's exit, is polled more often for a
//! while.

use std::io::Result;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::fs::File;
use tokio::io::unix::AsyncFd;

use crate::logs::files;

/// The file is closed before its container is known to have ended.
const CLOSED: Duration = Duration::from_millis(50);
/// The interval without events: for file systems without inotify, and runtimes that keep the file open.
const QUIET: Duration = Duration::from_secs(1);

pub(crate) struct Changes {
    events: AsyncFd<OwnedFd>,
    wait: Duration,
}

impl Changes {
    /// Watches the file, and its replacement. A file that is being rotated is missing for a moment: an event of the
    /// directory shows that the next file exists.
    pub(crate) fn watch(path: &Path) -> Result<Changes> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        if let Some(directory) = path.parent() {
            inotify::add_watch(&events, directory, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        }
        match inotify::add_watch(&events, path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        #[expect(deprecated, reason = "unsound only for types that change their descriptor; this one owns it")]
        let events = AsyncFd::new(events)?;
        Ok(Changes { events, wait: QUIET })
    }

    /// Waits until there may be more lines; true if the container may have exited, too.
    pub(crate) async fn next(&mut self) -> bool {
        let received = tokio::time::timeout(self.wait, self.receive_events()).await;
        received.is_err() || self.wait == CLOSED
    }

    async fn receive_events(&mut self) {
        loop {
            let Ok(mut ready) = self.events.readable().await else { return std::future::pending().await };
            let Ok(Ok(closed)) = ready.try_io(|events| drain(events.get_ref())) else { continue };
            self.wait = if closed { CLOSED } else { QUIET };
            return;
        }
    }
}

/// Reads all events; true if the file was closed.
fn drain(events: &OwnedFd) -> Result<bool> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    // Without any event this is WouldBlock, by which the next wait is a wait.
    let mut last = reader.next()?.events();
    while let Ok(event) = reader.next() {
        last = event.events();
    }
    // The last event counts: a file that is written again is open.
    Ok(last.contains(ReadFlags::CLOSE_WRITE))
}

/// Opens the file that has replaced an older one.
pub(crate) async fn successor(old: &File, path: &Path) -> Option<File> {
    let new = files::open_async(path.to_path_buf()).await.ok()?;
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let (old, other) = (old.metadata().await.ok()?, new.metadata().await.ok()?);
    (identity(old) != identity(other)).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watches_a_file_that_is_being_rotated() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        let mut changes = Changes::watch(&path).expect("a watch");
        std::fs::write(&path, "b").expect("a file");
        changes.receive_events().await;
    }

    #[tokio::test]
    async fn finds_a_replaced_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, "a").expect("a file");
        let old = File::open(&path).await.expect("a file");
        assert!(successor(&old, &path).await.is_none());
        std::fs::rename(&path, dir.path().join("0.log.1")).expect("another name");
        assert!(successor(&old, &path).await.is_none(), "nothing is there yet");
        let mut changes = Changes::watch(&dir.path().join("0.log.1")).expect("a watch");
        std::fs::write(&path, "b").expect("a file");
        changes.receive_events().await;
        assert!(successor(&old, &path).await.is_some());
    }
}
