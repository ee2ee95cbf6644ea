//! `cordon`, `uncordon`, `drain`, `taint`.

use std::time::Duration;

use api::{Tree, json, list, tree};
use http::Method;

use super::common::{DRY_RUN, DryRun, STRATEGIC, VALIDATE, field_validation, patch};
use super::pods::list_pods;
use super::wait::{Deletion, wait_for_deletion};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{Info, ListQuery, SELECTOR, Select, get_object, guess};
use crate::print::{PRINT, Printer};
use crate::transport::Request;

pub(crate) static CORDON: Command = Command {
    name: "cordon",
    usage: "NODE",
    short: "Mark node as unschedulable",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|context| Box::pin(async move { cordon_all(context, true).await.map(drop) })),
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

pub(crate) static UNCORDON: Command = Command {
    name: "uncordon",
    usage: "NODE",
    short: "Mark node as schedulable",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|context| Box::pin(async move { cordon_all(context, false).await.map(drop) })),
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

const DRAIN_FLAGS: &[Flag] = &[
    typed("chunk-size", '\0', Kind::Int64, "500", "Objects in one response of the server."),
    switch("delete-emptydir-data", '\0', "Evict pods with emptyDir volumes, whose data is lost."),
    switch("disable-eviction", '\0', "Delete pods instead of evicting them, which ignores disruption budgets."),
    switch("force", '\0', "Evict pods that no controller would create again."),
    typed("grace-period", '\0', Kind::Int, "-1", "Seconds for a graceful end; negative for the pod's own."),
    switch("ignore-daemonsets", '\0', "Leave pods of daemon sets."),
    text("pod-selector", '\0', "", "Label selector of the pods to evict."),
    typed(
        "skip-wait-for-delete-timeout",
        '\0',
        Kind::Int,
        "0",
        "Do not wait for pods that have been deleted for longer than these seconds.",
    ),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait; zero is without an end."),
];

pub(crate) static DRAIN: Command = Command {
    name: "drain",
    usage: "NODE",
    short: "Drain node in preparation for maintenance",
    flags: &[DRAIN_FLAGS, DRY_RUN, SELECTOR],
    run: Some(|context| Box::pin(drain(context))),
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

/// The pause before a pod is evicted again that a disruption budget protects.
const EVICTION_PAUSE: Duration = Duration::from_secs(5);
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

async fn nodes(context: &Context) -> Result<Vec<Info>> {
    if context.args.is_empty() && context.flags.str("selector").is_empty() {
        return context.usage_error(&format!("USAGE: {} NODE [flags]", context.path.trim_start_matches("kubectl ")));
    }
    if !context.args.is_empty() && !context.flags.str("selector").is_empty() {
        return context.usage_error("error: cannot specify both a node name and a --selector option");
    }
    let mut args = vec!["nodes".to_string()];
    args.extend(context.args.iter().map(|name| name.trim_start_matches("node/").to_string()));
    let select = Select { args, allows_types: true, ..Select::of(context) };
    select.find(context).await?.infos()
}

async fn cordon_all(context: &Context, is_off: bool) -> Result<Vec<Info>> {
    let dry_run = DryRun::of(context)?;
    let (nodes, mut errors) = (nodes(context).await?, Vec::new());
    let done = if is_off { "cordoned" } else { "uncordoned" };
    for node in &nodes {
        if node.object.bool("spec.unschedulable") == is_off {
            context.print(&format!("node/{} already {done}{}\n", node.name, dry_run.suffix()))?;
            continue;
        }
        let value = if is_off { Tree::Bool(true) } else { Tree::Null };
        let body = json::encode(&tree! { "spec" => tree! { "unschedulable" => value } }, None);
        if dry_run != DryRun::Client
            && let Err(error) = patch(context, node, STRATEGIC, body, dry_run).await
        {
            let verb = if is_off { "cordon" } else { "uncordon" };
            errors.push(Error::new(format!("unable to {verb} node {}: {error}", api::field::go_quote(&node.name))));
            continue;
        }
        context.print(&format!("node/{} {done}{}\n", node.name, dry_run.suffix()))?;
    }
    Error::all(errors)?;
    Ok(nodes)
}

/// What happens to a pod of a drained node.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Evict,
    /// With a warning, if there is one to say.
    EvictWarned(&'static str),
    Leave,
    LeaveWarned(&'static str),
    Refuse(&'static str),
}

const UNMANAGED: &str = "cannot delete Pods that declare no controller";
const DAEMON_SET: &str = "cannot delete DaemonSet-managed Pods";
const LOCAL_STORAGE: &str = "cannot delete Pods with local storage";

fn judge(context: &Context, pod: &Tree, daemon_set_exists: bool) -> Verdict {
    let flags = &context.flags;
    let owners = pod.list("metadata.ownerReferences");
    let controller = owners.iter().find(|owner| owner.bool("controller"));
    let is_over = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    let is_mirror = pod.map("metadata.annotations").contains("kubernetes.io/config.mirror");
    if is_mirror || is_long_deleted(pod, flags.int("skip-wait-for-delete-timeout"), crate::clock::now()) {
        return Verdict::Leave;
    }
    if !is_over && controller.is_some_and(|owner| owner.str("kind") == "DaemonSet") {
        return match (daemon_set_exists, flags.bool("ignore-daemonsets")) {
            (true, true) => Verdict::LeaveWarned("ignoring DaemonSet-managed Pods"),
            (true, false) => Verdict::Refuse(DAEMON_SET),
            (false, _) if flags.bool("force") => Verdict::EvictWarned(UNMANAGED),
            (false, _) => Verdict::Refuse(UNMANAGED),
        };
    }
    let has_local = pod.list("spec.volumes").iter().any(|volume| volume.has("emptyDir"));
    if has_local && !is_over && !flags.bool("delete-emptydir-data") {
        return Verdict::Refuse(LOCAL_STORAGE);
    }
    if controller.is_none() && !is_over {
        return if flags.bool("force") {
            Verdict::EvictWarned("deleting Pods that declare no controller")
        } else {
            Verdict::Refuse(UNMANAGED)
        };
    }
    Verdict::Evict
}

/// Whether a pod has been terminating for longer than these seconds; zero is no limit.
fn is_long_deleted(pod: &Tree, limit: i64, now: i64) -> bool {
    let deleted = api::time::parse(pod.str("metadata.deletionTimestamp"));
    limit > 0 && deleted.is_ok_and(|deleted| now - deleted.seconds > limit)
}

async fn drain(context: &Context) -> Result<()> {
    let dry_run = DryRun::of(context)?;
    let nodes = cordon_all(context, true).await?;
    let mut errors = Vec::new();
    for node in &nodes {
        let limit = if context.flags.nanos("timeout") > 0 { context.flags.duration("timeout") } else { FOREVER };
        let drained = match tokio::time::timeout(limit, drain_node(context, node, dry_run)).await {
            Ok(result) => result,
            Err(_) => message(format!(
                "global timeout reached: {}",
                api::time::format_duration(context.flags.nanos("timeout"))
            )),
        };
        match drained {
            Ok(()) => context.print(&format!("node/{} drained{}\n", node.name, dry_run.suffix()))?,
            Err(error) => {
                context.print(&format!("There are pending nodes to be drained:\n {}\n", node.name))?;
                errors.push(Error::new(format!(
                    "unable to drain node {} due to error: {error}, continuing command...",
                    api::field::go_quote(&node.name)
                )));
            }
        }
    }
    Error::all(errors)
}

async fn drain_node(context: &Context, node: &Info, dry_run: DryRun) -> Result<()> {
    let query = ListQuery {
        selector: context.flags.str("pod-selector").to_string(),
        field_selector: format!("spec.nodeName={}", node.name),
        chunk: context.flags.int("chunk-size"),
        ..ListQuery::default()
    };
    let mut chosen = Vec::new();
    let mut warned: Vec<(&str, Vec<String>)> = Vec::new();
    let mut refused: Vec<(&str, Vec<String>)> = Vec::new();
    let note = |list: &mut Vec<(&'static str, Vec<String>)>, why: &'static str, name: String| match list
        .iter_mut()
        .find(|(known, _)| *known == why)
    {
        Some((_, names)) => names.push(name),
        None => list.push((why, vec![name])),
    };
    for pod in list_pods(context, "", &query).await? {
        let name = format!("{}/{}", pod.namespace, pod.name);
        let exists = daemon_set_exists(context, &pod).await?;
        match judge(context, &pod.object, exists) {
            Verdict::Evict => chosen.push(pod),
            Verdict::EvictWarned(why) => {
                note(&mut warned, why, name);
                chosen.push(pod);
            }
            Verdict::Leave => {}
            Verdict::LeaveWarned(why) => note(&mut warned, why, name),
            Verdict::Refuse(why) => note(&mut refused, why, name),
        }
    }
    if !refused.is_empty() {
        let texts: Vec<String> = refused
            .iter()
            .map(|(why, names)| format!("{why} (use {} to override): {}", override_flag(why), names.join(", ")))
            .collect();
        return message(if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) });
    }
    if !warned.is_empty() {
        let texts: Vec<String> = warned.iter().map(|(why, names)| format!("{why}: {}", names.join(", "))).collect();
        context.note(&format!("Warning: {}", texts.join("; ")));
    }
    let mut gone = Vec::new();
    for pod in chosen {
        let deletes = context.flags.bool("disable-eviction");
        let verb = if deletes { "deleting" } else { "evicting" };
        context.print(&format!("{verb} pod {}/{}{}\n", pod.namespace, pod.name, dry_run.suffix()))?;
        context.flush()?;
        if dry_run == DryRun::Client {
            continue;
        }
        if remove(context, &pod, deletes, dry_run).await? {
            let uid = pod.object.str("metadata.uid").to_string();
            gone.push(Deletion { info: pod, uid });
        }
    }
    if dry_run != DryRun::None {
        return Ok(());
    }
    wait_for_deletion(context, &gone, Duration::ZERO).await?;
    gone.iter().try_for_each(|deletion| context.print(&format!("pod/{} evicted\n", deletion.info.name)))
}

fn override_flag(why: &str) -> &'static str {
    match why {
        DAEMON_SET => "--ignore-daemonsets",
        LOCAL_STORAGE => "--delete-emptydir-data",
        _ => "--force",
    }
}

async fn daemon_set_exists(context: &Context, pod: &Info) -> Result<bool> {
    let owners = pod.object.list("metadata.ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner.bool("controller") && owner.str("kind") == "DaemonSet") else {
        return Ok(false);
    };
    match get_object(context, &guess("apps/v1", "DaemonSet"), &pod.namespace, owner.str("name"), "").await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Evicts a pod, again while a disruption budget protects it. False if it was gone already.
async fn remove(context: &Context, pod: &Info, deletes: bool, dry_run: DryRun) -> Result<bool> {
    let client = context.client().await?;
    let grace = context.flags.int("grace-period");
    let mut options = tree! {};
    if grace >= 0 {
        options.set("gracePeriodSeconds", grace);
    }
    if dry_run == DryRun::Server {
        options.set("dryRun", list!["All"]);
    }
    loop {
        let request = if deletes {
            Request::new(Method::DELETE, pod.path()).json(&options)
        } else {
            let metadata = tree! { "name" => &pod.name, "namespace" => &pod.namespace };
            let eviction = tree! { "apiVersion" => "policy/v1", "kind" => "Eviction", "metadata" => metadata, "deleteOptions" => options.clone() };
            Request::new(Method::POST, format!("{}/eviction", pod.path())).json(&eviction)
        };
        match client.bytes(&request).await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) if error.status().is_some_and(|status| status.code == 429) => {
                context.note(&format!(
                    "error when evicting pods/{} -n {} (will retry after 5s): {error}",
                    api::field::go_quote(&pod.name),
                    api::field::go_quote(&pod.namespace)
                ));
                tokio::time::sleep(EVICTION_PAUSE).await;
            }
            Err(error) => {
                return message(format!(
                    "error when evicting pods/{} -n {}: {error}",
                    api::field::go_quote(&pod.name),
                    api::field::go_quote(&pod.namespace)
                ));
            }
        }
    }
}

const TAINT_FLAGS: &[Flag] = &[
    switch("all", '\0', "All nodes."),
    text("field-manager", '\0', "kubectl-taint", "The name of the manager of the fields that are set."),
    switch("overwrite", '\0', "Replace existing values."),
];

pub(crate) static TAINT: Command = Command {
    name: "taint",
    usage: "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    short: "Update the taints on one or more nodes",
    flags: &[TAINT_FLAGS, DRY_RUN, VALIDATE, SELECTOR, PRINT],
    run: Some(|context| Box::pin(taint(context))),
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

/// A taint to set, or to remove.
#[derive(Debug, PartialEq, Clone)]
struct Taint {
    key: String,
    value: String,
    effect: String,
}

fn parse_taint(text: &str) -> Result<(Taint, bool)> {
    let (text, removes) = text.strip_suffix('-').map_or((text, false), |text| (text, true));
    let (pair, effect) = text.split_once(':').map_or((text, ""), |(pair, effect)| (pair, effect));
    // Without an effect the whole text is a key.
    let has_effect = text.contains(':');
    let (key, value) = if has_effect { pair.split_once('=').unwrap_or((pair, "")) } else { (pair, "") };
    let problems = api::validation::qualified_name(key);
    if !problems.is_empty() {
        return message(format!("invalid taint spec: {text}, {}", problems.join("; ")));
    }
    let is_known = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    if !is_known && (!removes || !effect.is_empty()) {
        return message(if effect.is_empty() {
            format!("invalid taint spec: {text}")
        } else {
            format!("invalid taint effect: {effect}, unsupported taint effect")
        });
    }
    let problems = api::validation::label_value(value);
    if !problems.is_empty() {
        return message(format!("invalid taint spec: {text}, {}", problems.join("; ")));
    }
    Ok((Taint { key: key.to_string(), value: value.to_string(), effect: effect.to_string() }, removes))
}

async fn taint(context: &Context) -> Result<()> {
    let is_taint = |arg: &String| arg.contains('=') || arg.ends_with('-') || arg.contains(':');
    let first = context.args.iter().position(is_taint).unwrap_or(context.args.len());
    let (resources, specs) = context.args.split_at(first);
    let Some(kind) = resources.first() else {
        return message("one or more resources must be specified as <resource> <name>");
    };
    if !matches!(kind.as_str(), "node" | "nodes" | "no") {
        return message(format!("invalid resource type {kind}, only node types are supported"));
    }
    if specs.is_empty() {
        return message("at least one taint update is required");
    }
    let mut changes = Vec::new();
    for spec in specs {
        match parse_taint(spec) {
            Ok(change) => changes.push(change),
            Err(error) => return context.usage_error(&error.to_string()),
        }
    }
    let is_set = |key: &str| changes.iter().any(|(taint, removes)| !removes && taint.key == key);
    let both: Vec<String> = changes
        .iter()
        .filter(|(taint, removes)| *removes && is_set(&taint.key))
        .map(|(taint, _)| format!("{}={}", taint.key, taint.value))
        .collect();
    if !both.is_empty() {
        return message(format!(
            "can not both modify and remove the following taint(s) in the same command: {}",
            both.join(", ")
        ));
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { args: resources.to_vec(), ..Select::of(context) };
    for node in select.find(context).await?.infos()? {
        let (taints, done) = changed_taints(context, &node, &changes)?;
        let body = json::encode(&tree! { "spec" => tree! { "taints" => taints.clone() } }, None);
        let mut object = node.object.clone();
        object.child("spec").set("taints", taints);
        if dry_run != DryRun::Client {
            let request = Request::new(Method::PATCH, node.path())
                .query("fieldManager", context.flags.str("field-manager"))
                .query("fieldValidation", field_validation(context)?)
                .body(STRATEGIC, body);
            object = context.client().await?.tree(&dry_run.apply(request)).await?;
        }
        // As upstream, which does not say so with --dry-run=client.
        let suffix = if dry_run == DryRun::Server { dry_run.suffix() } else { "" };
        printer.print_result(context, &object, &format!("{done}{suffix}"))?;
    }
    Ok(())
}

fn changed_taints(context: &Context, node: &Info, changes: &[(Taint, bool)]) -> Result<(Tree, &'static str)> {
    let mut taints = node.object.list("spec.taints").to_vec();
    let mut done = "modified";
    for (taint, removes) in changes {
        let is_same =
            |one: &Tree| one.str("key") == taint.key && (taint.effect.is_empty() || one.str("effect") == taint.effect);
        let exists = taints.iter().any(is_same);
        if *removes {
            if !exists {
                return message(format!(
                    "taint {} not found",
                    api::field::go_quote(&if taint.effect.is_empty() {
                        taint.key.clone()
                    } else {
                        format!("{}:{}", taint.key, taint.effect)
                    })
                ));
            }
            taints.retain(|one| !is_same(one));
            done = "untainted";
            continue;
        }
        if exists && !context.flags.bool("overwrite") {
            return message(format!(
                "node {} already has {} taint(s) with same effect(s) and --overwrite is false",
                node.name, taint.key
            ));
        }
        taints.retain(|one| !is_same(one));
        let mut one = tree! { "key" => &taint.key, "effect" => &taint.effect };
        if !taint.value.is_empty() {
            one.set("value", &taint.value);
        }
        taints.insert(0, one);
        done = if exists || done == "untainted" { "modified" } else { "tainted" };
    }
    Ok((Tree::List(taints), done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_taints() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
        };
        assert_eq!(parse_taint("a=b:NoSchedule").ok(), Some((taint("a", "b", "NoSchedule"), false)));
        assert_eq!(parse_taint("a:NoExecute-").ok(), Some((taint("a", "", "NoExecute"), true)));
        assert_eq!(parse_taint("a-").ok(), Some((taint("a", "", ""), true)));
        assert!(parse_taint("a=b").is_err());
        assert!(parse_taint("a=b:Sometimes").is_err());
    }
}
