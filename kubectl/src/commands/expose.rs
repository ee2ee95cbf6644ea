//! `expose` and `autoscale`.

use api::{Tree, list, tree};

use super::common::{DRY_RUN, DryRun, create, with_last_applied};
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info, Select, guess};
use crate::print::{PRINT, Printer};

const FLAGS: &[Flag] = &[
    text("cluster-ip", '\0', "", "The cluster IP, or None for a headless service."),
    text("external-ip", '\0', "", "An additional IP address of the service."),
    text("field-manager", '\0', "kubectl-expose", "The name of the manager of the fields that are set."),
    text("labels", 'l', "", "Labels of the service."),
    text("load-balancer-ip", '\0', "", "The IP address of the load balancer."),
    text("name", '\0', "", "The name of the service."),
    text("override-type", '\0', "merge", "How --overrides are merged: json, merge, or strategic."),
    text("overrides", '\0', "", "JSON that is merged into the service."),
    text("port", '\0', "", "The port of the service; by default those of the object."),
    text("protocol", '\0', "", "The protocol; by default TCP."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
    text("selector", '\0', "", "Label selector of the service's pods; by default that of the object."),
    text("session-affinity", '\0', "", "None or ClientIP."),
    text("target-port", '\0', "", "Name or number of the container's port."),
    text("type", '\0', "", "ClusterIP, NodePort, LoadBalancer, or ExternalName."),
];

pub(crate) static EXPOSE: Command = Command {
    name: "expose",
    usage: "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    short: "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    flags: &[FLAGS, DRY_RUN, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(expose(context))),
    group: "Basic Commands (Beginner)",
    ..Command::EMPTY
};

async fn expose(context: &Context) -> Result<()> {
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { selector: None, ..Select::of(context) };
    for info in select.find(context).await?.infos()? {
        let service = service_of(context, &info)?;
        let mut service = merge_overrides(context, service)?;
        record(context, &mut service);
        let (namespace, is_explicit) = context.namespace()?;
        let created = if dry_run == DryRun::Client {
            let mut service = service;
            if is_explicit {
                service.child("metadata").set("namespace", &namespace);
            }
            service
        } else {
            let service = if context.flags.bool("save-config") { with_last_applied(&service) } else { service };
            create(context, &guess("v1", "Service"), &namespace, &service, dry_run).await?
        };
        printer.print_result(context, &created, &format!("exposed{}", dry_run.suffix()))?;
    }
    Ok(())
}

/// The object with `--overrides` merged in.
pub(crate) fn merge_overrides(context: &Context, object: Tree) -> Result<Tree> {
    let text = context.flags.str("overrides");
    if text.is_empty() {
        return Ok(object);
    }
    let overrides =
        api::yaml::decode(text.as_bytes()).map_err(|error| Error::new(format!("invalid --overrides: {error}")))?;
    let kind = match context.flags.str("override-type") {
        "" | "merge" => super::common::MERGE,
        "strategic" => super::common::STRATEGIC,
        "json" => super::common::JSON_PATCH,
        other => return message(format!("invalid override type: {other}")),
    };
    let resource = guess(object.str("apiVersion"), object.str("kind"));
    let name = object.str("metadata.name").to_string();
    let info = Info { resource, namespace: String::new(), name, object, source: String::new() };
    super::scale::apply_locally(&info, kind, &overrides)
}

/// `a=b,c=d` as a map.
pub(crate) fn labels(text: &str) -> Result<Tree> {
    let mut map = tree! {};
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.contains('=') => map.set(key, value),
            Some(("", _)) => return message("unexpected empty label key"),
            _ => return message(format!("unexpected label spec: {pair}")),
        }
    }
    Ok(map)
}

/// The labels that select the pods of an object.
fn selector_of(object: &Tree) -> Result<Tree> {
    let labels = match object.str("kind") {
        "ReplicationController" | "Service" => object.at("spec.selector"),
        "Pod" => {
            let labels = object.at("metadata.labels");
            if labels.as_map().is_none_or(|map| map.is_empty()) {
                return message(
                    "couldn't retrieve selectors via --selector flag or introspection: the pod has no labels and cannot be exposed",
                );
            }
            labels
        }
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            if !object.list("spec.selector.matchExpressions").is_empty() {
                return message(
                    "couldn't retrieve selectors via --selector flag or introspection: couldn't convert expressions - \"matchExpressions\" to map-based selector format",
                );
            }
            object.at("spec.selector.matchLabels")
        }
        _ => {
            return message(
                "couldn't retrieve selectors via --selector flag or introspection: cannot extract pod selector",
            );
        }
    };
    Ok(labels.clone())
}

/// Ports of an object with their protocols, in the order of its containers.
fn ports_of(object: &Tree) -> Vec<(i64, String)> {
    let mut all: Vec<(i64, String)> = Vec::new();
    let mut add = |port: Option<i64>, protocol: &str| {
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        if let Some(port) = port {
            all.push((port, protocol.to_string()));
        }
    };
    if object.str("kind") == "Service" {
        object.list("spec.ports").iter().for_each(|port| add(port.int("port"), port.str("protocol")));
        return all;
    }
    let spec = if object.str("kind") == "Pod" { object.at("spec") } else { object.at("spec.template.spec") };
    for container in spec.list("containers") {
        container.list("ports").iter().for_each(|port| add(port.int("containerPort"), port.str("protocol")));
    }
    all
}

fn service_of(context: &Context, info: &Info) -> Result<Tree> {
    let (flags, object) = (&context.flags, &info.object);
    const EXPOSABLE: &[&str] = &["Pod", "Service", "ReplicationController", "Deployment", "ReplicaSet"];
    if !EXPOSABLE.contains(&info.resource.kind.as_str()) {
        return message(format!("cannot expose a {}", info.resource.kind_name_upper()));
    }
    let selector = if flags.str("selector").is_empty() { selector_of(object)? } else { labels(flags.str("selector"))? };
    if selector.as_map().is_none_or(|map| map.is_empty()) {
        return message("selector must be specified");
    }
    let ports = service_ports(context, object)?;
    let name =
        if flags.str("name").is_empty() { info.name.chars().take(63).collect() } else { flags.str("name").to_string() };
    let mut metadata = tree! { "name" => name };
    let own = if flags.str("labels").is_empty() {
        object.at("metadata.labels").clone()
    } else {
        labels(flags.str("labels"))?
    };
    if own.as_map().is_some_and(|map| !map.is_empty()) {
        metadata.set("labels", own);
    }
    let mut spec = tree! { "selector" => selector };
    if !ports.is_empty() {
        spec.set("ports", ports);
    }
    if !flags.str("external-ip").is_empty() {
        spec.set("externalIPs", list![flags.str("external-ip")]);
    }
    if flags.str("type") == "LoadBalancer" && !flags.str("load-balancer-ip").is_empty() {
        spec.set("loadBalancerIP", flags.str("load-balancer-ip"));
    }
    match flags.str("session-affinity") {
        "" => {}
        affinity @ ("None" | "ClientIP") => spec.set("sessionAffinity", affinity),
        other => return message(format!("unknown session affinity: {other}")),
    }
    for (flag, field) in [("type", "type"), ("cluster-ip", "clusterIP")] {
        if !flags.str(flag).is_empty() {
            spec.set(field, flags.str(flag));
        }
    }
    let status = tree! { "loadBalancer" => tree! {} };
    Ok(tree! { "apiVersion" => "v1", "kind" => "Service", "metadata" => metadata, "spec" => spec, "status" => status })
}

fn service_ports(context: &Context, object: &Tree) -> Result<Vec<Tree>> {
    let flags = &context.flags;
    let known = ports_of(object);
    let mut numbers: Vec<i64> = Vec::new();
    if flags.str("port").is_empty() {
        known.iter().for_each(|(port, _)| {
            if !numbers.contains(port) {
                numbers.push(*port)
            }
        });
        if numbers.is_empty() && flags.str("cluster-ip") != "None" {
            return message("couldn't find port via --port flag or introspection");
        }
    } else {
        for text in flags.str("port").split(',') {
            let number = text.parse().map_err(|_| {
                Error::new(format!("strconv.Atoi: parsing {}: invalid syntax", api::field::go_quote(text)))
            })?;
            numbers.push(number);
        }
    }
    let target = flags.str("target-port");
    let mut ports = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        let protocols: Vec<&str> =
            known.iter().filter(|(port, _)| port == number).map(|(_, protocol)| protocol.as_str()).collect();
        let protocols = match (flags.str("protocol"), protocols.as_slice()) {
            ("", []) => vec!["TCP"],
            ("", found) => found.to_vec(),
            (protocol, _) => vec![protocol],
        };
        for protocol in &protocols {
            let mut port = tree! { "port" => *number, "protocol" => *protocol };
            if protocols.len() > 1 {
                port.set("name", format!("port-{}-{}", at + 1, protocol.to_lowercase()));
            } else if numbers.len() > 1 {
                port.set("name", format!("port-{}", at + 1));
            }
            let target = if target.is_empty() {
                Tree::Int(*number)
            } else {
                target.parse().map_or_else(|_| Tree::from(target), Tree::Int)
            };
            port.set("targetPort", target);
            ports.push(port);
        }
    }
    Ok(ports)
}

const AUTOSCALE_FLAGS: &[Flag] = &[
    text("cpu", '\0', "", "Target CPU utilization, such as 70%, or a quantity, such as 500m."),
    typed("cpu-percent", '\0', Kind::Int32, "-1", "Target CPU utilization in percent."),
    text("field-manager", '\0', "kubectl-autoscale", "The name of the manager of the fields that are set."),
    typed("max", '\0', Kind::Int32, "-1", "The upper limit of pods. Required."),
    text("memory", '\0', "", "Target memory utilization, such as 60%, or a quantity, such as 200Mi."),
    typed("min", '\0', Kind::Int32, "-1", "The lower limit of pods."),
    text("name", '\0', "", "The name of the autoscaler; by default that of the object."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
];

pub(crate) static AUTOSCALE: Command = Command {
    name: "autoscale",
    usage: "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    short: "Auto-scale a deployment, replica set, stateful set, or replication controller",
    flags: &[AUTOSCALE_FLAGS, DRY_RUN, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(autoscale(context))),
    group: "Deploy Commands",
    ..Command::EMPTY
};

async fn autoscale(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.changed("max") {
        return message("required flag(s) \"max\" not set");
    }
    let (min, max) = (flags.int("min"), flags.int("max"));
    if max < 1 {
        return message(format!("--max=MAXPODS is required and must be at least 1, max: {max}"));
    }
    if max < min {
        return message(format!("--max=MAXPODS must be larger or equal to --min=MINPODS, max: {max}, min: {min}"));
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    for info in Select::of(context).find(context).await?.infos()? {
        if !info.resource.subresources.iter().any(|sub| sub == "scale") {
            return message(format!(
                "cannot autoscale a {}: the server could not find the requested resource",
                info.resource.kind
            ));
        }
        let name = if flags.str("name").is_empty() { &info.name } else { flags.str("name") };
        let mut spec = tree! {
            "maxReplicas" => max,
            "scaleTargetRef" => tree! { "apiVersion" => info.resource.api_version(), "kind" => &info.resource.kind, "name" => &info.name },
        };
        if min > 0 {
            spec.set("minReplicas", min);
        }
        let metrics = metrics(context)?;
        if !metrics.is_empty() {
            spec.set("metrics", metrics);
        }
        let mut object = tree! {
            "apiVersion" => "autoscaling/v2", "kind" => "HorizontalPodAutoscaler",
            "metadata" => tree! { "name" => name }, "spec" => spec,
        };
        record(context, &mut object);
        let (namespace, _) = context.namespace()?;
        let object = if flags.bool("save-config") { with_last_applied(&object) } else { object };
        let object = match dry_run {
            DryRun::Client => object,
            _ => {
                create(context, &guess("autoscaling/v2", "HorizontalPodAutoscaler"), &namespace, &object, dry_run)
                    .await?
            }
        };
        printer.print_result(context, &object, &format!("autoscaled{}", dry_run.suffix()))?;
    }
    Ok(())
}

fn metrics(context: &Context) -> Result<Vec<Tree>> {
    let flags = &context.flags;
    let percent = flags.int("cpu-percent");
    let cpu = if percent >= 0 { format!("{percent}%") } else { flags.str("cpu").to_string() };
    let mut metrics = Vec::new();
    for (name, text) in [("cpu", cpu.as_str()), ("memory", flags.str("memory"))] {
        if text.is_empty() {
            continue;
        }
        let target = match text.strip_suffix('%') {
            Some(percent) => match percent.parse::<i64>() {
                Ok(percent) if percent > 0 => tree! { "type" => "Utilization", "averageUtilization" => percent },
                _ => return message(format!("invalid --{name} value: {text}")),
            },
            None => match api::quantity::canonical(text) {
                Ok(quantity) => tree! { "type" => "AverageValue", "averageValue" => quantity },
                Err(_) => return message(format!("invalid --{name} value: {text}")),
            },
        };
        metrics.push(tree! { "type" => "Resource", "resource" => tree! { "name" => name, "target" => target } });
    }
    Ok(metrics)
}
