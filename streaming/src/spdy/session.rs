//! A session: a reading task, a writing task, and the shared state.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use stdx::sync::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::frame::{Decoder, Encoder, Frame};
use super::headers::Headers;
use super::state::{Check, Limits, Role, State};
use super::stream::Stream;

const READ: usize = 32 * 1024;
/// The approximate size of a write.
const GATHER: usize = 64 * 1024;

pub(super) struct Shared {
    state: Mutex<State>,
    /// There may be something to send.
    pub outgoing: Notify,
    /// A buffer may have space again.
    pub room: Notify,
    arrivals: Notify,
    /// Something was sent.
    sent: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn end(&self, reason: &str) {
        self.lock().end(reason);
        self.outgoing.notify_one();
        self.room.notify_one();
        self.arrivals.notify_one();
        self.sent.notify_one();
    }
}

/// A connection with streams. Dropping it aborts them all; [`Session::close`] ends it gracefully.
pub struct Session {
    shared: Arc<Shared>,
    reading: JoinHandle<()>,
    writing: JoinHandle<()>,
    over: watch::Receiver<bool>,
}

impl Session {
    /// A session over a connection; `check` decides about streams that the other end opens.
    pub fn new<IO>(io: IO, role: Role, limits: Limits, check: Check) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(role, limits, check)),
            outgoing: Notify::new(),
            room: Notify::new(),
            arrivals: Notify::new(),
            sent: Notify::new(),
        });
        let (reader, writer) = tokio::io::split(io);
        let (ended, over) = watch::channel(false);
        let reading = tokio::spawn(read(shared.clone(), reader, ended));
        let writing = tokio::spawn(write(shared.clone(), writer, over.clone()));
        Self { shared, reading, writing, over }
    }

    /// The next stream opened by the other end; None when the session is over.
    pub async fn accept(&self) -> Option<Stream> {
        loop {
            {
                let mut state = self.shared.lock();
                if let Some((id, headers)) = state.arrived.pop_front() {
                    drop(state);
                    return Some(Stream { shared: self.shared.clone(), id, headers });
                }
                if state.ended.is_some() {
                    return None;
                }
            }
            self.shared.arrivals.notified().await;
        }
    }

    /// Opens a stream and waits until the other end has accepted it.
    pub async fn open(&self, headers: Headers) -> Result<Stream> {
        let id = self.shared.lock().open(headers.clone());
        let id = id.ok_or_else(|| Error::new(ErrorKind::NotConnected, "the session is closed for new streams"))?;
        let stream = Stream { shared: self.shared.clone(), id, headers };
        self.shared.outgoing.notify_one();
        stream.taken().await?;
        Ok(stream)
    }

    /// Waits until all data of dropped streams is sent.
    pub async fn flushed(&self) {
        while self.shared.lock().has_unsent() {
            self.shared.sent.notified().await;
        }
    }

    /// Resolves when the connection has ended.
    pub fn over(&self) -> watch::Receiver<bool> {
        self.over.clone()
    }

    /// Sends pending data and GOAWAY, and reads until the other end closes: bytes arriving at a closed socket would
    /// make the kernel discard what we have sent. Open streams are aborted.
    pub async fn close(mut self, patience: Duration) {
        self.shared.lock().closing = true;
        self.shared.outgoing.notify_one();
        let both = async {
            let _ = (&mut self.writing).await;
            let _ = (&mut self.reading).await;
        };
        let _ = tokio::time::timeout(patience, both).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
        self.shared.end("the session was closed");
    }
}

/// How long a connection that cannot be written is still read.
const LAST_WORDS: Duration = Duration::from_secs(1);

async fn read<IO: AsyncRead>(shared: Arc<Shared>, mut io: ReadHalf<IO>, over: watch::Sender<bool>) {
    let reason = match receive(&shared, &mut io).await {
        Ok(()) => "the connection was closed".to_string(),
        Err(error) => error.to_string(),
    };
    tracing::debug!(reason, "SPDY session ended");
    shared.end(&reason);
    over.send_replace(true);
}

async fn receive<IO: AsyncRead>(shared: &Shared, io: &mut ReadHalf<IO>) -> Result<()> {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::with_capacity(READ);
    loop {
        while let Some(frame) = decoder.decode(&mut buffer).map_err(invalid)? {
            room(shared, &frame).await;
            let mut state = shared.lock();
            state.receive(frame).map_err(invalid)?;
            if state.may_send() {
                shared.outgoing.notify_one();
            }
            if !state.arrived.is_empty() {
                shared.arrivals.notify_one();
            }
            // Data of a reset stream need not be sent any more.
            shared.sent.notify_one();
        }
        buffer.reserve(READ);
        if io.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

async fn room(shared: &Shared, frame: &Frame) {
    while !shared.lock().has_room(frame) {
        shared.room.notified().await;
    }
}

fn invalid(error: super::Error) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

async fn write<IO: AsyncWrite>(shared: Arc<Shared>, mut io: WriteHalf<IO>, mut over: watch::Receiver<bool>) {
    if let Err(error) = send(&shared, &mut io).await {
        // The other end disconnected, and its last data may still be unread.
        let _ = tokio::time::timeout(LAST_WORDS, over.wait_for(|over| *over)).await;
        shared.end(&error.to_string());
    }
    let _ = io.shutdown().await;
}

async fn send<IO: AsyncWrite>(shared: &Shared, io: &mut WriteHalf<IO>) -> Result<()> {
    let mut encoder = Encoder::default();
    let mut buffer = BytesMut::with_capacity(GATHER);
    loop {
        let done = gather(shared, &mut encoder, &mut buffer).map_err(invalid)?;
        if !buffer.is_empty() {
            shared.room.notify_one();
            shared.sent.notify_one();
            io.write_all(&buffer).await?;
            buffer.clear();
            continue;
        }
        if done {
            return Ok(());
        }
        io.flush().await?;
        shared.outgoing.notified().await;
    }
}

/// Fills the buffer with frames; returns true if there are no more.
fn gather(shared: &Shared, encoder: &mut Encoder, buffer: &mut BytesMut) -> std::result::Result<bool, super::Error> {
    let mut state = shared.lock();
    while buffer.len() < GATHER {
        let Some(frame) = state.next_frame() else { break };
        encoder.encode(&frame, buffer)?;
    }
    Ok(state.ended.is_some() || state.has_sent_goaway())
}
