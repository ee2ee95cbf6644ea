//! Conflicting container ports, by number or by name.

use std::collections::HashMap;

use api::Tree;
use api::field::{Path, go_quote};

use super::super::for_each_container;

/// Ports are compared pairwise; with more than this they are not compared.
const MAX_COMPARED_PORTS: usize = 256;

/// A container port, with its path as text.
struct Port<'a> {
    port: &'a Tree,
    path: String,
}

pub(super) fn overlapping(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    // Most pods have one port or none: nothing to compare and no path to build.
    let ports = lists.iter().flat_map(|list| spec.list(list)).map(|container| container.list("ports").len());
    let compared = (2..=MAX_COMPARED_PORTS).contains(&ports.sum::<usize>());
    let mut seen: Vec<Port<'_>> = Vec::new();
    for list in lists {
        for (index, container) in spec.list(list).iter().enumerate() {
            for (number, port) in container.list("ports").iter().enumerate() {
                let has_ip = !port.str("hostIP").is_empty();
                if !compared && !has_ip {
                    continue;
                }
                let here = path.field(list);
                let here = here.index(index);
                let here = here.field("ports");
                let here = here.index(number).to_string();
                if has_ip && port.int("hostPort").unwrap_or(0) == 0 {
                    out.push(format!("{here}: hostIP set without hostPort: {}", go_port(port)));
                }
                if compared {
                    compare(port, &here, &seen, out);
                    seen.push(Port { port, path: here });
                }
            }
        }
    }
}

fn compare(port: &Tree, here: &str, seen: &[Port<'_>], out: &mut Vec<String>) {
    let number = |port: &Tree, key: &str| port.int(key).unwrap_or(0);
    let same = |other: &&Port<'_>| {
        number(other.port, "containerPort") == number(port, "containerPort")
            && other.port.str("protocol") == port.str("protocol")
    };
    for other in seen.iter().filter(same) {
        let (host, other_host) = (number(port, "hostPort"), number(other.port, "hostPort"));
        let (ip, other_ip) = (port.str("hostIP"), other.port.str("hostIP"));
        let word = if host == other_host && ip == other_ip {
            "duplicate"
        } else if host == 0 || other_host == 0 {
            "overlapping"
        } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
            "dangerously ambiguous"
        } else {
            continue;
        };
        out.push(format!("{here}: {word} port definition with {}", other.path));
    }
}

/// A port as Go prints a struct.
fn go_port(port: &Tree) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        port.str("name"),
        port.int("hostPort").unwrap_or(0),
        port.int("containerPort").unwrap_or(0),
        port.str("protocol"),
        port.str("hostIP")
    )
}

/// Two ports with one name: services and probes find the first.
pub(crate) fn duplicate_names(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let mut first: HashMap<String, String> = HashMap::new();
    for_each_container(spec, path, &mut |container, path| {
        let list = path.field("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let name = port.str("name");
            if name.is_empty() {
                continue;
            }
            let here = list.index(index).to_string();
            match first.get(name) {
                None => {
                    first.insert(name.to_string(), here);
                }
                Some(other) => {
                    let name = go_quote(name);
                    let text = format!("services and probes that select ports by name will use {other}");
                    out.push(format!("{here}: duplicate port name {name} with {other}, {text}"));
                }
            }
        }
    });
}
