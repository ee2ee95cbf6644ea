//! The network of a pod, its names and its files.

use super::CaseFn;
use super::case::{Case, condition, container};
use super::cluster::ADDRESS;

pub const CASES: &[(&str, CaseFn)] = &[
    ("pods reach each other", addresses),
    ("host network and host ports", host),
    ("pods reach the api server", api_server),
    ("host names and aliases", names),
    ("resolv conf by policy", dns),
    ("shared and host process namespaces", processes),
];

const SERVE: &str =
    "name: main, image: IMAGE, command: [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p PORT -h /tmp']";

fn serve(port: u16) -> String {
    SERVE.replace("PORT", &port.to_string())
}

fn addresses(case: &Case) {
    for pod in ["one", "two"] {
        case.pod(pod, &format!("containers: [{{{}}}]", serve(8080)));
    }
    let ip = case.until_ready("one").str("status.podIP").to_string();
    case.until_ready("two");
    let reply = case.exec("two", &format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {ip} 8080 | tail -1"));
    assert_eq!(reply, "one");
    let pod = case.pods("one");
    assert_eq!(pod.list("status.podIPs")[0].str("ip"), ip);
    assert_eq!((pod.str("status.hostIP"), pod.str("status.qosClass")), (ADDRESS, "BestEffort"));
    let wide = case.kubectl(&["get", "pod", "one", "-o", "wide"]);
    assert!(wide.contains(&ip) && wide.contains("node"), "{wide}");
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), "True");
}

/// By the endpoint of its service, as the service account of the pod; the API server listens on the loopback otherwise.
fn api_server(case: &Case) {
    let slice = case.read("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes");
    let endpoint = slice.list("endpoints").first().map(|one| one.list("addresses").to_vec()).unwrap_or_default();
    let address = endpoint.first().and_then(api::Tree::as_str).expect("an address");
    let port = slice.list("ports").first().and_then(|port| port.int("port")).expect("a port");
    // The machine's own curl: the image has no client that speaks TLS as servers do today.
    let ask = format!(
        "cd /var/run/secrets/kubernetes.io/serviceaccount && \
         curl -sS --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" https://{address}:{port}/apis"
    );
    let mounts = "volumeMounts: [{name: usr, mountPath: /usr}, {name: lib, mountPath: /lib}, \
                  {name: lib64, mountPath: /lib64}]";
    let volume = |name: &str, path: &str| format!("{{name: {name}, hostPath: {{path: {path}}}}}");
    let volumes = [volume("usr", "/usr"), volume("lib", "/usr/lib"), volume("lib64", "/usr/lib64")].join(", ");
    for (name, spec) in [("client", ""), ("host-client", "hostNetwork: true,")] {
        let output = case.script(name, &ask, mounts, &format!("{spec} volumes: [{volumes}],"));
        assert!(output.contains("APIGroupList"), "{name}: {output}");
    }
}

fn host(case: &Case) {
    case.pod("own", &format!("hostNetwork: true, containers: [{{{}}}]", serve(18081)));
    case.pod(
        "mapped",
        &format!("containers: [{{{}, ports: [{{containerPort: 8080, hostPort: 18082}}]}}]", serve(8080)),
    );
    let pod = case.until_ready("own");
    assert_eq!(pod.str("status.podIP"), ADDRESS);
    case.until_ready("mapped");
    let page = |port: u16| case.until("a page", || case.connect(&format!("{ADDRESS}:{port}")), Option::is_some);
    assert!(page(18082).unwrap_or_default().ends_with("mapped\n"));
    assert!(page(18081).unwrap_or_default().contains(" 200 OK"));
    case.kubectl(&["delete", "pod", "mapped", "--now"]);
    assert_eq!(case.connect(&format!("{ADDRESS}:18082")), None, "the port goes with the pod");
}

fn names(case: &Case) {
    let hosts = "hostname; hostname -f 2>/dev/null || true; cat /etc/hosts; cat /etc/hostname";
    let output = case.script("plain", hosts, "", "hostAliases: [{ip: 192.0.2.99, hostnames: [far.example, far]}],");
    assert!(output.starts_with("plain\n"), "{output}");
    for line in ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "192.0.2.99\tfar.example\tfar"] {
        assert!(output.lines().any(|seen| seen == line), "{line}: {output}");
    }
    let ip = case.pods("plain").str("status.podIP").to_string();
    assert!(output.contains(&format!("{ip}\tplain\n")), "{output}");
    let domain = format!("sub.{}.svc.cluster.local", case.namespace);
    let output = case.script("named", hosts, "", "hostname: first, subdomain: sub,");
    assert!(output.starts_with(&format!("first\nfirst.{domain}\n")), "{output}");
    assert!(output.contains(&format!("\tfirst.{domain}\tfirst\n")), "{output}");
    let output = case.script("whole", hosts, "", "hostname: first, subdomain: sub, setHostnameAsFQDN: true,");
    assert!(output.starts_with(&format!("first.{domain}\n")), "{output}");
    let output = case.script("hosts", hosts, "", "hostNetwork: true,");
    assert!(output.contains("# Kubernetes-managed hosts file (host network)."), "{output}");
}

fn dns(case: &Case) {
    let read = "cat /etc/resolv.conf";
    let none = case.script(
        "none",
        read,
        "",
        "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.53], searches: [one.example, two.example], \
         options: [{name: ndots, value: '2'}, {name: edns0}]},",
    );
    assert_eq!(none, "search one.example two.example\nnameserver 192.0.2.53\noptions ndots:2 edns0");
    // The node's own servers, and one more.
    let default = case.script("default", read, "", "dnsPolicy: Default, dnsConfig: {nameservers: [192.0.2.54]},");
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    for line in own.lines().filter(|line| line.starts_with("nameserver")).take(2) {
        assert!(default.lines().any(|seen| seen == line), "{line}: {default}");
    }
    assert!(default.contains("nameserver 192.0.2.54"), "{default}");
    // The cluster's, by default; the node's search domains follow.
    let cluster = case.script("cluster", read, "", "");
    let domains = format!("search {}.svc.cluster.local svc.cluster.local cluster.local", case.namespace);
    assert!(cluster.starts_with(&domains), "{cluster}");
    assert!(cluster.contains("\nnameserver 10.96.0.10\noptions ndots:5"), "{cluster}");
    let events = case.events("cluster");
    assert!(events.iter().all(|(reason, _)| reason != "MissingClusterDNS"), "{events:?}");
}

fn processes(case: &Case) {
    let look = "ps -o pid,args";
    let output = case.script("alone", look, "", "");
    assert!(output.lines().any(|line| line.trim().starts_with("1 ") && line.contains("sh -c")), "{output}");
    case.pod(
        "together",
        "shareProcessNamespace: true, containers: [{name: main, image: IMAGE}, \
         {name: other, image: IMAGE, command: [sleep, '54321']}]",
    );
    let pod = case.until_ready("together");
    assert!(container(&pod, "other").bool("ready"));
    let seen = case.kubectl(&["exec", "together", "-c", "main", "--", "ps", "-o", "args"]);
    assert!(seen.contains("sleep 54321"), "{seen}");
    let output = case.script("of-host", look, "", "hostPID: true,");
    assert!(output.contains(" up --port 6443"), "{output}");
}
