//! Traffic inside the cluster.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use proxy::config::Mode;
use proxy::model::Family;

use crate::sctp;
use crate::support::{Cluster, NODE, NODE_IP, TABLE, ask, endpoint, next_reply, ready, ruleset, shown, tree};

const WEB: &str = r#"{"type":"ClusterIP","clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10","fd00:96::10"],
    "ports":[{"protocol":"TCP","port":80,"targetPort":8080}]}"#;
const DNS: &str = r#"{"type":"NodePort","clusterIP":"10.96.0.11","clusterIPs":["10.96.0.11","fd00:96::11"],
    "externalIPs":["203.0.113.11"],"ports":[{"protocol":"UDP","port":53,"nodePort":30053}]}"#;

pub fn cluster_ip(cluster: &mut Cluster) {
    cluster.pods.iter().for_each(|pod| pod.serve(8080));
    cluster.service("web", WEB, "");
    cluster.endpoints("web", "TCP", 8080, &[0, 1]);
    cluster.sync();
    for to in ["10.96.0.10:80", "[fd00:96::10]:80"] {
        assert_eq!(cluster.pods[2].servers(to, 40), ["pod-0", "pod-1"]);
        assert_eq!(cluster.node.servers(to, 40), ["pod-0", "pod-1"]);
        // A pod keeps its address.
        let reply = cluster.pods[2].tcp(to).expect("a reply");
        let is_own = reply.client == cluster.pods[2].ip || reply.client == cluster.pods[2].ip6;
        assert_eq!(is_own, cluster.translates(), "{reply:?}");
        // A pod reaches itself through its Service, from another address.
        assert_eq!(cluster.pods[0].servers(to, 40), ["pod-0", "pod-1"]);
        // Ports that the Service does not have are refused.
        let other = to.replace(":80", ":81");
        assert!(cluster.pods[2].is_refused(&other), "{other}");
    }
    // An endpoint is added, and another one removed.
    cluster.endpoints("web", "TCP", 8080, &[1, 2]);
    assert_eq!(cluster.sync().ports, 2);
    assert_eq!(cluster.pods[0].servers("10.96.0.10:80", 40), ["pod-1", "pod-2"]);
    cluster.endpoints("web", "TCP", 8080, &[]);
    cluster.sync();
    assert!(cluster.pods[0].is_refused("10.96.0.10:80"));
    assert!(cluster.pods[0].is_refused("[fd00:96::10]:80"));
    assert!(cluster.node.is_refused("10.96.0.10:80"));
    cluster.delete_service("web");
    assert_eq!(cluster.sync().ports, 2);
}

pub fn udp(cluster: &mut Cluster) {
    cluster.pods.iter().for_each(|pod| pod.serve(5353));
    cluster.service("dns", DNS, "");
    cluster.endpoints("dns", "UDP", 5353, &[0]);
    cluster.sync();
    let node_port = format!("{NODE_IP}:30053");
    for (to, is_outside) in [
        ("10.96.0.11:53", false),
        ("[fd00:96::11]:53", false),
        (node_port.as_str(), false),
        (node_port.as_str(), true),
        ("203.0.113.11:53", true),
    ] {
        // A flow follows its endpoint: when the endpoint is removed, the next packet of the same socket goes to another.
        let client = if is_outside { &cluster.outside } else { &cluster.pods[2] };
        let socket = client.udp_socket(to);
        assert_eq!(ask(&socket).expect("a reply").server, "pod-0");
        cluster.endpoints("dns", "UDP", 5353, &[1]);
        assert_eq!(cluster.sync().connections >= 1, cluster.translates());
        assert_eq!(ask(&socket).expect("a reply").server, "pod-1");
        cluster.endpoints("dns", "UDP", 5353, &[0]);
        cluster.sync();
    }
    cluster.endpoints("dns", "UDP", 5353, &[]);
    cluster.sync();
    let error = cluster.pods[2].udp("10.96.0.11:53").expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// A Service with this spec after its addresses.
fn spec(number: u8, more: &str) -> String {
    format!(
        r#"{{"type":"ClusterIP","clusterIP":"10.96.0.{number}","clusterIPs":["10.96.0.{number}","fd00:96::{number}"],{more}}}"#
    )
}

const TCP_80: &str = r#""ports":[{"protocol":"TCP","port":80}]"#;
const PORTS_8080: &str = r#"[{"name":"","protocol":"TCP","port":8080}]"#;

fn serve_all(cluster: &Cluster, port: u16) {
    cluster.pods.iter().chain([&cluster.remote]).for_each(|machine| machine.serve(port));
}

/// Named ports, ports with different targets, and TCP and UDP with one number.
pub fn ports(cluster: &mut Cluster) {
    for port in [8080, 9090, 5353] {
        serve_all(cluster, port);
    }
    let ports = r#""ports":[{"name":"http","protocol":"TCP","port":80},{"name":"metrics","protocol":"TCP","port":90},
        {"name":"dns","protocol":"UDP","port":53},{"name":"dns-tcp","protocol":"TCP","port":53}]"#;
    cluster.service("web", &spec(12, ports), "");
    // Slices that a user has written: the ports of a Service may have different endpoints.
    let list = |pod: usize| [ready(&cluster.pods[pod], Family::V4, NODE)];
    let (first, second) = (list(0), list(1));
    cluster.named_slice(
        "web-a",
        "web",
        Family::V4,
        r#"[{"name":"http","protocol":"TCP","port":8080},{"name":"dns","protocol":"UDP","port":5353}]"#,
        &first,
    );
    cluster.named_slice(
        "web-b",
        "web",
        Family::V4,
        r#"[{"name":"metrics","protocol":"TCP","port":9090},{"name":"dns-tcp","protocol":"TCP","port":5353}]"#,
        &second,
    );
    cluster.sync();
    assert_eq!(cluster.pods[2].servers("10.96.0.12:80", 10), ["pod-0"]);
    assert_eq!(cluster.pods[2].servers("10.96.0.12:90", 10), ["pod-1"]);
    assert_eq!(cluster.pods[2].servers("10.96.0.12:53", 10), ["pod-1"]);
    assert_eq!(cluster.pods[2].udp("10.96.0.12:53").expect("a reply").server, "pod-0");
    assert!(cluster.pods[2].is_refused("10.96.0.12:8080"));
}

pub fn affinity(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    let affinity = |seconds: u32| {
        let config = format!(
            r#""sessionAffinity":"ClientIP","sessionAffinityConfig":{{"clientIP":{{"timeoutSeconds":{seconds}}}}},"#
        );
        spec(13, &format!("{config}{TCP_80}"))
    };
    cluster.service("web", &affinity(600), "");
    cluster.endpoints("web", "TCP", 8080, &[0, 1, 2]);
    cluster.sync();
    for to in ["10.96.0.13:80", "[fd00:96::13]:80"] {
        for client in [&cluster.remote, &cluster.outside] {
            assert_eq!(client.servers(to, 30).len(), 1, "{} to {to}", client.name);
        }
    }
    let chosen = cluster.remote.servers("10.96.0.13:80", 1);
    // A client moves only if its endpoint is removed, and stays with the next one.
    let index: usize = chosen[0].strip_prefix("pod-").and_then(|number| number.parse().ok()).expect("a pod");
    let others: Vec<usize> = (0..3).filter(|pod| *pod != index).collect();
    cluster.endpoints("web", "TCP", 8080, &others);
    cluster.sync();
    let next = cluster.remote.servers("10.96.0.13:80", 30);
    assert!(next.len() == 1 && next != chosen, "{next:?} after {chosen:?}");
    cluster.endpoints("web", "TCP", 8080, &[0, 1, 2]);
    cluster.sync();
    assert_eq!(cluster.remote.servers("10.96.0.13:80", 30), next);
    // The affinity survives a restart of the proxy, unless the proxy process itself keeps it.
    if cluster.translates() {
        cluster.restart();
        assert_eq!(cluster.remote.servers("10.96.0.13:80", 30), next);
    }
    // After the timeout a client may move.
    cluster.service("web", &affinity(1), "");
    cluster.sync();
    let client = &cluster.pods[0];
    let first = client.servers("10.96.0.13:80", 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.servers("10.96.0.13:80", 1) == first {
        assert!(Instant::now() < deadline, "it never moves");
        // Longer than the timeout, which each attempt renews.
        #[expect(clippy::disallowed_methods, reason = "no runtime runs in this test")]
        std::thread::sleep(Duration::from_millis(1100));
    }
}

pub fn internal_local(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    cluster.service("web", &spec(14, &format!(r#""internalTrafficPolicy":"Local",{TCP_80}"#)), "");
    let list = [ready(&cluster.pods[0], Family::V4, NODE), ready(&cluster.remote, Family::V4, "node-2")];
    cluster.slice("web", Family::V4, PORTS_8080, &list);
    cluster.sync();
    assert_eq!(cluster.pods[2].servers("10.96.0.14:80", 30), ["pod-0"]);
    cluster.slice("web", Family::V4, PORTS_8080, &list[1..]);
    cluster.sync();
    assert!(cluster.pods[2].is_dropped("10.96.0.14:80"));
    cluster.slice("web", Family::V4, PORTS_8080, &[]);
    cluster.sync();
    assert!(cluster.pods[2].is_refused("10.96.0.14:80"));
}

/// Ready endpoints; those that terminate and serve if there are no ready ones; others never.
pub fn terminating(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    cluster.service("web", &spec(15, TCP_80), "");
    let serving = r#"{"ready":false,"serving":true,"terminating":true}"#;
    let dead = r#"{"ready":false,"serving":false,"terminating":true}"#;
    let starting = r#"{"ready":false,"serving":false,"terminating":false}"#;
    let published = r#"{"ready":true,"serving":false,"terminating":false}"#;
    let one = |pod: usize, conditions: &str| endpoint(&cluster.pods[pod], Family::V4, NODE, conditions, "{}");
    let ready = ready(&cluster.pods[0], Family::V4, NODE);
    let cases: [(Vec<String>, &[&str]); 4] = [
        (vec![ready, one(1, serving), one(2, starting)], &["pod-0"]),
        (vec![one(0, dead), one(1, serving), one(2, serving)], &["pod-1", "pod-2"]),
        // `publishNotReadyAddresses` makes endpoints ready.
        (vec![one(0, published), one(1, serving)], &["pod-0"]),
        (vec![one(0, dead), one(1, starting)], &[]),
    ];
    for (endpoints, servers) in cases {
        cluster.slice("web", Family::V4, PORTS_8080, &endpoints);
        cluster.sync();
        match servers {
            [] => assert!(cluster.remote.is_refused("10.96.0.15:80")),
            servers => assert_eq!(cluster.remote.servers("10.96.0.15:80", 40), servers),
        }
    }
}

pub fn topology(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    cluster.service("web", &spec(16, TCP_80), "");
    let ok = r#"{"ready":true,"serving":true,"terminating":false}"#;
    let zone = |zone: &str, node: &str| match node {
        "" => format!(r#"{{"forZones":[{{"name":"{zone}"}}]}}"#),
        node => format!(r#"{{"forZones":[{{"name":"{zone}"}}],"forNodes":[{{"name":"{node}"}}]}}"#),
    };
    let list = |hints: [&str; 3]| -> Vec<String> {
        let one = |(pod, hints): (usize, &&str)| endpoint(&cluster.pods[pod], Family::V4, NODE, ok, hints);
        hints.iter().enumerate().map(one).collect()
    };
    let cases = [
        ("a", list([&zone("a", ""), &zone("a", ""), &zone("b", "")]), vec!["pod-0", "pod-1"]),
        // Without hints for the zone, or with an endpoint without hints, all are used.
        ("c", list([&zone("a", ""), &zone("a", ""), &zone("b", "")]), vec!["pod-0", "pod-1", "pod-2"]),
        ("a", list([&zone("a", ""), "{}", &zone("b", "")]), vec!["pod-0", "pod-1", "pod-2"]),
        // The node counts before the zone.
        ("a", list([&zone("a", NODE), &zone("a", "node-2"), &zone("b", "node-3")]), vec!["pod-0"]),
        ("a", list([&zone("a", "node-4"), &zone("a", "node-2"), &zone("b", "node-3")]), vec!["pod-0", "pod-1"]),
    ];
    for (zone, endpoints, servers) in cases {
        cluster.set_node(&[("topology.kubernetes.io/zone", zone)]);
        cluster.slice("web", Family::V4, PORTS_8080, &endpoints);
        cluster.sync();
        assert_eq!(cluster.remote.servers("10.96.0.16:80", 40), servers, "{zone}");
    }
}

/// Headless Services and ExternalNames have no rules, and addresses without a Service do not leave the node.
pub fn without_addresses(cluster: &mut Cluster) {
    cluster.service(
        "headless",
        r#"{"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}"#,
        "",
    );
    cluster.service("elsewhere", r#"{"type":"ExternalName","externalName":"example.com"}"#, "");
    cluster.endpoints("headless", "TCP", 8080, &[0]);
    assert_eq!(cluster.sync().ports, 0);
    assert!(cluster.proxier.plans().is_empty());
    cluster.proxier.set_service_cidrs(vec!["10.96.0.0/16".parse().expect("a range")]);
    cluster.sync();
    assert!(cluster.pods[0].is_dropped("10.96.0.99:80"));
}

/// A sync, a restart and a killed proxy interrupt no connection.
pub fn connections_survive(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    cluster.service("web", &spec(17, TCP_80), "");
    cluster.endpoints("web", "TCP", 8080, &[0]);
    cluster.sync();
    let mut streams: Vec<_> = [&cluster.pods[2], &cluster.outside, &cluster.node]
        .iter()
        .map(|client| client.connect("10.96.0.17:80"))
        .collect();
    let mut check = |cluster: &Cluster, what: &str| {
        for stream in &mut streams {
            assert_eq!(next_reply(stream).unwrap_or_else(|error| panic!("{what}: {error}")).server, "pod-0");
            stream.write_all(b"?").expect("sent");
        }
        assert_eq!(cluster.pods[1].servers("10.96.0.17:80", 5).len(), 1, "{what}");
    };
    check(cluster, "at first");
    cluster.endpoints("web", "TCP", 8080, &[1]);
    cluster.sync();
    check(cluster, "after an update");
    if cluster.translates() {
        cluster.restart();
        check(cluster, "after a restart");
    }
    cluster.proxier.request_replacement();
    cluster.sync();
    check(cluster, "after a replacement");
}

/// Rules that another process deletes are noticed and repaired; rules of others are not touched.
pub fn repair(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    shown("nft", &["add", "table", "ip", "foreign"]);
    shown("nft", &["add", "chain", "ip", "foreign", "docker"]);
    cluster.service("web", &spec(18, TCP_80), "");
    cluster.endpoints("web", "TCP", 8080, &[0, 1]);
    cluster.sync();
    assert!(!cluster.proxier.check_rules().expect("checked"), "own changes are not reported");
    shown("nft", &["add", "rule", "ip", "foreign", "docker", "counter"]);
    assert!(!cluster.proxier.check_rules().expect("checked"), "changes of other tables are not reported");
    let foreign = add_foreign_chains(&["nat", "filter"]);
    let damages = damages(cluster);
    for damage in damages.iter().map(|words| words.iter().map(String::as_str).collect::<Vec<&str>>()) {
        assert!(cluster.pods[2].tcp("10.96.0.18:80").is_ok(), "before {damage:?}");
        shown(damage[0], &damage[1..]);
        assert!(cluster.proxier.check_rules().expect("checked"), "{damage:?} is not noticed");
        assert!(cluster.sync().full);
        assert_eq!(cluster.pods[2].servers("10.96.0.18:80", 30), ["pod-0", "pod-1"], "after {damage:?}");
        assert!(!cluster.proxier.check_rules().expect("checked"));
        // A flushed table has no foreign rules either.
        if damage[0] == "iptables" && damage.len() == 4 {
            add_foreign_chains(&damage[2..3]);
        }
        assert_eq!(foreign_rules(), foreign, "after {damage:?}");
    }
    assert!(ruleset().contains("chain docker"), "a foreign table is gone");
    cluster.proxier.request_replacement();
    cluster.sync();
    assert_eq!(foreign_rules(), foreign, "after a replacement");
    // Once more, since a flushed ruleset has no foreign table either.
    shown("nft", &["flush", "ruleset"]);
    assert!(cluster.proxier.check_rules().expect("checked"));
    cluster.sync();
    assert_eq!(cluster.pods[2].servers("10.96.0.18:80", 30), ["pod-0", "pod-1"]);
}

/// Chains like Docker's with a jump to each, and all rules that are not the proxy's.
fn add_foreign_chains(tables: &[&str]) -> Vec<String> {
    for table in tables {
        let hook = if *table == "nat" { "PREROUTING" } else { "FORWARD" };
        let chains = shown("iptables", &["-t", table, "-S"]);
        if !chains.contains("-N DOCKER") {
            shown("iptables", &["-t", table, "-N", "DOCKER"]);
        }
        shown("iptables", &["-t", table, "-A", "DOCKER", "-s", "198.51.100.7/32", "-j", "RETURN"]);
        shown("iptables", &["-t", table, "-A", hook, "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DOCKER"]);
    }
    foreign_rules()
}

/// What `iptables-save` prints without chains and rules of the proxy, and without counters.
fn foreign_rules() -> Vec<String> {
    let all = shown("iptables-save", &[]);
    let is_rule = |line: &&str| line.starts_with("-A ") || line.starts_with(':');
    let foreign = all.lines().filter(is_rule).filter(|line| !line.contains("TP-"));
    // A declaration ends with its counters.
    foreign.map(|line| line.split(" [").next().unwrap_or(line).to_string()).collect()
}

fn damages(cluster: &Cluster) -> Vec<Vec<String>> {
    let words = |text: String| text.split(' ').map(str::to_string).collect();
    let nft = |what: &str| words(format!("nft {what}").replace("TABLE", TABLE));
    if cluster.proxier.mode() != Mode::Iptables {
        // In the mode userspace, a Service has one endpoint: the proxy.
        let class =
            if cluster.translates() { "flush set ip TABLE services-2" } else { "flush set ip TABLE services-1" };
        let what = [
            "delete table ip TABLE",
            "flush chain ip TABLE services",
            "flush table ip TABLE",
            "flush map ip TABLE services-endpoints",
            class,
        ];
        return what.map(nft).into();
    }
    // A chain of one Service among them.
    let chains = shown("iptables", &["-t", "nat", "-S"]);
    let of_service = chains.lines().filter_map(|line| line.strip_prefix("-N ")).find(|chain| chain.contains("-SVC"));
    let flush = format!("iptables -t nat -F {}", of_service.expect("a chain"));
    vec![words("iptables -t nat -F".to_string()), words("iptables -t filter -F".to_string()), words(flush)]
}

pub fn single_stack_ipv6(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    let spec = r#"{"type":"NodePort","clusterIP":"fd00:96::19","clusterIPs":["fd00:96::19"],"ipFamilies":["IPv6"],
        "ports":[{"protocol":"TCP","port":80,"nodePort":30090},{"name":"u","protocol":"UDP","port":80}]}"#;
    cluster.service("web", spec, "");
    let list = [ready(&cluster.pods[0], Family::V6, NODE), ready(&cluster.remote, Family::V6, "node-2")];
    cluster.slice(
        "web",
        Family::V6,
        r#"[{"name":"","protocol":"TCP","port":8080},{"name":"u","protocol":"UDP","port":8080}]"#,
        &list,
    );
    cluster.sync();
    assert_eq!(cluster.pods[2].servers("[fd00:96::19]:80", 40), ["pod-0", "remote"]);
    assert_eq!(cluster.outside.servers("[fd02::1]:30090", 40), ["pod-0", "remote"]);
    assert!(cluster.pods[2].udp("[fd00:96::19]:80").is_ok());
    assert!(cluster.pods[2].is_refused("192.0.2.1:30090"));
}

/// This kernel may have no SCTP sockets: packets are written and read by hand.
pub fn sctp(cluster: &mut Cluster) {
    let spec = r#"{"type":"NodePort","clusterIP":"10.96.0.20","clusterIPs":["10.96.0.20"],
        "ports":[{"protocol":"SCTP","port":3868,"nodePort":30868}]}"#;
    cluster.service("diameter", spec, "");
    cluster.slice(
        "diameter",
        Family::V4,
        r#"[{"name":"","protocol":"SCTP","port":3000}]"#,
        &[ready(&cluster.pods[0], Family::V4, NODE)],
    );
    cluster.sync();
    let server = cluster.pods[0].raw_sctp();
    let client = cluster.pods[2].raw_sctp();
    let seen = associate(&client, &server, ("10.96.0.20", 3868));
    assert_eq!((seen.source, seen.source_port), (cluster.pods[2].ip, sctp::CLIENT_PORT), "a pod keeps its address");
    let outside = cluster.outside.raw_sctp();
    associate(&outside, &server, (NODE_IP, 30868));
}

/// Sends the first packet of an association to an address, and its reply back. Returns what the server received.
fn associate(client: &OwnedFd, server: &OwnedFd, (to, port): (&str, u16)) -> sctp::Packet {
    let (received, reply) = stdx::wait::until_ok("a reply", Duration::from_secs(20), || {
        sctp::send_init(client, to, port);
        let received = sctp::receive(server).ok_or("no packet arrives")?;
        sctp::send_init_ack(server, &received);
        sctp::receive(client).map(|reply| (received, reply)).ok_or("no reply arrives")
    });
    assert_eq!(received.port, 3000, "{received:?}");
    let expected = sctp::Packet { source: to.parse().expect("an address"), source_port: port, port: sctp::CLIENT_PORT };
    assert_eq!(reply, expected, "the reply has the address of the Service");
    received
}

/// Proxies of two clusters on one machine do not touch each other.
pub fn two_proxies(cluster: &mut Cluster) {
    serve_all(cluster, 8080);
    cluster.service("web", &spec(21, TCP_80), "");
    cluster.endpoints("web", "TCP", 8080, &[0]);
    cluster.sync();
    let mut other = cluster.other_proxier("another-test");
    let service = r#"{"metadata":{"name":"web","namespace":"default"},"spec":{"type":"ClusterIP","clusterIP":"10.97.0.21",
        "clusterIPs":["10.97.0.21"],"ports":[{"protocol":"TCP","port":80}]}}"#;
    let slice = format!(
        r#"{{"metadata":{{"name":"web","namespace":"default","labels":{{"kubernetes.io/service-name":"web"}}}},
        "addressType":"IPv4","ports":{PORTS_8080},"endpoints":[{}]}}"#,
        ready(&cluster.pods[1], Family::V4, NODE)
    );
    let key = client::key("default", "web");
    other.set_service(&key, Some(&tree(service)));
    other.set_slice(&key, Some(&tree(&slice)));
    other.sync().expect("a sync");
    assert_eq!(cluster.pods[2].servers("10.96.0.21:80", 5), ["pod-0"]);
    assert_eq!(cluster.pods[2].servers("10.97.0.21:80", 5), ["pod-1"]);
    assert!(!cluster.proxier.check_rules().expect("checked"), "rules of the other proxy are not noticed");
    cluster.proxier.request_replacement();
    cluster.sync();
    assert_eq!(cluster.pods[2].servers("10.97.0.21:80", 5), ["pod-1"]);
    other.cleanup().expect("cleanup");
    assert_eq!(cluster.pods[2].servers("10.96.0.21:80", 5), ["pod-0"]);
    assert!(cluster.pods[2].is_dropped("10.97.0.21:80"));
}

/// Many Services in one transaction, and changes of a few of them.
pub fn many_services(cluster: &mut Cluster) {
    const COUNT: usize = 1000;
    serve_all(cluster, 8080);
    let address = |number: usize| format!("10.96.{}.{}", 10 + number / 200, number % 200 + 1);
    // Each has another number of endpoints than its neighbours; only the pods among them exist.
    let filler = |number: usize, at: usize| {
        format!(r#"{{"addresses":["10.245.{}.{}"],"nodeName":"node-2"}}"#, number / 200, at + 1)
    };
    for number in 0..COUNT {
        let vip = address(number);
        cluster.service(
            &format!("web-{number}"),
            &format!(r#"{{"type":"ClusterIP","clusterIP":"{vip}","clusterIPs":["{vip}"],{TCP_80}}}"#),
            "",
        );
        let endpoints: Vec<String> = (0..number % 10 + 1).map(|at| filler(number, at)).collect();
        cluster.slice(&format!("web-{number}"), Family::V4, PORTS_8080, &endpoints);
    }
    assert_eq!(cluster.sync().ports, COUNT);
    assert!(!cluster.proxier.check_rules().expect("checked"), "own changes are not reported");
    for number in [0, 1, COUNT / 2, COUNT - 1] {
        let pod = ready(&cluster.pods[number % 3], Family::V4, NODE);
        cluster.slice(&format!("web-{number}"), Family::V4, PORTS_8080, &[pod]);
        assert_eq!(cluster.sync().ports, 1);
        assert_eq!(cluster.remote.servers(&format!("{}:80", address(number)), 5), [format!("pod-{}", number % 3)]);
    }
    for number in 0..COUNT {
        cluster.delete_service(&format!("web-{number}"));
    }
    assert_eq!(cluster.sync().ports, COUNT);
    assert!(cluster.remote.is_dropped(&format!("{}:80", address(0))));
}
