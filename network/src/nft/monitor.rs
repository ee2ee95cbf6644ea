//! Notices of changes that other sockets make to a table.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv};

use super::{Family, Nft, SUBSYSTEM, kind};
use crate::netlink::Error;
use crate::netlink::message::{attribute, text};
use crate::netlink::socket::parts;

/// The multicast group of changes of rules.
const GROUP: u32 = 7;
/// A whole ruleset that another process loads.
const RECEIVE_BYTES: usize = 4 << 20;
const BUFFER_BYTES: usize = 64 * 1024;
/// The header before the attributes of a message.
const HEADER: usize = 4;
/// The attribute that names the table, in messages of all types.
const TABLE: u16 = 1;

/// An event of the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEvent {
    /// Another socket has changed the table, or notices were lost.
    Changed,
    /// Nothing has happened to the table.
    Unchanged,
}

/// A socket that receives the changes of all other sockets in its namespace.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Opens a monitor in the namespace of the calling thread, which ignores what `own` changes.
    pub fn open(own: &Nft) -> Result<Monitor, Error> {
        let port = own.port()?;
        Monitor::try_open(port).map_err(|error| Error::new("monitor nftables", error))
    }

    fn try_open(own: u32) -> io::Result<Monitor> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        set_socket_recv_buffer_size_force(&fd, RECEIVE_BYTES)?;
        ignore_port(&fd, own)?;
        bind(&fd, &SocketAddrNetlink::new(0, 1 << (GROUP - 1)))?;
        Ok(Monitor { fd, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Reads all pending notices about a table of any family, without waiting.
    pub fn read(&mut self, table: &str) -> io::Result<TableEvent> {
        self.read_matching(table, None)
    }

    /// Reads all pending notices about a table of one family, without waiting.
    pub fn read_family(&mut self, family: Family, table: &str) -> io::Result<TableEvent> {
        self.read_matching(table, Some(family))
    }

    fn read_matching(&mut self, table: &str, family: Option<Family>) -> io::Result<TableEvent> {
        let mut notice = TableEvent::Unchanged;
        loop {
            match recv(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) if concerns(&self.buffer[..length], table, family) => notice = TableEvent::Changed,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => notice = TableEvent::Changed,
                Err(Errno::AGAIN) => return Ok(notice),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn concerns(bytes: &[u8], table: &str, family: Option<Family>) -> bool {
    let of_family = |payload: &[u8]| family.is_none_or(|family| payload.first() == Some(&(family as u8)));
    let of_table = |payload: &[u8]| {
        let name = payload.get(HEADER..).and_then(|attributes| attribute(attributes, TABLE));
        name.is_some_and(|name| text(name) == table)
    };
    let is_change = |kind: u16| kind >> 8 == SUBSYSTEM && kind & 0xff != kind::NEW_GENERATION;
    parts(bytes).any(|part| is_change(part.kind) && of_family(part.payload) && of_table(part.payload))
}

/// Attaches a filter that drops datagrams which this port caused: the notices of a large transaction of our own would
/// overflow the buffer. All messages of a datagram have the same source.
fn ignore_port(fd: &OwnedFd, port: u32) -> io::Result<()> {
    /// The offset of the source's port in the header of a message.
    const PORT_OFFSET: u32 = 12;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // The filter loads in network byte order, and the header is in host byte order.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, PORT_OFFSET),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port.to_be()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the descriptor is open, and the kernel copies the program, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as u32,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
