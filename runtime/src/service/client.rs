//! The agent's hand on one shim: requests over its socket, and what it tells by itself.

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
use crate::shim::protocol::{Answer, Call, Event, Reply, Request, SOCKET_FILE};
use crate::wire;

type Waiting = BTreeMap<u64, oneshot::Sender<(Reply, Vec<OwnedFd>)>>;

pub struct ShimClient {
    shared: Arc<Shared>,
    next: AtomicU64,
    reader: tokio::task::JoinHandle<()>,
}

struct Shared {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
    /// Who wants to know how an executed process ended.
    execs: Mutex<BTreeMap<String, oneshot::Sender<i32>>>,
}

/// A socket's path may be longer than an address holds; through its open directory it is short.
fn address(directory: &Path) -> Result<(OwnedFd, SocketAddrUnix)> {
    let fd = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("opening {}", directory.display()))?;
    let path = format!("/proc/self/fd/{}/{SOCKET_FILE}", fd.as_raw_fd());
    Ok((fd, SocketAddrUnix::new(path).at("naming the shim's socket")?))
}

fn socket(flags: SocketFlags) -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None).at("making a socket")
}

/// The socket a new shim will serve; callers may connect before it runs.
pub fn listener(directory: &Path) -> Result<OwnedFd> {
    let (_directory, address) = address(directory)?;
    let fd = socket(SocketFlags::NONBLOCK)?;
    bind(&fd, &address).at("binding the shim's socket")?;
    listen(&fd, 16).at("listening on the shim's socket")?;
    Ok(fd)
}

impl ShimClient {
    /// Connects and begins to listen. The channel ends when the shim is gone.
    pub fn open(directory: &Path) -> Result<(ShimClient, mpsc::UnboundedReceiver<Event>)> {
        let (_directory, address) = address(directory)?;
        let fd = socket(SocketFlags::empty())?;
        connect(&fd, &address).at("connecting to the shim")?;
        rustix::io::ioctl_fionbio(&fd, true).at("connecting to the shim")?;
        // SAFETY: an owned descriptor is the same one until it is dropped.
        let socket = unsafe { AsyncFd::register(fd) }.at("connecting to the shim")?;
        let shared = Arc::new(Shared { socket, waiting: Mutex::default(), execs: Mutex::default() });
        let (events, told) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(shared.clone(), events));
        Ok((ShimClient { shared, next: AtomicU64::new(1), reader }, told))
    }

    pub async fn call(&self, call: Call, files: &[BorrowedFd<'_>]) -> Result<Reply> {
        self.call_with_files(call, files).await.map(|(reply, _)| reply)
    }

    pub async fn call_with_files(&self, call: Call, files: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.waiting.lock().insert(id, sender);
        self.send(&Request { id, call }, files).await.at("asking the shim")?;
        match receiver.await {
            Ok((Reply::Failed(reason), _)) => refused(reason),
            Ok(answer) => Ok(answer),
            Err(_) => refused("the pod's shim is gone"),
        }
    }

    /// How the executed process ends; to be asked before it is started.
    pub fn exec_exit(&self, exec: &str) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        self.shared.execs.lock().insert(exec.to_string(), sender);
        receiver
    }

    pub fn forget_exec(&self, exec: &str) {
        self.shared.execs.lock().remove(exec);
    }

    async fn send(&self, request: &Request, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.shared.socket.writable().await?;
            match ready.try_io(|socket| wire::send(socket.get_ref().as_fd(), request, files)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// The shim's process, as the kernel tells it.
    pub fn pid(&self) -> Option<i32> {
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
        let received = match ready.try_io(|socket| wire::receive::<Answer>(socket.get_ref().as_fd())) {
            Ok(received) => received,
            Err(_would_block) => continue,
        };
        match received {
            Ok(Some((Answer::Reply { id, reply }, files))) => {
                if let Some(sender) = shared.waiting.lock().remove(&id) {
                    let _ = sender.send((reply, files));
                }
            }
            Ok(Some((Answer::Event(Event::ExecExit { exec, code }), _))) => {
                if let Some(sender) = shared.execs.lock().remove(&exec) {
                    let _ = sender.send(code);
                }
            }
            Ok(Some((Answer::Event(event), _))) => {
                let _ = events.send(event);
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "a shim's message was not understood");
                break;
            }
        }
    }
    // Dropping the senders tells all who wait.
    shared.waiting.lock().clear();
    shared.execs.lock().clear();
}
