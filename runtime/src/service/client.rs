//! The client of a shim: requests over its socket, and its events.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use stdx::sync::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Context, Result, refused};
use crate::ipc;
use crate::shim::protocol::{Call, Event, Message, Reply, Request, SOCKET_FILE};

type PendingRequests = BTreeMap<u64, oneshot::Sender<(Reply, Vec<OwnedFd>)>>;

pub(crate) struct ShimClient {
    shared: Arc<Shared>,
    next: AtomicU64,
    reader: tokio::task::JoinHandle<()>,
}

struct Shared {
    socket: AsyncFd<OwnedFd>,
    pending: Mutex<PendingRequests>,
    /// Receivers of the exit codes of execs.
    execs: Mutex<BTreeMap<String, oneshot::Sender<i32>>>,
}

/// The path of a socket may be too long for an address; the path through its open directory is short.
fn address(directory: &Path) -> Result<(OwnedFd, SocketAddrUnix)> {
    let fd = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("opening {}", directory.display()))?;
    let path = format!("/proc/self/fd/{}/{SOCKET_FILE}", fd.as_raw_fd());
    Ok((fd, SocketAddrUnix::new(path).at("the address of the shim's socket")?))
}

fn socket(flags: SocketFlags) -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None).at("creating a socket")
}

/// The socket that a new shim will serve. Clients may connect before the shim runs.
pub(super) fn listener(directory: &Path) -> Result<OwnedFd> {
    let (_directory, address) = address(directory)?;
    let fd = socket(SocketFlags::NONBLOCK)?;
    bind(&fd, &address).at("binding the shim's socket")?;
    listen(&fd, 16).at("listening on the shim's socket")?;
    Ok(fd)
}

impl ShimClient {
    /// Connects to a shim. The channel ends when the shim exits.
    pub(crate) fn open(directory: &Path) -> Result<(ShimClient, mpsc::UnboundedReceiver<Event>)> {
        let (_directory, address) = address(directory)?;
        let fd = socket(SocketFlags::empty())?;
        connect(&fd, &address).at("connecting to the shim")?;
        rustix::io::ioctl_fionbio(&fd, true).at("connecting to the shim")?;
        // SAFETY: an owned descriptor is the same one until it is dropped.
        let socket = unsafe { AsyncFd::register(fd) }.at("connecting to the shim")?;
        let shared = Arc::new(Shared { socket, pending: Mutex::default(), execs: Mutex::default() });
        let (events, receiver) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(shared.clone(), events));
        Ok((ShimClient { shared, next: AtomicU64::new(1), reader }, receiver))
    }

    pub(crate) async fn call(&self, call: Call, files: &[BorrowedFd<'_>]) -> Result<Reply> {
        self.call_with_files(call, files).await.map(|(reply, _)| reply)
    }

    pub(crate) async fn call_with_files(&self, call: Call, files: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.pending.lock().insert(id, sender);
        self.send(&Request { id, call }, files).await.at("sending a request to the shim")?;
        match receiver.await {
            Ok((Reply::Failed(reason), _)) => refused(reason),
            Ok(reply) => Ok(reply),
            Err(_) => refused("the pod's shim has exited"),
        }
    }

    /// The exit code of an exec. It has to be requested before the exec starts.
    pub(crate) fn exec_exit(&self, exec: &str) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        self.shared.execs.lock().insert(exec.to_string(), sender);
        receiver
    }

    pub(crate) fn forget_exec(&self, exec: &str) {
        self.shared.execs.lock().remove(exec);
    }

    async fn send(&self, request: &Request, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.shared.socket.writable().await?;
            match ready.try_io(|socket| ipc::send(socket.get_ref().as_fd(), request, files)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// The pid of the shim, from the kernel.
    pub(crate) fn pid(&self) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.shared.socket.get_ref()).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }
}

impl Drop for ShimClient {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(shared: Arc<Shared>, events: mpsc::UnboundedSender<Event>) {
    loop {
        let Ok(mut ready) = shared.socket.readable().await else { break };
        let received = match ready.try_io(|socket| ipc::receive::<Message>(socket.get_ref().as_fd())) {
            Ok(received) => received,
            Err(_would_block) => continue,
        };
        match received {
            Ok(Some((Message::Reply { id, reply }, files))) => {
                if let Some(sender) = shared.pending.lock().remove(&id) {
                    let _ = sender.send((reply, files));
                }
            }
            Ok(Some((Message::Event(Event::ExecExit { exec, code }), _))) => {
                if let Some(sender) = shared.execs.lock().remove(&exec) {
                    let _ = sender.send(code);
                }
            }
            Ok(Some((Message::Event(event), _))) => {
                let _ = events.send(event);
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "invalid message from a shim");
                break;
            }
        }
    }
    // Dropping the senders wakes all pending callers.
    shared.pending.lock().clear();
    shared.execs.lock().clear();
}
