//! A connection to a D-Bus: authentication, calls and replies, and signals. The connection has no background task.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::wire::{self, HEAD, Kind, MOST, Malformed, Message, Value};

/// The system bus, unless the environment names another.
pub(crate) const SYSTEM: &str = "unix:path=/run/dbus/system_bus_socket";
const ANSWER: Duration = Duration::from_secs(10);
/// The limit of received files that wait for a reader.
const MOST_FILES: usize = 16;
/// The number of signals that are queued during a call.
const MOST_HEARD: usize = 64;
const MOST_LINE: usize = 512;

#[derive(Debug)]
pub(crate) enum Error {
    Io(std::io::Error),
    Malformed(Malformed),
    /// The name of the error, and its message.
    Answered(String, String),
    Other(&'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::Malformed(Malformed(why)) => write!(f, "a message of the bus cannot be read: {why}"),
            Error::Answered(name, text) => write!(f, "{name}: {text}"),
            Error::Other(why) => f.write_str(why),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Io(error)
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Error {
        Error::Malformed(error)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A message, and the open files that came with it.
pub(crate) type MessageWithFds = (Message, Vec<OwnedFd>);

pub(crate) struct Bus {
    stream: UnixStream,
    serial: u32,
    bytes: Vec<u8>,
    files: VecDeque<OwnedFd>,
    queued: VecDeque<MessageWithFds>,
}

impl Bus {
    /// Connects to the first working address, and registers.
    pub(crate) async fn connect(address: &str) -> Result<Bus> {
        let path = socket_path(address).ok_or(Error::Other("the address of the bus names no socket"))?;
        let stream = UnixStream::connect(path).await?;
        let (bytes, files, queued) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let mut bus = Bus { stream, serial: 0, bytes, files, queued };
        in_time(bus.authenticate()).await?;
        let hello = Message { member: "Hello".into(), ..bus_call() };
        bus.call(hello).await?;
        Ok(bus)
    }

    /// The kernel passes our credentials; the bus only has to be requested to read them.
    async fn authenticate(&mut self) -> Result<()> {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let uid = stdx::hex::encode(uid.as_bytes());
        self.write(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes(), &[]).await?;
        self.line("OK ").await?;
        self.write(b"NEGOTIATE_UNIX_FD\r\n", &[]).await?;
        self.line("AGREE_UNIX_FD").await?;
        self.write(b"BEGIN\r\n", &[]).await
    }

    async fn line(&mut self, begins: &str) -> Result<()> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\r\n") {
                let is_right = self.bytes[..end].starts_with(begins.as_bytes());
                self.bytes.drain(..end + 2);
                return if is_right { Ok(()) } else { Err(Error::Other("the bus does not let us in")) };
            }
            if self.bytes.len() > MOST_LINE {
                return Err(Error::Other("the bus says too much"));
            }
            self.read().await?;
        }
    }

    /// Calls a method, and waits for the reply.
    pub(crate) async fn call(&mut self, call: Message) -> Result<MessageWithFds> {
        let serial = self.send(call, &[]).await?;
        in_time(async {
            loop {
                let (message, files) = self.receive().await?;
                let is_answer = message.reply_to == Some(serial) && message.kind != Kind::Signal;
                match message.kind {
                    Kind::Return if is_answer => return Ok((message, files)),
                    Kind::Error if is_answer => return Err(reply_error(message)),
                    Kind::Signal | Kind::Call => self.queue((message, files)),
                    _ => {}
                }
            }
        })
        .await
    }

    /// The next message that is no reply.
    pub(crate) async fn next(&mut self) -> Result<MessageWithFds> {
        match self.queued.pop_front() {
            Some(queued) => Ok(queued),
            None => self.receive().await,
        }
    }

    fn queue(&mut self, queued: MessageWithFds) {
        if self.queued.len() < MOST_HEARD {
            self.queued.push_back(queued);
        }
    }

    /// Sends a message. Returns its serial number.
    pub(crate) async fn send(&mut self, mut message: Message, files: &[OwnedFd]) -> Result<u32> {
        self.serial = self.serial.wrapping_add(1).max(1);
        message.serial = self.serial;
        self.write(&wire::encode(&message), files).await?;
        Ok(self.serial)
    }

    async fn receive(&mut self) -> Result<MessageWithFds> {
        loop {
            if self.bytes.len() >= HEAD {
                let length = wire::length(&self.bytes[..HEAD])?;
                if self.bytes.len() >= length {
                    let message = wire::decode(&self.bytes[..length])?;
                    self.bytes.drain(..length);
                    let files = self.take_files(&message)?;
                    return Ok((message, files));
                }
            }
            self.read().await?;
        }
    }

    fn take_files(&mut self, message: &Message) -> Result<Vec<OwnedFd>> {
        let count = usize::try_from(message.handles).unwrap_or(usize::MAX);
        if count > self.files.len() {
            return Err(Error::Other("files of a message did not come with it"));
        }
        Ok(self.files.drain(..count).collect())
    }

    async fn read(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        let stream = &self.stream;
        let (count, files) = stream.async_io(Interest::READABLE, || receive(stream, &mut bytes)).await?;
        if count == 0 {
            return Err(Error::Other("the bus has closed the connection"));
        }
        self.bytes.extend(&bytes[..count]);
        self.files.extend(files);
        match self.bytes.len() > MOST + bytes.len() || self.files.len() > MOST_FILES {
            true => Err(Error::Other("the bus says too much")),
            false => Ok(()),
        }
    }

    async fn write(&mut self, mut bytes: &[u8], mut files: &[OwnedFd]) -> Result<()> {
        while !bytes.is_empty() {
            let stream = &self.stream;
            let count = stream.async_io(Interest::WRITABLE, || send(stream, bytes, files)).await?;
            bytes = &bytes[count.min(bytes.len())..];
            files = &[];
        }
        Ok(())
    }
}

fn receive(stream: &UnixStream, bytes: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Ok((received.bytes, files.collect()))
}

fn send(stream: &UnixStream, bytes: &[u8], files: &[OwnedFd]) -> std::io::Result<usize> {
    let borrowed: Vec<_> = files.iter().map(std::os::fd::AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(std::io::Error::other("too many files for one message"));
    }
    Ok(rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// A call to the bus itself.
pub(crate) fn bus_call() -> Message {
    Message {
        destination: "org.freedesktop.DBus".into(),
        path: "/org/freedesktop/DBus".into(),
        interface: "org.freedesktop.DBus".into(),
        ..Message::default()
    }
}

fn reply_error(message: Message) -> Error {
    let text = match message.body.into_iter().next() {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    };
    Error::Answered(message.error, text)
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER, work).await.unwrap_or(Err(Error::Other("no answer in time")))
}

/// The socket of an address like `unix:path=/run/bus,guid=…;tcp:…`.
fn socket_path(address: &str) -> Option<PathBuf> {
    let unix = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    let mut keys = unix.flat_map(|keys| keys.split(','));
    keys.find_map(|key| key.strip_prefix("path=")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_bus_addresses() {
        let cases = [
            (SYSTEM, Some("/run/dbus/system_bus_socket")),
            ("tcp:host=x;unix:guid=1,path=/a b", Some("/a b")),
            ("unix:abstract=x", None),
            ("", None),
        ];
        for (address, expected) in cases {
            assert_eq!(socket_path(address), expected.map(PathBuf::from), "{address}");
        }
    }
}
