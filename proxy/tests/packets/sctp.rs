//! SCTP packets by hand.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, sendto};

/// The ports and the address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub source: IpAddr,
    pub source_port: u16,
    pub port: u16,
}

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// The tag of the client, which packets to it carry.
const TAG: u32 = 7;
/// The client's port.
pub const CLIENT_PORT: u16 = 40_000;

/// Sends the first packet of an association.
pub fn send_init(socket: &OwnedFd, to: &str, port: u16) {
    // The first packet has no verification tag.
    send(socket, to.parse().expect("an address"), (CLIENT_PORT, port), 0, INIT, TAG);
}

/// Replies to the first packet of an association.
pub fn send_init_ack(socket: &OwnedFd, to: &Packet) {
    let IpAddr::V4(address) = to.source else { panic!("{to:?}") };
    send(socket, address, (to.port, to.source_port), TAG, INIT_ACK, 8);
}

fn send(socket: &OwnedFd, to: Ipv4Addr, (from, port): (u16, u16), verification: u32, kind: u8, tag: u32) {
    let mut packet = Vec::new();
    packet.extend(from.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(verification.to_be_bytes());
    // The checksum.
    packet.extend([0; 4]);
    // A chunk of 20 bytes: tag, window, streams and the first number.
    packet.extend([kind, 0, 0, 20]);
    packet.extend(tag.to_be_bytes());
    packet.extend(65536u32.to_be_bytes());
    packet.extend([0, 1, 0, 1]);
    packet.extend(1u32.to_be_bytes());
    let checksum = crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    sendto(socket, &packet, SendFlags::empty(), &SocketAddr::from((to, 0))).expect("sent");
}

/// The next packet; None if none arrives in time.
pub fn receive(socket: &OwnedFd) -> Option<Packet> {
    let mut buffer = [0; 512];
    let (_, length) = recv(socket, &mut buffer, RecvFlags::empty()).ok()?;
    let packet = &buffer[..length];
    let header = usize::from(packet[0] & 0xf) * 4;
    let source = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
    assert_eq!(packet[9], 132, "not SCTP");
    let port = |at: usize| u16::from_be_bytes([packet[header + at], packet[header + at + 1]]);
    Some(Packet { source: source.into(), source_port: port(0), port: port(2) })
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    };
    !bytes.iter().fold(u32::MAX, step)
}
