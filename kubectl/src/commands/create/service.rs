//! Services of each type.

use api::{Tree, tree};

use super::{COMMON, finish, name};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, text, typed};
use crate::print::PRINT;

const TCP: &[Flag] = &[typed("tcp", '\0', Kind::Slice, "", "Ports, as <port>:<targetPort>; can be repeated.")];
const CLUSTER_IP_FLAGS: &[Flag] = &[text("clusterip", '\0', "", "The cluster IP, or None for a headless service.")];
const NODE_PORT_FLAGS: &[Flag] = &[typed("node-port", '\0', Kind::Int, "0", "The port on each node.")];
const EXTERNAL_FLAGS: &[Flag] = &[text("external-name", '\0', "", "The name that the service stands for.")];

static CLUSTER_IP: Command = Command {
    name: "clusterip",
    usage: "NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
    short: "Create a ClusterIP service",
    flags: &[TCP, CLUSTER_IP_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, service(context, "ClusterIP")?).await })),
    ..Command::EMPTY
};

static NODE_PORT: Command = Command {
    name: "nodeport",
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    short: "Create a NodePort service",
    flags: &[TCP, NODE_PORT_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, service(context, "NodePort")?).await })),
    ..Command::EMPTY
};

static LOAD_BALANCER: Command = Command {
    name: "loadbalancer",
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    short: "Create a LoadBalancer service",
    flags: &[TCP, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, service(context, "LoadBalancer")?).await })),
    ..Command::EMPTY
};

static EXTERNAL_NAME: Command = Command {
    name: "externalname",
    usage: "NAME --external-name external.name [--dry-run=server|client|none]",
    short: "Create an ExternalName service",
    flags: &[TCP, EXTERNAL_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, service(context, "ExternalName")?).await })),
    ..Command::EMPTY
};

pub(crate) static SERVICE: Command = Command {
    name: "service",
    aliases: &["svc"],
    short: "Create a service using a specified subcommand",
    children: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],
    ..Command::EMPTY
};

fn service(context: &Context, kind: &str) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let (tcp, cluster_ip) = (flags.list("tcp"), flags.str("clusterip"));
    if kind == "ExternalName" {
        super::require(context, &["external-name"])?;
        let problems = api::validation::dns1123_subdomain(flags.str("external-name"));
        if !problems.is_empty() {
            return message(format!("invalid service external name {}", flags.str("external-name")));
        }
    } else if tcp.is_empty() && cluster_ip != "None" {
        return message("at least one tcp port specifier must be provided");
    }
    let mut ports = Vec::new();
    for text in &tcp {
        let mut port = port(text)?;
        if kind == "NodePort" && flags.int("node-port") > 0 {
            port.set("nodePort", flags.int("node-port"));
        }
        ports.push(port);
    }
    let labels = tree! { "app" => &name };
    let mut spec = tree! { "type" => kind, "selector" => labels.clone() };
    if !ports.is_empty() {
        spec.set("ports", ports);
    }
    if !cluster_ip.is_empty() {
        spec.set("clusterIP", cluster_ip);
    }
    if kind == "ExternalName" {
        spec.set("externalName", flags.str("external-name"));
    }
    Ok(tree! {
        "apiVersion" => "v1", "kind" => "Service", "metadata" => tree! { "name" => &name, "labels" => labels },
        "spec" => spec, "status" => tree! { "loadBalancer" => tree! {} },
    })
}

/// `80`, `80:8080`, `80:http`.
fn port(text: &str) -> Result<Tree> {
    let (port, target) = text.split_once(':').unwrap_or((text, text));
    let out_of_range = || message(format!("strconv.Atoi: parsing {}: invalid syntax", api::field::go_quote(port)));
    let Ok(number) = port.parse::<i64>() else { return out_of_range() };
    if !(0..=65535).contains(&number) {
        return message("must be between 1 and 65535, inclusive");
    }
    let target = match target.parse::<i64>() {
        Ok(number) if (1..=65535).contains(&number) || !text.contains(':') => Tree::Int(number),
        Ok(_) => return message("must be between 1 and 65535, inclusive"),
        Err(_) => {
            let problems = api::validation::port_name(target);
            if !problems.is_empty() {
                return message(problems.join(","));
            }
            Tree::from(target)
        }
    };
    let name = text.replace(':', "-");
    Ok(tree! { "name" => name, "port" => number, "protocol" => "TCP", "targetPort" => target })
}
