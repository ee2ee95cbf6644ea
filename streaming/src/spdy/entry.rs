//! A stream from the session's point of view.

use std::task::Waker;

use bytes::BytesMut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    Open,
    Finished,
    /// Reset by either end, or no longer read.
    Gone,
}

pub(super) struct Entry {
    pub received: BytesMut,
    pub inbound: Inbound,
    /// Read by the owner but not yet granted to the other end again.
    pub consumed: u32,
    pub waiting: BytesMut,
    /// The owner has finished writing.
    pub finish: bool,
    pub finish_sent: bool,
    /// The send window; negative if data was sent before the other end started flow control.
    pub window: i64,
    pub replied: bool,
    pub reset: bool,
    /// The stream has an owner.
    pub held: bool,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

impl Entry {
    pub(super) fn new(window: i64) -> Self {
        Self {
            received: BytesMut::new(),
            inbound: Inbound::Open,
            consumed: 0,
            waiting: BytesMut::new(),
            finish: false,
            finish_sent: false,
            window,
            replied: false,
            reset: false,
            held: true,
            reader: None,
            writer: None,
        }
    }

    pub(super) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    /// The stream is complete.
    pub(super) fn over(&self) -> bool {
        !self.held && (self.reset || (self.finish_sent && self.inbound == Inbound::Finished))
    }
}
