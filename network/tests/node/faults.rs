//! Failures and crashes at every fault point of an attachment leave nothing behind.

use std::process::{Command, Stdio};

use network::cni::{Attachment, Bandwidth, PortMapping};
use network::fault;
use serde_json::{Value, json};

use crate::support::{Pod, on_host, talk};

/// An attachment that reaches every fault point.
fn everything(pod: &Pod) -> Attachment {
    let bandwidth = Bandwidth {
        ingress_rate: 8_000_000,
        ingress_burst: 8_000_000,
        egress_rate: 8_000_000,
        egress_burst: 8_000_000,
    };
    Attachment {
        port_mappings: vec![PortMapping { host_port: 8080, container_port: 80, ..PortMapping::default() }],
        bandwidth: Some(bandwidth),
        ..pod.attachment()
    }
}

#[test]
fn a_failure_at_every_fault_point_leaves_nothing() {
    for point in fault::POINTS {
        on_host(|host| {
            let cni = host.builtin();
            let pod = host.pod("p");
            let before = host.count();
            fault::arm(point);
            let error = cni.add(&everything(&pod)).unwrap_err().to_string();
            assert!(!fault::disarm(), "{point} was not reached");
            assert!(error.ends_with(&format!("fault at {point}")), "{error}");
            assert_eq!(host.count(), before, "{point}");
            // The next attempt succeeds.
            cni.add(&everything(&pod)).unwrap();
            let server = pod.space.listen("0.0.0.0:80");
            talk(std::net::TcpStream::connect("10.244.7.1:8080"), &server);
            cni.del(&everything(&pod)).unwrap();
        });
    }
}

/// The plugins as a chain of executables, each of which crashes at its fault points.
#[test]
fn del_undoes_a_crash_at_every_fault_point() {
    for point in fault::POINTS.iter().filter(|point| !point.starts_with("cni.")) {
        on_host(|host| {
            let pod = host.pod("p");
            let before = host.count();
            let bridge = json!({
                "type": "bridge", "bridge": "cnio0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
                "ipam": { "type": "host-local", "dataDir": host.path("networks"), "ranges": [[{ "subnet": "10.200.1.0/24" }]] },
            });
            let portmap = json!({ "type": "portmap", "runtimeConfig": { "portMappings": [{ "hostPort": 8080, "containerPort": 80 }] } });
            let bandwidth = json!({ "type": "bandwidth", "ingressRate": 8000, "ingressBurst": 8000, "egressRate": 8000, "egressBurst": 8000 });
            let chain = [bridge, portmap, bandwidth];
            let mut died = false;
            let mut previous = None;
            for conf in &chain {
                match run("ADD", conf, previous.take(), &pod, Some(point)) {
                    Some(result) => previous = Some(result),
                    None => {
                        died = true;
                        break;
                    }
                }
            }
            assert!(died, "{point} was not reached");
            // There is no cached result. DEL is idempotent.
            for _ in 0..2 {
                for conf in chain.iter().rev() {
                    run("DEL", conf, None, &pod, None).expect("DEL");
                }
            }
            // An empty lease file does not block its address.
            let left = host.count();
            assert!(left.leases == 0 || *point == "host-local.lease-made", "{point}");
            assert_eq!((left.links, left.elements), (before.links, before.elements), "{point}");
            let result = run("ADD", &chain[0], None, &pod, None).expect("ADD");
            let expected = if *point == "host-local.lease-made" { "10.200.1.2/24" } else { "10.200.1.3/24" };
            assert_eq!(result["ips"][0]["address"], expected, "{point}");
            run("DEL", &chain[0], None, &pod, None).expect("DEL");
        });
    }
}

/// The output of the plugin; None if it crashed.
fn run(command: &str, conf: &Value, previous: Option<Value>, pod: &Pod, fault: Option<&str>) -> Option<Value> {
    let mut conf = conf.clone();
    (conf["cniVersion"], conf["name"]) = ("1.0.0".into(), "n".into());
    if let Some(previous) = previous {
        conf["prevResult"] = previous;
    }
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_tiphys-cni"));
    plugin.arg(conf["type"].as_str().unwrap_or_default());
    plugin.env("CNI_COMMAND", command).env("CNI_CONTAINERID", "c").env("CNI_IFNAME", "eth0").env("CNI_PATH", "/none");
    plugin.env("CNI_NETNS", pod.space.path());
    if let Some(fault) = fault {
        plugin.env(fault::VARIABLE, fault);
    }
    let mut child = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the plugin");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, conf.to_string().as_bytes()).expect("sent");
    drop(stdin);
    let output = child.wait_with_output().expect("its end");
    match output.status.code() {
        Some(0) if output.stdout.is_empty() => Some(Value::Null),
        Some(0) => Some(serde_json::from_slice(&output.stdout).expect("JSON")),
        Some(code) => panic!("{command} ended with {code}: {}", String::from_utf8_lossy(&output.stdout)),
        None => None,
    }
}
