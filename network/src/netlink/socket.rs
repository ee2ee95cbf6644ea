//! A netlink socket: requests with their acknowledgements, and dumps.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto};

use super::message::{HEADER, Message, attribute, text};

pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const EXCL: u16 = 0x200;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const APPEND: u16 = 0x800;

const DUMP_INTERRUPTED: u16 = 0x10;
const ACK_CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const ERROR_TEXT: u16 = 1;
const RECEIVE_BYTES: usize = 64 * 1024;
/// Nothing else sends to the socket, so a reply that does not arrive within this time is lost.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an interrupted dump is repeated.
const DUMP_TRIES: usize = 16;

/// A request that failed.
#[derive(Debug)]
pub struct Error {
    what: String,
    cause: KernelError,
}

impl Error {
    /// An error of the attempt to do `what`.
    pub fn new(what: impl Into<String>, cause: impl Into<KernelError>) -> Error {
        Error { what: what.into(), cause: cause.into() }
    }

    /// The error number.
    pub fn errno(&self) -> Option<i32> {
        self.cause.error.raw_os_error()
    }

    /// Whether the error has this number.
    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno.raw_os_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause.reason {
            Some(reason) => write!(f, "{} ({reason})", self.what),
            None => write!(f, "{}", self.what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause.error)
    }
}

/// The errno, and the kernel's explanation if there is one.
#[derive(Debug)]
pub struct KernelError {
    error: io::Error,
    reason: Option<String>,
}

impl<E: Into<io::Error>> From<E> for KernelError {
    fn from(error: E) -> KernelError {
        KernelError { error: error.into(), reason: None }
    }
}

/// One message of a reply: its type, and what follows the header.
pub struct Reply {
    pub kind: u16,
    pub payload: Vec<u8>,
}

/// A netlink socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open(protocol: Option<Protocol>) -> Result<Socket, Error> {
        Socket::try_open(protocol).map_err(|errno| Error::new("open a netlink socket", errno))
    }

    fn try_open(protocol: Option<Protocol>) -> Result<Socket, Errno> {
        let kind = SocketType::RAW;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
        // The explanation of errors, without an echo of the request, and dumps that are limited to what was requested.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK, libc::NETLINK_GET_STRICT_CHK] {
            set_option(&fd, option);
        }
        Ok(Socket { fd, sequence: 0, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// The descriptor of the socket.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number by which the kernel addresses this socket.
    pub fn port(&self) -> Result<u32, Error> {
        let name = rustix::net::getsockname(&self.fd).map_err(|errno| Error::new("name a netlink socket", errno))?;
        let address = SocketAddrNetlink::try_from(name).map_err(|errno| Error::new("name a netlink socket", errno))?;
        Ok(address.pid())
    }

    /// Sends a request and waits for its acknowledgement.
    pub fn request(&mut self, what: impl Into<String>, mut message: Message) -> Result<(), Error> {
        message.add_flags(REQUEST | ACK);
        self.exchange(message).map(|_| ()).map_err(|cause| Error::new(what, cause))
    }

    /// Requests one object; None if it does not exist.
    pub fn get(&mut self, what: impl Into<String>, mut message: Message) -> Result<Option<Reply>, Error> {
        message.add_flags(REQUEST | ACK);
        match self.exchange(message) {
            Ok(replies) => Ok(replies.into_iter().next()),
            Err(cause) if is_absent(&cause) => Ok(None),
            Err(cause) => Err(Error::new(what, cause)),
        }
    }

    /// Requests all objects of a type. Repeats the dump if a change interrupted it.
    pub fn dump(&mut self, what: &str, message: impl Fn() -> Message) -> Result<Vec<Reply>, Error> {
        for _ in 0..DUMP_TRIES {
            let mut message = message();
            message.add_flags(REQUEST | DUMP);
            match self.exchange(message) {
                Err(cause) if cause.error.kind() == io::ErrorKind::Interrupted => continue,
                answer => return answer.map_err(|cause| Error::new(what, cause)),
            }
        }
        Err(Error::new(what, io::Error::from(io::ErrorKind::Interrupted)))
    }

    /// Sends several messages in one call and returns their errors, each with the message's index. The kernel has put all
    /// replies into the socket when `send` returns.
    pub fn batch(&mut self, messages: Vec<Message>) -> Result<Vec<(usize, KernelError)>, KernelError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for message in messages {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(message.finish(self.sequence).ok_or_else(too_long)?);
        }
        // The default buffer holds some 200 KiB, and a transaction cannot be split.
        if bytes.len() > SEND_BYTES {
            set_socket_send_buffer_size_force(&self.fd, bytes.len() * 2)?;
        }
        sendto(&self.fd, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut errors = Vec::new();
        loop {
            let length = match recv(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => length,
                Err(Errno::AGAIN) => return Ok(errors),
                Err(errno) => return Err(errno.into()),
            };
            for part in parts(&self.buffer[..length]) {
                if let Some(Err(error)) = (part.kind == TYPE_ERROR).then(|| outcome(&part)) {
                    errors.push((part.sequence.wrapping_sub(first) as usize, error));
                }
            }
        }
    }

    fn exchange(&mut self, message: Message) -> Result<Vec<Reply>, KernelError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = message.finish(self.sequence).ok_or_else(too_long)?;
        sendto(&self.fd, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let (mut replies, mut interrupted) = (Vec::new(), false);
        loop {
            let (_, length) = recv(&self.fd, &mut self.buffer[..], RecvFlags::empty())?;
            for part in parts(&self.buffer[..length]).filter(|part| part.sequence == self.sequence) {
                interrupted |= part.flags & DUMP_INTERRUPTED != 0;
                match part.kind {
                    TYPE_ERROR | TYPE_DONE if interrupted => {
                        return Err(io::Error::from(io::ErrorKind::Interrupted).into());
                    }
                    TYPE_ERROR | TYPE_DONE => return outcome(&part).map(|()| replies),
                    kind => replies.push(Reply { kind, payload: part.payload.to_vec() }),
                }
            }
        }
    }
}

const SEND_BYTES: usize = 64 * 1024;

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the netlink message is too long")
}

/// Whether the requested object does not exist.
fn is_absent(cause: &KernelError) -> bool {
    let absent = [Errno::NODEV, Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    cause.error.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

/// Ignores errors, since old kernels lack some of the options.
fn set_option(fd: &OwnedFd, option: libc::c_int) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the value points to an int whose size is given.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_NETLINK, option, (&raw const on).cast(), size_of_val(&on) as u32);
    }
}

pub(crate) struct Part<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) payload: &'a [u8],
}

pub(crate) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER)?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = word(0) as usize;
        let part = Part { kind: half(4), flags: half(6), sequence: word(8), payload: bytes.get(HEADER..length)? };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    })
}

/// Decodes an acknowledgement, an error, or the end of a dump.
fn outcome(part: &Part<'_>) -> Result<(), KernelError> {
    match part.payload.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes) {
        0.. => Ok(()),
        code => Err(KernelError { error: io::Error::from_raw_os_error(-code), reason: reason(part) }),
    }
}

/// The kernel's explanation of an error.
fn reason(part: &Part<'_>) -> Option<String> {
    if part.flags & ACK_TLVS == 0 {
        return None;
    }
    let echoed = part.payload.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes) as usize;
    let start = 4 + if part.flags & ACK_CAPPED != 0 { HEADER } else { echoed.next_multiple_of(4) };
    attribute(part.payload.get(start..)?, ERROR_TEXT).map(text)
}
