//! Network namespaces. A thread that has entered one does its work there and exits; it never returns.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An open network namespace. It exists at least as long as this handle.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// Opens a path such as `/proc/PID/ns/net` or a bind mount of one. Refuses a file that is not a namespace.
    pub fn open(path: &Path) -> io::Result<Netns> {
        let file = File::open(path)?;
        let kind = rustix::fs::fstatfs(&file)?.f_type;
        if kind as u64 != NSFS_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a namespace"));
        }
        Ok(Netns(file))
    }

    /// The network namespace of the calling thread.
    pub fn current() -> io::Result<Netns> {
        Netns::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Runs `work` in the namespace, on a new thread. Sockets that it opens and returns stay in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let entered = || {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, entered)?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
        })
    }

    /// Whether both handles refer to the same namespace.
    pub fn same(&self, other: &Netns) -> io::Result<bool> {
        let (a, b) = (rustix::fs::fstat(&self.0)?, rustix::fs::fstat(&other.0)?);
        Ok(a.st_ino == b.st_ino && a.st_dev == b.st_dev)
    }
}

/// Moves the calling thread into a new network namespace, which exists as long as the thread or a socket in it.
pub fn unshare() -> io::Result<()> {
    // SAFETY: only the network namespace is unshared; the file table stays shared with the other threads.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
    Ok(())
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const NSFS_MAGIC: u64 = 0x6e73_6673;
/// Enough to open sockets and to write sysctls.
const STACK_BYTES: usize = 256 * 1024;
