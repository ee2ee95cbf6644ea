//! A pod that claims the addresses of another pod, of its gateway or of a router.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use network::netlink::{Mac, Rtnl};
use network::ns::Netns;

use crate::support::{on_host, ruleset};

const BROADCAST: Mac = [0xff; 6];
const ALL_NODES: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ETH_P_ALL: u16 = 0x0003;
const TIMEOUT_SECONDS: i64 = 20;

/// A socket for whole frames on a device of the calling thread's namespace.
fn frames_of(index: u32) -> io::Result<OwnedFd> {
    let protocol = i32::from(ETH_P_ALL.to_be());
    // SAFETY: the arguments are plain numbers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all bytes may be zero.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ETH_P_ALL.to_be();
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is one of this family, and has this length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    let timeout = Some(std::time::Duration::from_secs(TIMEOUT_SECONDS as u64));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, timeout)?;
    Ok(socket)
}

fn frame(to: Mac, from: Mac, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &ether_type.to_be_bytes(), payload].concat()
}

/// An ARP reply in which a sender announces its address.
fn arp(sender: Mac, address: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, 2][..], &sender, &address, &BROADCAST, &target].concat()
}

/// An ICMPv6 message to all nodes of the link. Its checksum does not matter to a receiver of frames.
fn icmp6(source: [u8; 16], kind: u8, target: [u8; 16], mac: Mac) -> Vec<u8> {
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let body = [&[kind, 0, 0, 0, 0x20, 0, 0, 0][..], &target, &[2, 1], &mac].concat();
    let header = [&[0x60, 0, 0, 0, 0, body.len() as u8, 58, 255][..], &source, &all_nodes].concat();
    [header, body].concat()
}

fn octets6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().expect("an address").octets()
}

/// The link-local address of a hardware address.
fn link_local([a, b, c, d, e, f]: Mac) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Sends a frame and then a marker, an announcement that the pod may send; whether the frame arrives before the marker.
fn arrives(sender: &OwnedFd, receiver: &OwnedFd, frame_to_send: &[u8], marker: &[u8]) -> bool {
    rustix::io::write(sender, frame_to_send).expect("it is sent");
    rustix::io::write(sender, marker).expect("it is sent");
    let (mut buffer, mut seen) = ([0; 2048], false);
    loop {
        let length = rustix::io::read(receiver, &mut buffer).expect("the marker does not arrive");
        // Short frames are padded.
        if buffer[..length].starts_with(marker) {
            return seen;
        }
        seen |= buffer[..length].starts_with(frame_to_send);
    }
}

fn mac_of(netns: &Netns) -> (u32, Mac) {
    let link = Rtnl::open_in(netns).expect("a socket").link("eth0").expect("a response").expect("a link");
    (link.index, link.mac)
}

#[test]
fn pods_cannot_claim_other_addresses() {
    on_host(|host| {
        let cni = host.builtin();
        let (one, two) = (host.pod("one"), host.pod("two"));
        cni.add(&one.attachment()).unwrap();
        cni.add(&two.attachment()).unwrap();
        let ((index, mac), (victim_index, victim)) = (mac_of(&one.space.netns), mac_of(&two.space.netns));
        let sender = one.space.netns.run(|| frames_of(index)).unwrap();
        let bridge = Rtnl::open().unwrap().link("tiphys0").unwrap().unwrap().index;
        let receivers = [
            ("the host", frames_of(bridge).unwrap()),
            ("the other pod", two.space.netns.run(|| frames_of(victim_index)).unwrap()),
        ];
        let (own4, victim4, gateway4) = ([10, 244, 7, 2], [10, 244, 7, 3], [10, 244, 7, 1]);
        let (own6, victim6) = (octets6("fd00:244:7::2"), octets6("fd00:244:7::3"));
        let (gateway6, local) = (octets6("fd00:244:7::1"), link_local(mac));
        let of_arp = |from: Mac, sender: Mac, ip: [u8; 4]| frame(BROADCAST, from, ARP, &arp(sender, ip, ip));
        let of_icmp6 = |from: Mac, source: [u8; 16], kind: u8, target: [u8; 16]| {
            frame(ALL_NODES, from, IPV6, &icmp6(source, kind, target, mac))
        };
        let tagged = [&BROADCAST[..], &mac, &[0x81, 0, 0, 1], &ARP.to_be_bytes(), &arp(mac, victim4, victim4)].concat();
        let frames = [
            ("ARP for another pod", of_arp(mac, mac, victim4)),
            ("ARP for the gateway", of_arp(mac, mac, gateway4)),
            ("ARP with another hardware address", of_arp(mac, victim, own4)),
            ("a frame from another hardware address", of_arp(victim, mac, own4)),
            ("a tagged frame", tagged),
            ("an advertisement for another pod", of_icmp6(mac, local, 136, victim6)),
            ("an advertisement for the gateway", of_icmp6(mac, local, 136, gateway6)),
            ("an advertisement from another pod", of_icmp6(mac, victim6, 136, own6)),
            ("a solicitation from another pod", of_icmp6(mac, victim6, 135, own6)),
            ("a router advertisement", of_icmp6(mac, local, 134, gateway6)),
            ("a redirect", of_icmp6(mac, local, 137, victim6)),
        ];
        let mut number = 0;
        let mut marker = || {
            number += 1;
            frame(BROADCAST, mac, ARP, &arp(mac, own4, [10, 244, 7, 100 + number]))
        };
        for (name, spoofed) in &frames {
            for (who, receiver) in &receivers {
                assert!(!arrives(&sender, receiver, spoofed, &marker()), "{name} reaches {who}");
            }
        }
        let own = of_icmp6(mac, local, 136, own6);
        assert!(arrives(&sender, &receivers[0].1, &own, &marker()), "the pod announces its own address");
        // A pod takes no routes from its neighbours.
        let accepts = || two.space.netns.run(|| fs::read_to_string("/proc/sys/net/ipv6/conf/eth0/accept_ra"));
        assert_eq!(accepts().unwrap().trim(), "0");
        // Without the rules, the same frames arrive.
        let table = ruleset().lines().find_map(|line| Some(line.strip_prefix("table bridge ")?.to_string()));
        let table = table.expect("a table").trim_end_matches(" {").to_string();
        let delete = ["delete", "table", "bridge", &table];
        assert!(std::process::Command::new("nft").args(delete).status().unwrap().success());
        for (name, spoofed) in &frames[..4] {
            assert!(arrives(&sender, &receivers[0].1, spoofed, &marker()), "{name}: the test could not see it");
        }
        for pod in [&one, &two] {
            cni.del(&pod.attachment()).unwrap();
        }
    });
}
