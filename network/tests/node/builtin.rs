//! The built-in network.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::time::Instant;

use network::cni::{Attachment, Bandwidth, Cni, CniOptions, PortMapping};
use network::netlink::{Route, Rtnl};

use crate::support::{on_host, ruleset, talk};

#[test]
fn pods_reach_each_other_and_external_hosts() {
    on_host(|host| {
        let cni = host.builtin();
        let outside = host.outside();
        let (one, two) = (host.pod("one"), host.pod("two"));
        let first = cni.add(&one.attachment()).unwrap();
        let second = cni.add(&two.attachment()).unwrap();
        let text = |ips: &[std::net::IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&first.ips), ["10.244.7.2", "fd00:244:7::2"]);
        assert_eq!(text(&second.ips), ["10.244.7.3", "fd00:244:7::3"]);
        assert_eq!(first.interfaces[2].name, "eth0");
        assert_eq!(first.interfaces[2].mac, "0a:58:0a:f4:07:02");
        cni.check(&one.attachment()).unwrap();

        for (listen, address, from) in [
            ("10.244.7.3:80", "10.244.7.3:80", "10.244.7.2"),
            ("[fd00:244:7::3]:80", "[fd00:244:7::3]:80", "fd00:244:7::2"),
        ] {
            let server = two.space.listen(listen);
            assert_eq!(talk(one.space.connect(address), &server).to_string(), from);
        }
        let own = one.space.listen("127.0.0.1:80");
        talk(one.space.connect("127.0.0.1:80"), &own);
        // External hosts see the host's address, since they have no route to the pods.
        for (listen, from) in [("192.0.2.2:80", "192.0.2.1"), ("[fd02::2]:80", "fd02::1")] {
            let server = outside.listen(listen);
            assert_eq!(talk(one.space.connect(listen), &server).to_string(), from);
        }
        // The host sees the pod's own address.
        let gateway = std::net::TcpListener::bind("10.244.7.1:80").unwrap();
        assert_eq!(talk(one.space.connect("10.244.7.1:80"), &gateway).to_string(), "10.244.7.2");

        for pod in [&one, &two] {
            cni.del(&pod.attachment()).unwrap();
            cni.del(&pod.attachment()).unwrap();
            assert!(cni.check(&pod.attachment()).is_err());
        }
        host.take_away_outside();
    });
}

/// Frames of pods pass the host's IP layer, with and without the kernel's own filtering of bridged frames.
#[test]
fn pods_are_isolated_on_the_bridge() {
    for filters_frames in ["0", "1"] {
        on_host(|host| {
            if fs::exists("/proc/sys/net/bridge").unwrap() {
                fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", filters_frames).unwrap();
            }
            let cni = host.builtin();
            let (one, two) = (host.pod("one"), host.pod("two"));
            cni.add(&one.attachment()).unwrap();
            cni.add(&two.attachment()).unwrap();
            let server = two.space.udp("10.244.7.3:53");
            let expect = |sender: &UdpSocket, text: &str| {
                sender.send_to(text.as_bytes(), "10.244.7.3:53").unwrap();
                let mut bytes = [0; 9];
                let (count, from) = server.recv_from(&mut bytes).unwrap();
                assert_eq!(&bytes[..count], text.as_bytes(), "what came before it was not dropped");
                assert_eq!(from.ip().to_string(), "10.244.7.2");
            };
            let own = one.space.udp("10.244.7.2:1000");
            expect(&own, "first");

            // Another address.
            let mut inside = Rtnl::open_in(&one.space.netns).unwrap();
            let eth0 = inside.link("eth0").unwrap().unwrap();
            inside.add_address(eth0.index, "10.244.7.9/32".parse().unwrap()).unwrap();
            let spoofed = one.space.udp("10.244.7.9:1000");
            spoofed.send_to(b"address", "10.244.7.3:53").unwrap();
            expect(&own, "second");
            // Another hardware address.
            inside.set_mac(eth0.index, [0x0a, 0x58, 0x0a, 0xf4, 7, 3]).unwrap();
            own.send_to(b"mac", "10.244.7.3:53").unwrap();
            inside.set_mac(eth0.index, eth0.mac).unwrap();
            expect(&own, "third");
            // Past the host.
            let direct = Route::new("10.244.7.3/32".parse().unwrap(), None, eth0.index);
            inside.add_route(&direct).unwrap();
            own.send_to(b"direct", "10.244.7.3:53").unwrap();
            inside.delete_route(&direct).unwrap();
            expect(&own, "fourth");

            for pod in [&one, &two] {
                cni.del(&pod.attachment()).unwrap();
            }
        });
    }
}

#[test]
fn host_ports_are_reachable_from_everywhere() {
    on_host(|host| {
        let cni = host.builtin();
        let outside = host.outside();
        let (one, two) = (host.pod("one"), host.pod("two"));
        let port = |host_port, container_port, protocol: &str, host_ip: &str| PortMapping {
            host_port,
            container_port,
            protocol: protocol.to_string(),
            host_ip: host_ip.to_string(),
        };
        let ports = vec![port(8080, 80, "tcp", ""), port(8053, 53, "udp", ""), port(8081, 80, "tcp", "192.0.2.1")];
        let attachment = Attachment { port_mappings: ports, ..one.attachment() };
        cni.add(&attachment).unwrap();
        cni.add(&two.attachment()).unwrap();
        cni.check(&attachment).unwrap();
        let rules = ruleset();
        assert!(rules.contains("tcp . 8080") && rules.contains("10.244.7.2 . 80"), "{rules}");

        let (server, server6) = (one.space.listen("0.0.0.0:80"), one.space.listen("[fd00:244:7::2]:80"));
        // An external client keeps its own address.
        assert_eq!(talk(outside.connect("192.0.2.1:8080"), &server).to_string(), "192.0.2.2");
        assert_eq!(talk(outside.connect("[fd02::1]:8080"), &server6).to_string(), "fd02::2");
        assert_eq!(talk(outside.connect("192.0.2.1:8081"), &server).to_string(), "192.0.2.2");
        // From the host, from a pod of the same subnet, and from the pod itself: masqueraded, so that replies return through
        // the host.
        for address in ["192.0.2.1:8080", "127.0.0.1:8080"] {
            let client = std::net::TcpStream::connect(address);
            talk(client, &server);
        }
        assert_eq!(talk(two.space.connect("192.0.2.1:8080"), &server).to_string(), "10.244.7.1");
        assert_eq!(talk(one.space.connect("192.0.2.1:8080"), &server).to_string(), "10.244.7.1");
        assert_eq!(talk(one.space.connect("[fd02::1]:8080"), &server6).to_string(), "fd00:244:7::1");
        // A port on one address is not a port on other addresses.
        assert!(outside.connect("[fd02::1]:8081").is_err());
        assert!(std::net::TcpStream::connect("127.0.0.1:8081").is_err());

        let (answering, asking) = (one.space.udp("0.0.0.0:53"), outside.udp("192.0.2.2:0"));
        asking.send_to(b"who", "192.0.2.1:8053").unwrap();
        let mut bytes = [0; 8];
        let (length, from) = answering.recv_from(&mut bytes).unwrap();
        answering.send_to(&bytes[..length], from).unwrap();
        let (length, from) = asking.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from.to_string().as_str()), (&b"who"[..], "192.0.2.1:8053"));

        // A port that is taken is refused to another pod, and the attempt leaves nothing behind.
        let before = host.count();
        let third = host.pod("third");
        let taken = Attachment { port_mappings: vec![port(8080, 80, "tcp", "")], ..third.attachment() };
        let error = cni.add(&taken).unwrap_err().to_string();
        assert!(error.contains("host port 8080 is taken by \"sandbox-one eth0 tiphys\""), "{error}");
        assert_eq!(host.count(), before);

        cni.del(&attachment).unwrap();
        assert!(outside.connect("192.0.2.1:8080").is_err());
        cni.del(&two.attachment()).unwrap();
        host.take_away_outside();
    });
}

#[test]
fn udp_clients_follow_a_host_port_to_its_new_pod() {
    on_host(|host| {
        let cni = host.builtin();
        let outside = host.outside();
        let asking = outside.udp("192.0.2.2:0");
        asking.connect("192.0.2.1:8053").unwrap();
        for name in ["one", "two"] {
            let pod = host.pod(name);
            let port = PortMapping {
                host_port: 8053,
                container_port: 53,
                protocol: "udp".to_string(),
                ..PortMapping::default()
            };
            let attachment = Attachment { port_mappings: vec![port], ..pod.attachment() };
            cni.add(&attachment).unwrap();
            let answering = pod.space.udp("0.0.0.0:53");
            asking.send(name.as_bytes()).unwrap();
            let mut bytes = [0; 8];
            let (length, _) = answering.recv_from(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], name.as_bytes());
            cni.del(&attachment).unwrap();
        }
        host.take_away_outside();
    });
}

#[test]
fn bandwidth_is_limited() {
    on_host(|host| {
        let cni = host.builtin();
        let pod = host.pod("slow");
        let bandwidth = Bandwidth {
            ingress_rate: 8_000_000,
            ingress_burst: 800_000,
            egress_rate: 4_000_000,
            egress_burst: 400_000,
        };
        let attachment = Attachment { bandwidth: Some(bandwidth), ..pod.attachment() };
        let attached = cni.add(&attachment).unwrap();
        cni.check(&attachment).unwrap();
        let device = attached.interfaces.iter().find(|interface| interface.name.starts_with("bwp")).unwrap();
        let shown = |name: &str| {
            let output = std::process::Command::new("tc").args(["qdisc", "show", "dev", name]).output().expect("tc");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (port, device) = (shown(&attached.interfaces[1].name), shown(&device.name));
        assert!(port.contains("tbf") && port.contains("rate 8Mbit") && port.contains("ingress"), "{port}");
        assert!(device.contains("rate 4Mbit burst 50000b"), "{device}");

        // 300 kB at 500 kB/s with a burst of 50 kB take half a second. Without a limit they take no time.
        let server = std::net::TcpListener::bind("10.244.7.1:80").unwrap();
        let mut client = pod.space.connect("10.244.7.1:80").unwrap();
        let (mut served, _) = server.accept().unwrap();
        let begun = Instant::now();
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut client, &vec![0; 300_000]));
        std::io::copy(&mut served, &mut std::io::sink()).unwrap();
        sender.join().unwrap().unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        assert!(seconds > 0.35, "{seconds}");
        cni.del(&attachment).unwrap();
    });
}

#[test]
fn concurrent_pods_get_distinct_addresses() {
    on_host(|host| {
        let cni = host.builtin();
        let pods: Vec<_> = (0..64).map(|number| host.pod(&format!("p{number}"))).collect();
        let begun = Instant::now();
        let all: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = pods.iter().map(|pod| scope.spawn(|| cni.add(&pod.attachment()).unwrap())).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        eprintln!("64 ADDs at once: {:?}", begun.elapsed());
        let addresses: BTreeSet<_> = all.iter().flat_map(|attached| attached.ips.clone()).collect();
        assert_eq!(addresses.len(), 128);
        // Two addresses that are masqueraded, and seven elements for what the port may send.
        let elements = 64 * (2 + 7);
        assert_eq!((host.count().leases, host.count().results, host.count().elements), (128, 64, elements));
        let server = pods[0].space.listen("0.0.0.0:80");
        talk(pods[63].space.connect(&format!("{}:80", all[0].ips[0])), &server);

        // GC removes attachments that are not valid, even if their namespace is deleted.
        let valid: Vec<_> = pods[..2].iter().map(|pod| (pod.attachment().container_id, "eth0".to_string())).collect();
        let begun = Instant::now();
        cni.gc(&valid).unwrap();
        cni.settle();
        eprintln!("62 DELs by GC: {:?}", begun.elapsed());
        assert_eq!((host.count().leases, host.count().results, host.count().links.len()), (4, 2, 3));
        cni.check(&pods[0].attachment()).unwrap();
        // GC does not remove the attachments of another runtime.
        let other = Cni::open(CniOptions { state_dir: host.path("other"), ..host.options() }).unwrap();
        other.gc(&[]).unwrap();
        cni.check(&pods[0].attachment()).unwrap();
        cni.gc(&[]).unwrap();
        cni.settle();
        assert_eq!(host.count().links, ["lo"]);
    });
}

#[test]
fn attaches_and_detaches_pods_in_turn() {
    on_host(|host| {
        let cni = host.builtin();
        let (mut adds, mut dels) = (Vec::new(), Vec::new());
        for number in 0..30 {
            let pod = host.pod(&format!("p{number}"));
            let begun = Instant::now();
            cni.add(&pod.attachment()).unwrap();
            adds.push(begun.elapsed());
            let begun = Instant::now();
            cni.del(&pod.attachment()).unwrap();
            dels.push(begun.elapsed());
        }
        adds.sort();
        dels.sort();
        eprintln!("ADD min {:?} p50 {:?}; DEL min {:?} p50 {:?}", adds[0], adds[15], dels[0], dels[15]);
    });
}

#[test]
fn leftovers_do_not_block_other_pods() {
    on_host(|host| {
        let cni = host.builtin();
        // The namespace is deleted with its pod, before DEL.
        let pod = host.pod("gone");
        let attachment = pod.attachment();
        cni.add(&attachment).unwrap();
        drop(pod);
        let gone = Attachment { netns: "/proc/1/ns/absent".into(), ..attachment };
        cni.del(&gone).unwrap();

        // A path that leads to another pod's namespace does not harm that pod.
        let (one, other) = (host.pod("one"), host.pod("other"));
        cni.add(&one.attachment()).unwrap();
        cni.add(&other.attachment()).unwrap();
        cni.del(&Attachment { netns: other.space.path(), ..one.attachment() }).unwrap();
        cni.check(&other.attachment()).unwrap();
        cni.del(&Attachment { netns: other.space.path(), ..one.attachment() }).unwrap();
        cni.check(&other.attachment()).unwrap();

        // Rules that were flushed are created again for the next pod.
        let flushed = std::process::Command::new("nft").args(["flush", "ruleset"]).status().unwrap();
        assert!(flushed.success());
        assert!(cni.check(&other.attachment()).is_err());
        let third = host.pod("third");
        cni.add(&third.attachment()).unwrap();
        cni.check(&third.attachment()).unwrap();
        cni.del(&other.attachment()).unwrap();
        cni.del(&third.attachment()).unwrap();

        // A second ADD for the same sandbox is refused, and the attachment stays.
        let twice = host.pod("twice");
        let made = cni.add(&twice.attachment()).unwrap();
        let error = cni.add(&twice.attachment()).unwrap_err().to_string();
        assert_eq!(error, "eth0 of sandbox-twice is attached already");
        cni.check(&twice.attachment()).unwrap();
        cni.del(&twice.attachment()).unwrap();

        // A stale masquerading element does not block a new pod with the same address.
        let next = network::cidr::next(made.ips[0]).unwrap();
        let stale = format!("{next} comment \"gone eth0 tiphys\" : jump masquerade-10.244.7.0/24");
        let command = format!("add element inet tiphys-cni masquerade4 {{ {stale} }}");
        assert!(std::process::Command::new("nft").arg(command).status().unwrap().success());
        let heir = host.pod("heir");
        assert_eq!(cni.add(&heir.attachment()).unwrap().ips[0], next);
        cni.check(&heir.attachment()).unwrap();
        cni.del(&heir.attachment()).unwrap();
    });
}

#[test]
fn pods_of_ipv6_alone() {
    on_host(|host| {
        let cni = Cni::open(host.options()).unwrap();
        cni.set_pod_cidr(&["fd00:6::/64".parse().unwrap()]).unwrap();
        let (one, two) = (host.pod("one"), host.pod("two"));
        assert_eq!(cni.add(&one.attachment()).unwrap().ips, ["fd00:6::2".parse::<std::net::IpAddr>().unwrap()]);
        let port = PortMapping { host_port: 8080, container_port: 80, ..PortMapping::default() };
        let attachment = Attachment { port_mappings: vec![port], ..two.attachment() };
        cni.add(&attachment).unwrap();
        let server = two.space.listen("[::]:80");
        assert_eq!(talk(one.space.connect("[fd00:6::3]:80"), &server).to_string(), "fd00:6::2");
        assert_eq!(talk(one.space.connect("[fd00:6::1]:8080"), &server).to_string(), "fd00:6::1");
        cni.check(&attachment).unwrap();
        cni.del(&one.attachment()).unwrap();
        cni.del(&attachment).unwrap();
    });
}

#[test]
fn a_new_pod_cidr_moves_the_bridge() {
    on_host(|host| {
        let cni = host.builtin();
        let pod = host.pod("old");
        cni.add(&pod.attachment()).unwrap();
        cni.del(&pod.attachment()).unwrap();
        cni.set_pod_cidr(&["10.9.0.0/24".parse().unwrap()]).unwrap();
        let pod = host.pod("new");
        let attached = cni.add(&pod.attachment()).unwrap();
        assert_eq!(attached.ips[0].to_string(), "10.9.0.2");
        let mut rtnl = Rtnl::open().unwrap();
        let bridge = rtnl.link("tiphys0").unwrap().unwrap();
        let v4: Vec<_> =
            rtnl.addresses(bridge.index).unwrap().into_iter().filter(|address| address.net.is_ipv4()).collect();
        assert_eq!(v4.iter().map(|address| address.net.to_string()).collect::<Vec<_>>(), ["10.9.0.1/24"]);
        assert_eq!(fs::read_to_string(host.path("state/pod-cidrs")).unwrap(), "10.9.0.0/24\n");
        cni.del(&pod.attachment()).unwrap();
    });
}
