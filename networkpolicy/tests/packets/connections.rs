//! Open connections, services, the node itself, machines outside, and rules that another process changes.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use networkpolicy::model::Pod as PodModel;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, sendto, socket_with};

use crate::support::{Host, NetNamespace, Pod, SILENCE, TABLE, TIMEOUT, nft};

const DENY: &str = "x {podSelector: {}, policyTypes: [Ingress]}";
const DENY_EGRESS: &str = "x {podSelector: {}, policyTypes: [Egress]}";

/// Sends a byte and waits for its echo.
fn talk(client: &mut TcpStream, server: &mut TcpStream, timeout: Duration) -> bool {
    client.write_all(b"?").expect("sent");
    if receive(server, timeout).is_none() {
        return false;
    }
    server.write_all(b"!").expect("sent");
    receive(client, timeout).is_some()
}

fn receive(stream: &mut TcpStream, timeout: Duration) -> Option<u8> {
    stream.set_read_timeout(Some(timeout)).expect("a timeout");
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(1) => Some(byte[0]),
        Ok(_) => panic!("the connection was closed"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A connection between two pods.
fn open(from: &NetNamespace, listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let client = from.connect(to, TIMEOUT).expect("a connection");
    let (server, _) = listener.accept().expect("a client");
    (client, server)
}

fn is_reachable(from: &NetNamespace, to: SocketAddr, expected: bool) -> bool {
    from.connect(to, if expected { TIMEOUT } else { SILENCE }).is_ok()
}

fn expect(from: &NetNamespace, to: SocketAddr, expected: bool) {
    assert_eq!(is_reachable(from, to, expected), expected, "{to}");
}

/// A change of a policy cuts connections that are no longer allowed, in both directions, and no other connections.
#[test]
fn open_connections_are_cut() {
    for v6 in [false, true] {
        Host::run(false, |host| {
            let (server_at, other_at) = (host.pod("x/a").at(v6, 80), host.pod("y/a").at(v6, 80));
            let listeners = [host.pod("x/a").space.listen(server_at), host.pod("y/a").space.listen(other_at)];
            let block = if v6 { r#""fd00:244:7::6/128""# } else { "10.244.7.6/32" };
            for (policies, to, from) in [
                ("", true, true),
                (DENY, false, true),
                (DENY_EGRESS, true, false),
                ("x {podSelector: {}, policyTypes: [Ingress, Egress]}", false, false),
                (
                    &format!("x {{podSelector: {{}}, ingress: [{{from: [{{ipBlock: {{cidr: {block}}}}}]}}]}}"),
                    true,
                    true,
                ),
                ("x {podSelector: {}, ingress: [{ports: [{port: 81}]}]}", false, true),
                ("x {podSelector: {}, ingress: [{ports: [{port: 80}]}]}", true, true),
                ("y {podSelector: {}, policyTypes: [Egress]}", false, true),
                ("y {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}", true, false),
            ] {
                host.apply("");
                // One to the pod, one from it.
                let mut streams = [
                    open(&host.pod("y/b").space, &listeners[0], server_at),
                    open(&host.pod("x/a").space, &listeners[1], other_at),
                ];
                streams.iter_mut().for_each(|(client, server)| assert!(talk(client, server, TIMEOUT)));
                host.apply(policies);
                for ((client, server), expected) in streams.iter_mut().zip([to, from]) {
                    let timeout = if expected { TIMEOUT } else { SILENCE };
                    assert_eq!(talk(client, server, timeout), expected, "{policies}");
                }
            }
        });
    }
}

/// Packets from a server are cut too, not only those of the client.
#[test]
fn replies_are_cut_with_their_connection() {
    Host::run(false, |host| {
        let at = host.pod("x/a").at(false, 80);
        let listener = host.pod("x/a").space.listen(at);
        let (mut client, mut server) = open(&host.pod("y/b").space, &listener, at);
        assert!(talk(&mut client, &mut server, TIMEOUT));
        host.apply(DENY);
        server.write_all(b"!").expect("sent");
        assert_eq!(receive(&mut client, SILENCE), None);
    });
}

/// Replies of allowed connections pass, whatever the policies of the replying direction say.
#[test]
fn replies_of_allowed_connections_pass() {
    Host::run(false, |host| {
        host.apply(&format!("{DENY_EGRESS}\ny {{podSelector: {{}}, policyTypes: [Ingress]}}"));
        let at = host.pod("x/a").at(false, 80);
        let listener = host.pod("x/a").space.listen(at);
        let (mut client, mut server) = open(&host.pod("y/b").space, &listener, at);
        assert!(talk(&mut client, &mut server, TIMEOUT));
        // The other way round nothing is allowed.
        let other = host.pod("y/b").at(false, 80);
        let _listener = host.pod("y/b").space.listen(other);
        expect(&host.pod("x/a").space, other, false);
    });
}

/// A service's address is translated before it is judged; a pod reaches itself through it.
#[test]
fn services_are_judged_by_their_endpoint() {
    for filters_bridged_frames in [false, true] {
        Host::run(filters_bridged_frames, |host| {
            nft(&["add table inet service-test"]);
            nft(&["add chain inet service-test to { type nat hook prerouting priority -100; }"]);
            nft(&["add chain inet service-test back { type nat hook postrouting priority 100; }"]);
            for rule in [
                "to ip daddr 10.96.0.1 tcp dport 443 dnat ip to 10.244.7.2:81",
                "to ip6 daddr fd00:96::1 tcp dport 443 dnat ip6 to [fd00:244:7::2]:81",
                // Hairpin traffic returns through the node.
                "back ct status dnat ip saddr 10.244.7.2 ip daddr 10.244.7.2 masquerade",
                "back ct status dnat ip6 saddr fd00:244:7::2 ip6 daddr fd00:244:7::2 masquerade",
            ] {
                nft(&[&format!("add rule inet service-test {rule}")]);
            }
            let service = ["10.96.0.1:443", "[fd00:96::1]:443"].map(|at| at.parse::<SocketAddr>().expect("an address"));
            let _listeners = [false, true].map(|v6| {
                let listener = host.pod("x/a").space.listen(host.pod("x/a").at(v6, 81));
                std::thread::spawn(move || while listener.accept().is_ok() {});
            });
            let allow = |port: u16, pod: &str| {
                format!(
                    "x {{podSelector: {{}}, ingress: [{{from: [{{podSelector: {{matchLabels: {{pod: {pod}}}}}}}], ports: [{{port: {port}}}]}}]}}"
                )
            };
            let egress = |port: u16, cidr: &str| {
                format!(
                    "y {{podSelector: {{}}, policyTypes: [Egress], egress: [{{to: [{{ipBlock: {{cidr: \"{cidr}\"}}}}], ports: [{{port: {port}}}]}}]}}"
                )
            };
            for (policies, x_b, x_c, y_a) in [
                (String::new(), true, true, true),
                (allow(81, "b"), true, false, false),
                // The port of the service does not matter.
                (allow(443, "b"), false, false, false),
                (egress(81, "10.244.7.2/32"), true, true, true),
                (egress(443, "10.96.0.1/32"), true, true, false),
                (DENY.to_string(), false, false, false),
            ] {
                host.apply(&policies);
                for (key, expected) in [("x/b", x_b), ("x/c", x_c), ("y/a", y_a), ("x/a", true)] {
                    expect(&host.pod(key).space, service[0], expected);
                }
                expect(&host.pod("x/a").space, service[1], true);
                expect(&host.pod("x/b").space, service[1], x_b);
            }
            nft(&["delete table inet service-test"]);
        });
    }
}

/// The node reaches its pods and is reached by them, whatever policies say; so probes work.
#[test]
fn the_node_reaches_its_pods() {
    Host::run(false, |host| {
        host.apply("x {podSelector: {}, policyTypes: [Ingress, Egress]}");
        let pod = host.pod("x/a");
        for (v6, node) in [(false, "10.244.7.1:7000"), (true, "[fd00:244:7::1]:7000")] {
            let listener = pod.space.listen(pod.at(v6, 80));
            let stream = TcpStream::connect_timeout(&pod.at(v6, 80), TIMEOUT).expect("the pod is reached");
            drop((stream, listener));
            let node: SocketAddr = node.parse().expect("an address");
            let _listener = TcpListener::bind(node).expect("a listener");
            expect(&pod.space, node, true);
        }
    });
}

/// Machines outside are peers by their addresses.
#[test]
fn blocks_match_machines_outside() {
    Host::run(false, |host| {
        let outside = host.outside();
        let at = host.pod("x/a").at(false, 80);
        let _listener = host.pod("x/a").space.listen(at);
        let away: SocketAddr = "192.0.2.2:80".parse().expect("an address");
        let _away = outside.listen(away);
        for (policies, ingress, egress) in [
            ("", true, true),
            (DENY, false, true),
            (DENY_EGRESS, true, false),
            ("x {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", false, true),
            ("x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}", true, true),
            (
                "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.2/32]}}]}]}",
                false,
                true,
            ),
            (
                "x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}",
                true,
                true,
            ),
        ] {
            host.apply(policies);
            expect(&outside, at, ingress);
            expect(&host.pod("x/a").space, away, egress);
        }
    });
}

/// Rules without ports allow every protocol, such as ICMP; rules with ports only those protocols.
#[test]
fn echo_requests_have_no_port() {
    Host::run(false, |host| {
        for (policies, expected) in [
            ("", true),
            (DENY, false),
            ("x {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", true),
            (
                "x {podSelector: {}, ingress: [{ports: [{port: 1, endPort: 65535}, {protocol: UDP}, {protocol: SCTP}]}]}",
                false,
            ),
        ] {
            host.apply(policies);
            let (from, to) = (host.pod("y/a"), host.pod("x/a").ips[0]);
            assert_eq!(ping(from, to, if expected { TIMEOUT } else { SILENCE }), expected, "{policies}");
        }
    });
}

fn raw(space: &NetNamespace, kind: SocketType, protocol: Protocol) -> std::os::fd::OwnedFd {
    let fd = space
        .run(|| Ok(socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, Some(protocol))?))
        .expect("a raw socket");
    let short = Some(Duration::from_millis(20));
    rustix::net::sockopt::set_socket_timeout(&fd, rustix::net::sockopt::Timeout::Recv, short).expect("a timeout");
    fd
}

/// Whether an echo request has a reply.
fn ping(from: &Pod, to: IpAddr, timeout: Duration) -> bool {
    const REPLY: u8 = 0;
    let fd = raw(&from.space, SocketType::RAW, rustix::net::ipproto::ICMP);
    // Type, code, checksum, identifier, number.
    let request = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    sendto(&fd, &request, SendFlags::empty(), &SocketAddr::new(to, 0)).expect("sent");
    let started = Instant::now();
    let mut buffer = [0; 128];
    while started.elapsed() < timeout {
        if let Ok((_, length)) = recv(&fd, &mut buffer[..], RecvFlags::empty())
            && buffer[..length].get(20) == Some(&REPLY)
        {
            return true;
        }
    }
    false
}

/// SCTP by its first packet, since this kernel may have no sockets for it.
#[test]
fn sctp_ports_are_filtered() {
    Host::run(false, |host| {
        for (policies, expected) in [
            ("", true),
            (DENY, false),
            ("x {podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: 7}]}]}", true),
            ("x {podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: 8}]}]}", false),
            ("x {podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: 1, endPort: 7}]}]}", true),
            ("x {podSelector: {}, ingress: [{ports: [{protocol: SCTP}]}]}", true),
            ("x {podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 7}, {protocol: UDP, port: 7}]}]}", false),
            ("y {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: SCTP, port: 7}]}]}", true),
            ("y {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: SCTP, port: 6}]}]}", false),
        ] {
            host.apply(policies);
            let timeout = if expected { TIMEOUT } else { SILENCE };
            assert_eq!(sctp_arrives(host.pod("y/a"), host.pod("x/a"), timeout), expected, "{policies}");
        }
    });
}

/// Sends the first packet of an association, and returns whether it arrives.
fn sctp_arrives(from: &Pod, to: &Pod, timeout: Duration) -> bool {
    let kind = rustix::net::ipproto::SCTP;
    let receiver = raw(&to.space, SocketType::RAW, kind);
    let sender = raw(&from.space, SocketType::RAW, kind);
    // Ports 1234 and 7, no tag, checksum; INIT with a tag, a window, streams and a number.
    let mut packet = vec![0x04, 0xd2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    packet.extend([1, 0, 0, 20, 0, 0, 0, 9, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let checksum = crc32c::crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    sendto(&sender, &packet, SendFlags::empty(), &SocketAddr::new(to.ips[0], 0)).expect("sent");
    let started = Instant::now();
    let mut buffer = [0; 256];
    while started.elapsed() < timeout {
        if let Ok((_, length)) = recv(&receiver, &mut buffer[..], RecvFlags::empty())
            && buffer[..length].get(20..) == Some(&packet[..])
        {
            return true;
        }
    }
    false
}

/// ICMP errors belong to the connection that they are about.
#[test]
fn errors_of_allowed_connections_pass() {
    Host::run(false, |host| {
        host.apply(
            "x {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{ports: [{protocol: UDP, port: 9}]}]}",
        );
        let (from, to) = (host.pod("x/a"), host.pod("y/a"));
        let socket: UdpSocket = from.space.udp(from.at(false, 0));
        socket.connect(to.at(false, 9)).expect("connected");
        socket.send(b"?").expect("sent");
        // No process listens, so the other pod sends an error.
        let error = socket.recv(&mut [0; 8]).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// Packets that belong to no connection are dropped at isolated pods.
#[test]
fn packets_without_a_connection_are_dropped() {
    Host::run(false, |host| {
        let allow = "x {podSelector: {}, ingress: [{}], egress: [{}]}";
        nft(&["add table inet track-test"]);
        nft(&["add chain inet track-test raw { type filter hook prerouting priority raw; }"]);
        nft(&["add rule inet track-test raw udp dport 5000 notrack"]);
        for (policies, expected) in [("", true), (allow, false)] {
            host.apply(policies);
            let (from, to) = (host.pod("y/a"), host.pod("x/a"));
            let receiver = to.space.udp(to.at(false, 5000));
            receiver.set_read_timeout(Some(if expected { TIMEOUT } else { SILENCE })).expect("a timeout");
            from.space.udp(from.at(false, 0)).send_to(b"?", to.at(false, 5000)).expect("sent");
            assert_eq!(receiver.recv(&mut [0; 8]).is_ok(), expected, "{policies}");
        }
        nft(&["delete table inet track-test"]);
    });
}

/// A change by another process is noticed, and repaired by the next sync.
#[test]
fn rules_are_repaired() {
    Host::run(false, |host| {
        let at = host.pod("x/a").at(false, 80);
        let _listener = host.pod("x/a").space.listen(at);
        host.apply(DENY);
        assert!(!host.kernel.is_tampered().expect("notices"), "own changes are not noticed");
        for command in [
            format!("delete table inet {TABLE}"),
            format!("flush table inet {TABLE}"),
            format!("flush map inet {TABLE} ingress4"),
            format!("add rule inet {TABLE} ingress accept"),
        ] {
            nft(&[&command]);
            assert!(host.kernel.is_tampered().expect("notices"), "{command}");
            host.sync();
            assert!(!host.kernel.is_tampered().expect("notices"), "{command}");
            expect(&host.pod("y/a").space, at, false);
        }
        // Even an update that comes before the notice is read.
        nft(&[&format!("delete table inet {TABLE}")]);
        host.apply("x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}");
        expect(&host.pod("y/a").space, at, false);
        // Tables of the same name in other families are not ours.
        nft(&[&format!("add table ip {TABLE}")]);
        assert!(!host.kernel.is_tampered().expect("notices"));
        nft(&[&format!("delete table ip {TABLE}")]);
    });
}

/// A new process replaces the rules of an earlier one without a moment in which something else is allowed.
#[test]
fn a_restart_leaves_no_gap() {
    Host::run(false, |host| {
        let (from, at) = (host.pod("y/a").space.udp(host.pod("y/a").at(false, 0)), host.pod("x/a").at(false, 80));
        let receiver = host.pod("x/a").space.udp(at);
        receiver.set_read_timeout(Some(SILENCE)).expect("a timeout");
        host.apply(DENY);
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let flood = scope.spawn(move || {
                let mut sent = 0u64;
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    from.send_to(b"?", at).expect("sent");
                    sent += 1;
                }
                sent
            });
            for _ in 0..30 {
                host.kernel = networkpolicy::kernel::Kernel::open(TABLE).expect("nftables");
                host.sync();
            }
            drop(stop);
            assert!(flood.join().expect("the flood") > 100);
        });
        assert!(receiver.recv(&mut [0; 8]).is_err(), "a packet passed");
        assert_eq!(tables(), [TABLE], "the table that replaced the rules meanwhile is deleted");
    });
}

/// The leftovers of a process that is killed while it replaces the rules are deleted by the next one.
#[test]
fn a_killed_replacement_is_cleaned_up() {
    Host::run(false, |host| {
        for is_fresh in [false, true] {
            nft(&[&format!("add table inet {TABLE}-substitute")]);
            if is_fresh {
                nft(&[&format!("delete table inet {TABLE}")]);
            }
            host.kernel = networkpolicy::kernel::Kernel::open(TABLE).expect("nftables");
            host.apply(DENY);
            assert_eq!(tables(), [TABLE]);
        }
        nft(&[&format!("add table inet {TABLE}-substitute")]);
        host.kernel.cleanup().expect("removed");
        assert!(tables().is_empty());
    });
}

/// The names of the tables of network policies.
fn tables() -> Vec<String> {
    let listed = std::process::Command::new("nft").args(["list", "tables", "inet"]).output().expect("nft");
    let text = String::from_utf8(listed.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.strip_prefix("table inet "));
    names.filter(|name| name.starts_with(TABLE)).map(str::to_string).collect()
}

/// A pod that the kubelet has reported is isolated before the API shows its address, and an address that a later pod has got
/// is that pod's.
#[test]
fn reported_pods_are_isolated() {
    Host::run(false, |host| {
        let at = host.pod("x/a").at(false, 80);
        let _listener = host.pod("x/a").space.listen(at);
        let model = host.pod("x/a").model();
        host.cluster.pods.remove("x/a");
        host.apply(DENY);
        expect(&host.pod("y/a").space, at, true);
        host.cluster.reported.push(Arc::new(model.clone()));
        host.sync();
        expect(&host.pod("y/a").space, at, false);
        // A pod of another namespace gets the address; the old pod is not removed yet.
        host.cluster.reported.push(Arc::new(PodModel { namespace: "z".into(), uid: "later".into(), ..model }));
        host.sync();
        expect(&host.pod("y/a").space, at, true);
    });
}

/// One more peer among many is one more element in each set that has it.
#[test]
fn an_update_is_the_difference() {
    const PEERS: u32 = 3000;
    Host::run(false, |host| {
        let peer = |number: u32| {
            let ip = IpAddr::from((0x0aff_0000 + number).to_be_bytes());
            let name = format!("peer-{number}");
            let pod =
                PodModel { namespace: "z".into(), name: name.as_str().into(), ips: vec![ip], ..PodModel::default() };
            (Arc::from(format!("z/{name}")), Arc::new(pod))
        };
        host.cluster.pods.extend((0..PEERS).map(peer));
        let allow = "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}}]}]}";
        let started = Instant::now();
        host.apply(allow);
        let first = started.elapsed();
        host.cluster.pods.extend([peer(PEERS)]);
        let started = Instant::now();
        assert_eq!(host.sync(), 1, "one message");
        println!("{PEERS} peers: {first:?}, one more: {:?}", started.elapsed());
        host.cluster.pods.remove("z/peer-7");
        assert_eq!(host.sync(), 1);
        assert_eq!(host.sync(), 0);
        // A label of an isolated pod, so that no policy applies to it any more: its own elements.
        let at = host.pod("x/a").at(false, 80);
        let _listener = host.pod("x/a").space.listen(at);
        expect(&host.pod("y/a").space, at, false);
        let moved = PodModel { namespace: "y".into(), ..host.pod("x/a").model() };
        host.cluster.pods.insert("x/a".into(), Arc::new(moved));
        assert_eq!(host.sync(), 6, "an element of map, isolated and self for each family");
        expect(&host.pod("y/a").space, at, true);
    });
}
