//! SCTP packets by hand.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, sendto};

/// Sends the first packet of an association.
pub fn send_init(socket: &OwnedFd, to: &str, port: u16) {
    let mut packet = Vec::new();
    packet.extend(40_000u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    // No verification tag in the first packet, and the checksum.
    packet.extend([0; 8]);
    // An INIT chunk of 20 bytes: tag, window, streams and the first number.
    packet.extend([1, 0, 0, 20]);
    packet.extend(7u32.to_be_bytes());
    packet.extend(65536u32.to_be_bytes());
    packet.extend([0, 1, 0, 1]);
    packet.extend(1u32.to_be_bytes());
    let checksum = crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    let to: Ipv4Addr = to.parse().expect("an address");
    sendto(socket, &packet, SendFlags::empty(), &SocketAddr::from((to, 0))).expect("sent");
}

/// The source and the destination port of a packet; None if none arrives in time.
pub fn receive(socket: &OwnedFd) -> Option<(IpAddr, u16)> {
    let mut buffer = [0; 512];
    let (_, length) = recv(socket, &mut buffer, RecvFlags::empty()).ok()?;
    let packet = &buffer[..length];
    let header = usize::from(packet[0] & 0xf) * 4;
    let source = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
    assert_eq!(packet[9], 132, "not SCTP");
    Some((source.into(), u16::from_be_bytes([packet[header + 2], packet[header + 3]])))
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    };
    !bytes.iter().fold(u32::MAX, step)
}
