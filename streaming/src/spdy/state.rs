//! The state of a session: its streams, pending output and received data. Frames go in, frames come out; no I/O and
//! no time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use bytes::Bytes;

use super::entry::{Entry, Inbound};
use super::frame::{Error, Frame, SETTING_INITIAL_WINDOW, status};
use super::headers::Headers;

const DEFAULT_WINDOW: i64 = 64 * 1024;
const MAX_WINDOW: i64 = 0x7fff_ffff;
/// The maximum size of data frames, so that streams take turns.
const MAX_PIECE: usize = 32 * 1024;
/// The maximum number of pending replies; above it nothing is read.
const MAX_REPLIES: usize = 256;

/// The end of a connection: it decides the numbers of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

/// The limits of a session.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of streams; others are refused.
    pub streams: usize,
    /// The buffer size of a stream in each direction.
    pub buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { streams: 1024, buffer: 256 * 1024 }
    }
}

/// Checks the headers of a stream opened by the other end; a rejected one is reset.
pub type Check = fn(&Headers) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub(super) struct State {
    role: Role,
    pub limits: Limits,
    check: Check,
    pub streams: BTreeMap<u32, Entry>,
    next_id: u32,
    last_seen: u32,
    replies: VecDeque<Frame>,
    /// Streams that may have data to send, and the last one served.
    ready: BTreeSet<u32>,
    turn: u32,
    pub arrived: VecDeque<(u32, Headers)>,
    initial_window: i64,
    session_window: i64,
    session_consumed: u32,
    /// The other end uses flow control, for streams and for the session.
    paced: bool,
    session_paced: bool,
    going_away: bool,
    /// The session ends once everything is sent.
    pub closing: bool,
    goaway_sent: bool,
    pub ended: Option<String>,
}

impl State {
    pub(super) fn new(role: Role, limits: Limits, check: Check) -> Self {
        let window = limits.buffer as u32;
        // Sent first, so that an end with flow control respects our window and grants its own.
        let replies = VecDeque::from([
            Frame::Settings(vec![(SETTING_INITIAL_WINDOW, window)]),
            Frame::WindowUpdate { id: 0, delta: SESSION_WINDOW - DEFAULT_WINDOW as u32 },
        ]);
        Self {
            role,
            limits,
            check,
            streams: BTreeMap::new(),
            next_id: if role == Role::Client { 1 } else { 2 },
            last_seen: 0,
            replies,
            ready: BTreeSet::new(),
            turn: 0,
            arrived: VecDeque::new(),
            initial_window: DEFAULT_WINDOW,
            session_window: DEFAULT_WINDOW,
            session_consumed: 0,
            paced: false,
            session_paced: false,
            going_away: false,
            closing: false,
            goaway_sent: false,
            ended: None,
        }
    }

    /// Opens a stream; None if the limit is reached.
    pub(super) fn open(&mut self, headers: Headers) -> Option<u32> {
        if self.ended.is_some() || self.closing || self.going_away || self.streams.len() >= self.limits.streams {
            return None;
        }
        let id = self.next_id;
        self.next_id = id.checked_add(2).filter(|id| *id <= 0x7fff_ffff)?;
        self.streams.insert(id, Entry::new(self.initial_window));
        self.replies.push_back(Frame::SynStream { id, headers, fin: false, unidirectional: false });
        Some(id)
    }

    /// Whether a frame can be processed: for data, whether the buffer of its stream has space.
    pub(crate) fn has_room(&self, frame: &Frame) -> bool {
        if self.ended.is_some() {
            return true;
        }
        match frame {
            Frame::Data { id, .. } => {
                self.streams.get(id).is_none_or(|entry| entry.received.len() < self.limits.buffer)
            }
            _ => self.replies.len() < MAX_REPLIES,
        }
    }

    pub(super) fn receive(&mut self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::SynStream { id, headers, fin, unidirectional } => self.opened(id, headers, fin, unidirectional),
            Frame::SynReply { id, fin, .. } => self.replied(id, fin),
            Frame::RstStream { id, .. } => self.was_reset(id),
            Frame::Settings(settings) => return self.settings(&settings),
            Frame::Ping(id) => self.ping(id),
            Frame::GoAway { .. } => self.going_away = true,
            Frame::Headers { id, fin, .. } => {
                if fin {
                    self.finished(id);
                }
            }
            Frame::WindowUpdate { id, delta } => return self.granted(id, i64::from(delta)),
            Frame::Data { id, data, fin } => self.data(id, &data, fin),
        }
        Ok(())
    }

    fn opened(&mut self, id: u32, headers: Headers, fin: bool, unidirectional: bool) {
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        let refusal = if !theirs {
            Some(status::PROTOCOL_ERROR)
        } else if self.streams.contains_key(&id) {
            Some(status::STREAM_IN_USE)
        } else if id <= self.last_seen {
            Some(status::PROTOCOL_ERROR)
        } else if self.streams.len() >= self.limits.streams || self.closing {
            Some(status::REFUSED_STREAM)
        } else {
            (self.check)(&headers).err().map(|reason| {
                tracing::debug!(%reason, "refused stream");
                status::CANCEL
            })
        };
        if let Some(status) = refusal {
            self.replies.push_back(Frame::RstStream { id, status });
            return;
        }
        self.last_seen = id;
        let mut entry = Entry::new(self.initial_window);
        entry.replied = true;
        entry.finish = unidirectional;
        entry.finish_sent = unidirectional;
        self.streams.insert(id, entry);
        if fin {
            self.finished(id);
        }
        self.replies.push_back(Frame::SynReply { id, headers: Headers::new(), fin: false });
        self.arrived.push_back((id, headers));
    }

    fn replied(&mut self, id: u32, fin: bool) {
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.replied = true;
            entry.wake();
        }
        if fin {
            self.finished(id);
        }
    }

    fn was_reset(&mut self, id: u32) {
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.reset = true;
            entry.waiting.clear();
            if entry.inbound == Inbound::Open {
                entry.inbound = Inbound::Gone;
            }
            entry.wake();
        }
        self.forget(id);
    }

    fn settings(&mut self, settings: &[(u32, u32)]) -> Result<(), Error> {
        let Some((_, value)) = settings.iter().find(|(id, _)| *id == SETTING_INITIAL_WINDOW) else { return Ok(()) };
        let value = i64::from(*value);
        if value > MAX_WINDOW {
            return Err(Error::Window(0));
        }
        self.paced = true;
        let change = value - self.initial_window;
        self.initial_window = value;
        self.streams.values_mut().for_each(|entry| entry.window += change);
        self.all_ready();
        Ok(())
    }

    fn granted(&mut self, id: u32, delta: i64) -> Result<(), Error> {
        self.paced = true;
        if id == 0 {
            self.session_paced = true;
            self.session_window += delta;
            self.all_ready();
            return if self.session_window > MAX_WINDOW { Err(Error::Window(0)) } else { Ok(()) };
        }
        let Some(entry) = self.streams.get_mut(&id) else { return Ok(()) };
        entry.window += delta;
        self.ready.insert(id);
        if entry.window > MAX_WINDOW { Err(Error::Window(id)) } else { Ok(()) }
    }

    fn all_ready(&mut self) {
        self.ready.extend(self.streams.keys().copied());
    }

    /// Pings with the other end's parity are requests; ours are replies.
    fn ping(&mut self, id: u32) {
        if (id % 2 == 1) == (self.role == Role::Server) {
            self.replies.push_back(Frame::Ping(id));
        }
    }

    fn data(&mut self, id: u32, data: &Bytes, fin: bool) {
        self.session_consumed = self.session_consumed.saturating_add(data.len() as u32);
        let Some(entry) = self.streams.get_mut(&id) else { return self.unknown(id) };
        match entry.inbound {
            Inbound::Open => {
                entry.received.extend_from_slice(data);
                entry.reader.take().into_iter().for_each(Waker::wake);
            }
            // Not read by anyone, but the other end may wait for its window.
            Inbound::Gone | Inbound::Finished => self.consume(id, data.len()),
        }
        if fin {
            self.finished(id);
        }
    }

    /// Data that crossed our reset is ignored; data for a stream that never existed gets a reset.
    fn unknown(&mut self, id: u32) {
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        let known = if theirs { id <= self.last_seen } else { id < self.next_id };
        if !known {
            self.replies.push_back(Frame::RstStream { id, status: status::INVALID_STREAM });
        }
    }

    fn finished(&mut self, id: u32) {
        if let Some(entry) = self.streams.get_mut(&id) {
            if entry.inbound == Inbound::Open {
                entry.inbound = Inbound::Finished;
            }
            entry.wake();
        }
        self.forget(id);
    }

    /// The owner has read so many bytes.
    pub(super) fn consume(&mut self, id: u32, count: usize) {
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.consumed = entry.consumed.saturating_add(count as u32);
            if self.paced && entry.consumed >= (self.limits.buffer / 2) as u32 {
                self.ready.insert(id);
            }
        }
    }

    /// The owner has written, or has finished writing.
    pub(super) fn written(&mut self, id: u32) {
        self.ready.insert(id);
    }

    pub(super) fn reset(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if !entry.reset {
            entry.reset = true;
            entry.inbound = Inbound::Gone;
            entry.received.clear();
            entry.waiting.clear();
            self.replies.push_back(Frame::RstStream { id, status: status::CANCEL });
        }
        self.forget(id);
    }

    /// The owner drops the stream: written data is still sent, received data is discarded.
    pub(super) fn release(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.held = false;
        entry.finish = true;
        let unread = entry.received.len();
        entry.received.clear();
        if entry.inbound == Inbound::Open {
            entry.inbound = Inbound::Gone;
        }
        self.ready.insert(id);
        self.consume(id, unread);
        self.forget(id);
    }

    fn forget(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(Entry::over) {
            self.streams.remove(&id);
            self.ready.remove(&id);
        }
    }

    /// Whether there may be a frame to send.
    pub(crate) fn may_send(&self) -> bool {
        let grant = self.session_paced && self.session_consumed >= SESSION_WINDOW / 2;
        grant || !self.replies.is_empty() || !self.ready.is_empty()
    }

    /// The next frame to send: replies first, then the streams in turn.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.replies.pop_front() {
            return Some(frame);
        }
        if self.session_paced && self.session_consumed >= SESSION_WINDOW / 2 {
            return Some(Frame::WindowUpdate { id: 0, delta: std::mem::take(&mut self.session_consumed) });
        }
        while let Some(id) = self.next_ready() {
            self.turn = id;
            if let Some(frame) = self.stream_frame(id) {
                self.forget(id);
                return Some(frame);
            }
            self.ready.remove(&id);
            if self.is_deserted(id) {
                self.reset(id);
                return self.replies.pop_front();
            }
        }
        self.goaway()
    }

    /// Everything is sent and the stream is not read: the other end need not continue.
    fn is_deserted(&self, id: u32) -> bool {
        let deserted = |entry: &Entry| !entry.held && entry.finish_sent && entry.inbound == Inbound::Gone;
        self.streams.get(&id).is_some_and(deserted)
    }

    fn next_ready(&self) -> Option<u32> {
        self.ready.range(self.turn + 1..).next().or_else(|| self.ready.first()).copied()
    }

    fn stream_frame(&mut self, id: u32) -> Option<Frame> {
        let half = (self.limits.buffer / 2) as u32;
        let (paced, session_paced, session_window) = (self.paced, self.session_paced, self.session_window);
        let entry = self.streams.get_mut(&id)?;
        if paced && entry.consumed >= half && entry.inbound != Inbound::Finished {
            return Some(Frame::WindowUpdate { id, delta: std::mem::take(&mut entry.consumed) });
        }
        if entry.reset || entry.finish_sent {
            return None;
        }
        let mut piece = entry.waiting.len().min(MAX_PIECE) as i64;
        if paced {
            piece = piece.min(entry.window);
        }
        if session_paced {
            piece = piece.min(session_window);
        }
        let data = entry.waiting.split_to(piece.max(0) as usize).freeze();
        let fin = entry.finish && entry.waiting.is_empty();
        if data.is_empty() && !fin {
            return None;
        }
        entry.finish_sent = fin;
        entry.window -= data.len() as i64;
        self.session_window -= data.len() as i64;
        entry.writer.take().into_iter().for_each(Waker::wake);
        Some(Frame::Data { id, data, fin })
    }

    fn goaway(&mut self) -> Option<Frame> {
        if !self.closing || self.goaway_sent || self.has_unsent() {
            return None;
        }
        self.goaway_sent = true;
        Some(Frame::GoAway { last: self.last_seen, status: 0 })
    }

    /// Whether a finished stream still has unsent data.
    pub(crate) fn has_unsent(&self) -> bool {
        self.streams.values().any(|entry| !entry.reset && entry.finish && !entry.finish_sent)
    }

    pub(crate) fn has_sent_goaway(&self) -> bool {
        self.goaway_sent && self.replies.is_empty()
    }

    /// Ends the session with a reason.
    pub(super) fn end(&mut self, reason: &str) {
        if self.ended.is_none() {
            self.ended = Some(reason.to_string());
        }
        for entry in self.streams.values_mut() {
            entry.waiting.clear();
            if entry.inbound == Inbound::Open {
                entry.inbound = Inbound::Gone;
            }
            entry.reset |= entry.inbound == Inbound::Gone;
            entry.finish_sent = true;
            entry.wake();
        }
        self.replies.clear();
    }
}

/// The flow control window of the session.
const SESSION_WINDOW: u32 = 16 * 1024 * 1024;

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
