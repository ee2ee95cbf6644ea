//! Watches a file for changes, also if it is replaced as a whole. A thread sleeps in the kernel until the file's
//! directory changes; it does not poll.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// Calls `changed` after each change, until it returns false.
pub(crate) fn on_change(path: &Path, changed: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fd = inotify::init(CreateFlags::CLOEXEC)?;
    // A directory of links that point elsewhere, as mounted secrets are, changes by moving a link.
    inotify::add_watch(&fd, directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE)?;
    std::thread::Builder::new().name("config-watch".to_string()).spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&fd, &mut buffer);
        while reader.next().is_ok() {
            // Events that arrive together are one change.
            if reader.is_buffer_empty() && !changed() {
                return;
            }
        }
    })?;
    Ok(())
}
