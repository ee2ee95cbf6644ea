//! Messages between the runtime, the zygote and the shims: one JSON document per packet, with file descriptors.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The limit of a message, below the kernel's limit of a packet.
pub(crate) const MAX_MESSAGE_BYTES: usize = 160 << 10;
/// The standard streams, and one more.
const MAX_FILES: usize = 4;

pub(crate) fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message to the shim is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many files in one message"));
    }
    sendmsg(socket, &[io::IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the next message; None if the peer has closed the socket.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut peek = [0u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = rustix::net::recv(&socket, &mut peek, flags)?;
    if length == 0 {
        return Ok(None);
    }
    let mut text = vec![0u8; length.min(MAX_MESSAGE_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [io::IoSliceMut::new(&mut text)];
    let got = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let files = ancillary
        .drain()
        .flat_map(|m| match m {
            RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    text.truncate(got.bytes);
    Ok(Some((serde_json::from_slice(&text)?, files)))
}
