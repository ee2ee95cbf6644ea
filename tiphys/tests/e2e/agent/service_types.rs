//! Kinds of services and of ports: switches between them, affinity, several protocols, ports of the host, and services
//! through the API server.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use super::Table;
use super::case::Case;
use super::cluster::{ADDRESS, NGINX};
use super::services::{answering, client, machine_volumes, service};

pub const CASES: Table = &[
    ("switches between types of services", switches),
    ("affinity of clients", affinity),
    ("several protocols and ports", protocols),
    ("host ports by address and protocol", host_ports),
    ("services through the api server", through_the_server),
    ("a load balancer and its source ranges", load_balancer),
];

/// Replies to UDP with its host name and the request.
const UDP: &str = "use IO::Socket::INET; use Sys::Hostname; \
    my $s = IO::Socket::INET->new(LocalPort => 9000, Proto => q(udp)) or die; \
    while (defined $s->recv(my $b, 512)) { $s->send(hostname() . q( ) . $b) }";

/// A pod that replies at port 9000, to TCP with its name and to UDP with its name and the request.
fn server(case: &Case, name: &str, ports: &str) {
    let (volumes, mounts) = machine_volumes(&[]);
    let tcp = "hostname > /tmp/index.html; exec httpd -f -p 9000 -h /tmp";
    case.pod(
        name,
        &format!(
            "terminationGracePeriodSeconds: 1, volumes: [{volumes}], containers: [\
             {{name: tcp, image: IMAGE, command: [sh, -c, {tcp:?}], ports: [{ports}]}}, \
             {{name: udp, image: IMAGE, command: [/usr/bin/perl, -e, '{UDP}'], volumeMounts: [{mounts}]}}]"
        ),
    );
}

fn one(name: &str) -> BTreeSet<String> {
    [name.to_string()].into()
}

fn udp_from_pod(case: &Case, to: &str) -> String {
    let script = format!(
        "timeout 3 /usr/bin/bash -c 'exec 3<>/dev/udp/{}; printf hello >&3; head -c 9 <&3' || echo FAILED",
        to.replace(':', "/")
    );
    case.exec("client", &script)
}

fn udp_from_machine(to: &str) -> std::io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect(to)?;
    socket.send(b"hello")?;
    let mut reply = [0; 64];
    let length = socket.recv(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply[..length]).into_owned())
}

fn switches(case: &Case) {
    server(case, "web", "");
    server(case, "far", "");
    client(case, "client");
    for name in ["web", "far"] {
        case.until_ready(name);
    }
    case.kubectl(&["expose", "pod", "far", "--port=80", "--target-port=9000"]);
    case.kubectl(&[
        "create",
        "service",
        "externalname",
        "web",
        &format!("--external-name=far.{}.svc.cluster.local", case.namespace),
    ]);
    let answers = |url: &str, name: &str| {
        case.until(url, || answering(case, "client", url), |seen| *seen == one(name));
    };
    answers("http://web/", "far");
    let patch = |patch: &str| case.kubectl(&["patch", "service", "web", "--patch", patch]);
    let ports = r#""ports":[{"port":80,"targetPort":9000}]"#;
    patch(&format!(r#"{{"spec":{{"type":"ClusterIP","externalName":null,"selector":{{"app":"web"}},{ports}}}}}"#));
    answers("http://web/", "web");
    patch(r#"{"spec":{"type":"NodePort"}}"#);
    let port = service(case, "web").list("spec.ports")[0].int("nodePort").expect("a node port");
    answers(&format!("http://{ADDRESS}:{port}/"), "web");
    patch(r#"{"spec":{"type":"ClusterIP"}}"#);
    let at_port =
        || case.exec("client", &format!("curl -sS --max-time 2 http://{ADDRESS}:{port}/ 2>&1 || echo FAILED"));
    case.until("the end of the node port", at_port, |response| response.contains("FAILED"));
    answers("http://web/", "web");
    let ip = service(case, "web").str("spec.clusterIP").to_string();
    patch(&format!(
        r#"{{"spec":{{"type":"ExternalName","externalName":"far.{}.svc.cluster.local","clusterIP":null,"clusterIPs":null}}}}"#,
        case.namespace
    ));
    answers("http://web/", "far");
    let at_address = || case.exec("client", &format!("curl -sS --max-time 2 http://{ip}/ 2>&1 || echo FAILED"));
    case.until("the end of the cluster IP", at_address, |response| response.contains("FAILED"));
}

fn affinity(case: &Case) {
    let servers = ["a", "b", "c"];
    servers.iter().for_each(|name| server(case, name, ""));
    client(case, "client");
    servers.iter().for_each(|name| drop(case.until_ready(name)));
    servers.iter().for_each(|name| drop(case.kubectl(&["label", "pod", name, "group=all"])));
    case.kubectl(&[
        "expose",
        "pod",
        "a",
        "--name=sticky",
        "--selector=group=all",
        "--port=80",
        "--target-port=9000",
        "--session-affinity=ClientIP",
    ]);
    let names: BTreeSet<String> = servers.map(str::to_string).into();
    let answers = || answering(case, "client", "http://sticky/");
    let seen = case.until("one server", answers, |seen| seen.len() == 1 && seen.is_subset(&names));
    assert_eq!(answers(), seen, "the client stays");
    case.kubectl(&["patch", "service", "sticky", "--patch", r#"{"spec":{"sessionAffinity":"None"}}"#]);
    case.until("all servers", answers, |seen| *seen == names);
    case.kubectl(&["patch", "service", "sticky", "--patch", r#"{"spec":{"sessionAffinity":"ClientIP"}}"#]);
    case.until("one server again", answers, |seen| seen.len() == 1 && seen.is_subset(&names));
}

fn protocols(case: &Case) {
    server(case, "both", "{name: named, containerPort: 9000}");
    client(case, "client");
    let ip = case.until_ready("both").str("status.podIP").to_string();
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: both}, spec: {type: NodePort, selector: {app: both}, ports: [\
         {name: web, port: 53, targetPort: named}, {name: udp, port: 53, protocol: UDP, targetPort: 9000}, \
         {name: again, port: 8053, targetPort: 9000}]}}",
    );
    let service = service(case, "both");
    let node_port = service.list("spec.ports")[1].int("nodePort").expect("a node port");
    for url in ["http://both:53/", "http://both:8053/"] {
        case.until(url, || answering(case, "client", url), |seen| *seen == one("both"));
    }
    let cluster_ip = service.str("spec.clusterIP");
    // Through the service by name and address, and without it: from pod to pod, and from the node to the pod.
    for to in ["both:53".to_string(), format!("{cluster_ip}:53"), format!("{ip}:9000")] {
        case.until(&to, || udp_from_pod(case, &to), |response| response == "both hell");
    }
    for to in [format!("{cluster_ip}:53"), format!("{ADDRESS}:{node_port}"), format!("{ip}:9000")] {
        let reply = || udp_from_machine(&to).unwrap_or_default();
        case.until(&to, reply, |response| response == "both hello");
    }
}

/// One port of the machine, for different addresses and protocols.
fn host_ports(case: &Case) {
    const PORT: u16 = 18085;
    let port = |rest: &str| format!("{{containerPort: 9000, hostPort: {PORT}, {rest}}}");
    server(case, "loopback", &port("hostIP: 127.0.0.1"));
    server(case, "outer", &port(&format!("hostIP: {ADDRESS}")));
    server(case, "udp", &port(&format!("hostIP: {ADDRESS}, protocol: UDP")));
    for name in ["loopback", "outer", "udp"] {
        case.until_ready(name);
    }
    for (address, name) in [("127.0.0.1", "loopback"), (ADDRESS, "outer")] {
        let page = || case.connect(&format!("{address}:{PORT}")).unwrap_or_default();
        case.until(address, page, |page| page.trim_end().ends_with(name));
    }
    case.until(
        "udp",
        || udp_from_machine(&format!("{ADDRESS}:{PORT}")).unwrap_or_default(),
        |response| response == "udp hello",
    );
    assert!(udp_from_machine(&format!("127.0.0.1:{PORT}")).is_err(), "the port is another address's");
}

fn through_the_server(case: &Case) {
    case.pod("web", &format!("containers: [{{name: main, image: {NGINX:?}, ports: [{{containerPort: 80}}]}}]"));
    case.until_ready("web");
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}",
    );
    let base = format!("/api/v1/namespaces/{}", case.namespace);
    let file = case.file("body", "{}");
    let is_right = |response: &String| response.starts_with("nginx in web for ");
    for service in ["services/web:80", "services/web:http", "services/http:web:80", "pods/web", "pods/http:web:80"] {
        let path = format!("{base}/{service}/proxy/some/path?query=1");
        let get = || String::from_utf8_lossy(&case.run(&["get", "--raw", &path]).stdout).into_owned();
        case.until(service, get, is_right);
        for verb in ["create", "replace", "delete"] {
            let response = case.kubectl(&[verb, "--raw", &path, "--filename", &file]);
            assert!(is_right(&response), "{verb} {path}: {response}");
        }
    }
    // A named port has to be named.
    let refused = case.refused(&["get", "--raw", &format!("{base}/services/web/proxy/")]);
    assert!(refused.contains("no endpoints available for service"), "{refused}");
    let refused = case.refused(&["get", "--raw", &format!("{base}/services/web:81/proxy/")]);
    assert!(refused.contains("no service port") || refused.contains("ServiceUnavailable"), "{refused}");
}

fn load_balancer(case: &Case) {
    server(case, "web", "");
    client(case, "client");
    case.until_ready("web");
    case.kubectl(&["expose", "pod", "web", "--type=LoadBalancer", "--port=8087", "--target-port=9000"]);
    let ingress = |service: &api::Tree| service.list("status.loadBalancer.ingress").len();
    let service = case.until("an address", || service(case, "web"), |service| ingress(service) > 0);
    let address = service.list("status.loadBalancer.ingress")[0].str("ip").to_string();
    let url = format!("http://{address}:8087/");
    case.until("an answer in a pod", || answering(case, "client", &url), |seen| *seen == one("web"));
    let from_machine = || {
        let output = case.cluster.command("curl").args(["-sS", "--max-time", "3", &url]).output().expect("curl");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    case.until("an answer on the node", from_machine, |text| text == "web");
    let patch = |ranges: &str| {
        let patch = format!(r#"{{"spec":{{"loadBalancerSourceRanges":[{ranges}]}}}}"#);
        case.kubectl(&["patch", "service", "web", "--type=merge", "-p", &patch]);
    };
    let once = || case.exec("client", &format!("/usr/bin/curl -s --max-time 1 {url} || echo FAILED"));
    patch(r#""198.51.100.0/24""#);
    case.until("no answer outside of the ranges", once, |text| text == "FAILED");
    patch("");
    case.until("an answer without ranges", once, |text| text == "web");
}
