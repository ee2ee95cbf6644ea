//! Clusters with IPv6: both families, and IPv6 alone.

use std::collections::BTreeSet;

use super::Table;
use super::case::{Case, condition};
use super::cluster::{Cluster, Runtime};
use super::services::{addresses_of, answering, client};
use super::{check, services};

const ADDRESS4: &str = "192.0.2.10";
const ADDRESS6: &str = "fd02::10";

/// Like the network of other clusters, with addresses of these families. IPv6 addresses are used without a check for
/// duplicates, which takes a second.
fn enter(v4: bool) -> String {
    let v4 = if v4 { "ip address add 192.0.2.10/24 dev way && ip route add default via 192.0.2.1 &&" } else { "" };
    format!(
        "ip link set lo up && ip link add way type veth peer name out && ip link set way up && ip link set out up && {v4} \
         ip address add fd02::10/64 dev way nodad && ip -6 route add default via fd02::1 && mount -t tmpfs none /run && \
         mount -t tmpfs none /var/log && mkdir -p /var/lib/cni && mount -t tmpfs none /var/lib/cni"
    )
}

const DUAL_STACK: Table = &[
    ("pods have addresses of both families", pod_addresses),
    ("services of both families", dual_stack_services),
    ("services of one family", chosen_families),
];
const IPV6_ALONE: Table = &[("an application with ipv6 alone", ipv6_alone)];

fn up(v4: bool, flags: &[&str]) -> Cluster {
    let cluster = Cluster::up_entering(Runtime::Embedded, &enter(v4), flags);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    cluster
}

#[test]
fn dual_stack_clusters_work() {
    let flags = ["--cluster-cidr", "10.42.0.0/16,fd00:42::/56", "--service-cidr", "10.96.0.0/16,fd00:96::/112"];
    for mode in ["nftables", "iptables"] {
        let cluster = up(true, &[&flags[..], &["--proxy-mode", mode]].concat());
        check(&cluster, &[DUAL_STACK, services::CASES]);
    }
}

#[test]
fn ipv6_clusters_work() {
    let flags = ["--cluster-cidr", "fd00:42::/56", "--service-cidr", "fd00:96::/112"];
    for mode in ["nftables", "iptables"] {
        let cluster = up(false, &[&flags[..], &["--proxy-mode", mode]].concat());
        check(&cluster, &[IPV6_ALONE]);
    }
}

fn ips(tree: &api::Tree, path: &str) -> Vec<String> {
    tree.list(path).iter().map(|entry| entry.as_str().unwrap_or(entry.str("ip")).to_string()).collect()
}

/// An address as a part of URLs.
fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_string() }
}

const WEB: &str = "terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE, command: \
    [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp'], ports: [{name: http, containerPort: 8080}], \
    readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}}]";

fn web(case: &Case) -> BTreeSet<String> {
    case.pod("web", WEB);
    case.until_ready("web");
    ["web".to_string()].into()
}

fn pod_addresses(case: &Case) {
    let expected = web(case);
    client(case, "client");
    let pod = case.pods("web");
    let own = ips(&pod, "status.podIPs");
    assert!(own.len() == 2 && own[0].starts_with("10.42.") && own[1].starts_with("fd00:42:"), "{own:?}");
    assert_eq!(pod.str("status.podIP"), own[0]);
    assert_eq!(ips(&pod, "status.hostIPs"), [ADDRESS4, ADDRESS6]);
    for address in &own {
        let url = format!("http://{}:8080/", in_url(address));
        assert_eq!(answering(case, "client", &url), expected, "{url}");
        let page = case.connect(&format!("{}:8080", in_url(address))).unwrap_or_default();
        assert!(page.trim_end().ends_with("web"), "{address}: {page}");
    }
    let node = case.read("/api/v1/nodes/node");
    assert_eq!(ips(&node, "spec.podCIDRs").len(), 2);
    let addresses: Vec<&str> = node.list("status.addresses").iter().map(|one| one.str("address")).collect();
    assert!(addresses.contains(&ADDRESS4) && addresses.contains(&ADDRESS6), "{addresses:?}");
    let hosts = case.exec("web", "cat /etc/hosts");
    assert!(own.iter().all(|address| hosts.contains(&format!("{address}\tweb"))), "{hosts}");
}

fn dual_stack_services(case: &Case) {
    let expected = web(case);
    client(case, "client");
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, ipFamilyPolicy: RequireDualStack, \
         selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}}",
    );
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: headless}, spec: {clusterIP: None, ipFamilyPolicy: \
         RequireDualStack, selector: {app: web}, ports: [{name: http, port: 8080}]}}",
    );
    let service = case.object("services", "web");
    let own = ips(&service, "spec.clusterIPs");
    assert!(own.len() == 2 && own[0].starts_with("10.96.") && own[1].starts_with("fd00:96::"), "{own:?}");
    let pod = ips(&case.pods("web"), "status.podIPs");
    for (name, addresses) in [("web", &own), ("headless", &pod)] {
        let both: BTreeSet<String> = addresses.iter().cloned().collect();
        case.until(name, || addresses_of(case, name), |seen| *seen == both);
        for address in addresses {
            let back = case.exec("client", &format!("/usr/bin/getent hosts {address}"));
            assert!(name != "web" || back.contains(&format!("web.{}.svc.cluster.local", case.namespace)), "{back}");
        }
    }
    let port = service.list("spec.ports")[0].int("nodePort").expect("a node port");
    let addresses = [format!("{}:80", own[0]), format!("[{}]:80", own[1])];
    let node_ports = [format!("{ADDRESS4}:{port}"), format!("[{ADDRESS6}]:{port}")];
    for address in addresses.iter().chain(&node_ports) {
        case.until(address, || answering(case, "client", &format!("http://{address}/")), |seen| *seen == expected);
        let page = case.until(address, || case.connect(address), Option::is_some).unwrap_or_default();
        assert!(page.trim_end().ends_with("web"), "{address}: {page}");
    }
    for family in ["-4", "-6"] {
        let script = format!("/usr/bin/curl {family} -sS --max-time 5 http://web/");
        assert_eq!(case.exec("client", &script), "web", "{family}");
    }
    // Without endpoints both addresses refuse.
    case.kubectl(&["delete", "pod", "web", "--now"]);
    for address in &addresses {
        let script = format!("/usr/bin/curl -sS --max-time 20 http://{address}/ 2>&1 || true");
        let is_refused = |text: &String| text.contains("refused") || text.contains("Couldn't connect");
        case.until(address, || case.exec("client", &script), is_refused);
    }
}

/// `ipFamilies` selects the family, and a change of the policy adds the other one.
fn chosen_families(case: &Case) {
    let expected = web(case);
    client(case, "client");
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: six}, spec: {ipFamilies: [IPv6], selector: {app: web}, \
         ports: [{port: 80, targetPort: http}]}}",
    );
    let own = ips(&case.object("services", "six"), "spec.clusterIPs");
    assert!(own.len() == 1 && own[0].starts_with("fd00:96::"), "{own:?}");
    case.until("the service", || answering(case, "client", "http://six/"), |seen| *seen == expected);
    assert_eq!(addresses_of(case, "six"), own.into_iter().collect());
    case.kubectl(&["patch", "service", "six", "--patch", r#"{"spec":{"ipFamilyPolicy":"PreferDualStack"}}"#]);
    let own = ips(&case.object("services", "six"), "spec.clusterIPs");
    assert!(own.len() == 2 && own[1].starts_with("10.96."), "{own:?}");
    let url = format!("http://{}/", own[1]);
    case.until("the other family", || answering(case, "client", &url), |seen| *seen == expected);
    let both: BTreeSet<String> = own.into_iter().collect();
    case.until("both addresses", || addresses_of(case, "six"), |seen| *seen == both);
}

fn ipv6_alone(case: &Case) {
    let expected = web(case);
    client(case, "client");
    case.kubectl(&["expose", "pod", "web", "--port=80", "--target-port=http", "--type=NodePort"]);
    let pod = case.pods("web");
    let own = ips(&pod, "status.podIPs");
    assert!(own.len() == 1 && own[0].starts_with("fd00:42:"), "{own:?}");
    assert_eq!(ips(&pod, "status.hostIPs"), [ADDRESS6]);
    let service = case.object("services", "web");
    let ip = service.str("spec.clusterIP").to_string();
    let port = service.list("spec.ports")[0].int("nodePort").expect("a node port");
    for host in [
        "web".to_string(),
        format!("web.{}.svc.cluster.local", case.namespace),
        format!("[{ip}]"),
        format!("[{ADDRESS6}]:{port}"),
    ] {
        case.until(&host, || answering(case, "client", &format!("http://{host}/")), |seen| *seen == expected);
    }
    for address in [format!("[{ip}]:80"), format!("[{ADDRESS6}]:{port}")] {
        let page = case.until(&address, || case.connect(&address), Option::is_some).unwrap_or_default();
        assert!(page.trim_end().ends_with("web"), "{address}: {page}");
    }
    assert_eq!(addresses_of(case, "web"), [ip.clone()].into());
    let back = case.exec("client", &format!("/usr/bin/getent hosts {ip}"));
    assert!(back.contains(&format!("web.{}.svc.cluster.local", case.namespace)), "{back}");
    let resolver = case.exec("client", "cat /etc/resolv.conf");
    assert!(resolver.contains("nameserver fd00:96::a\n"), "{resolver}");
    let itself = case.exec("web", &format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {ip} 80 | tail -1"));
    assert_eq!(itself, "web", "a pod reaches itself through its service");
    for host in ["kubernetes.default.svc", "[fd00:96::1]"] {
        let get = format!(
            "cd /var/run/secrets/kubernetes.io/serviceaccount && /usr/bin/curl -sS --cacert ca.crt \
             -H \"Authorization: Bearer $(cat token)\" https://{host}/apis"
        );
        let output = case.exec("client", &get);
        assert!(output.contains("APIGroupList"), "{host}: {output}");
    }
    assert_eq!(case.exec("web", "echo over streams"), "over streams");
    case.kubectl(&["delete", "pod", "web", "--now"]);
    let script = format!("/usr/bin/curl -sS --max-time 20 'http://[{ip}]/' 2>&1 || true");
    let is_refused = |text: &String| text.contains("refused") || text.contains("Couldn't connect");
    case.until("a refusal", || case.exec("client", &script), is_refused);
}
