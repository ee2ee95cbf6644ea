//! Network namespaces. A thread that has entered one never goes back: it does what has to be done there and ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace that is held open: it lives as long as this does.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// By a path as `/proc/PID/ns/net` or a bind mount of one. What is not a namespace is refused.
    pub fn open(path: &Path) -> io::Result<Netns> {
        let file = File::open(path)?;
        let kind = rustix::fs::fstatfs(&file)?.f_type;
        if kind as u64 != NSFS_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a namespace"));
        }
        Ok(Netns(file))
    }

    /// That of the calling thread.
    pub fn current() -> io::Result<Netns> {
        Netns::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Runs `work` in the namespace, on a thread of its own. Sockets that it returns stay in the namespace.
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

    /// Whether both are the same namespace.
    pub fn same(&self, other: &Netns) -> io::Result<bool> {
        let (a, b) = (rustix::fs::fstat(&self.0)?, rustix::fs::fstat(&other.0)?);
        Ok(a.st_ino == b.st_ino && a.st_dev == b.st_dev)
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const NSFS_MAGIC: u64 = 0x6e73_6673;
/// What runs there opens sockets and writes sysctls.
const STACK_BYTES: usize = 256 * 1024;
