//! Pods behind what the user names: a pod itself, or a workload or service that selects pods.

use std::time::Duration;

use api::Tree;

use super::watching::follow;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::objects::{Info, ListQuery, Select, get_object, guess, list_pages, split_list};

/// The annotation that names a pod's default container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// How long a workload may take until it has a pod, unless a flag says so.
const POD_TIMEOUT: Duration = Duration::from_secs(60);

/// The pod of an argument, NAME or TYPE/NAME, or of the files.
pub(crate) async fn pod_of(context: &Context, argument: Option<&str>) -> Result<Info> {
    let args = match argument {
        Some(argument) if argument.contains('/') => vec![argument.to_string()],
        Some(argument) => vec!["pods".to_string(), argument.to_string()],
        None => Vec::new(),
    };
    if let [_, name] = args.as_slice() {
        let resource = guess("v1", "Pod");
        let namespace = context.namespace()?.0;
        let object = get_object(context, &resource, &namespace, name, "").await?;
        return Ok(Info { resource, namespace, name: name.clone(), object, source: String::new() });
    }
    let select = Select { args, selector: None, field_selector: String::new(), ..Select::of(context) };
    let mut infos = select.find(context).await?.infos()?;
    match infos.len() {
        1 => first_pod(context, infos.remove(0)).await,
        0 => message("no objects passed"),
        count => message(format!("expected one object, got {count}")),
    }
}

/// The selector of an object's pods.
pub(crate) fn pod_selector(info: &Info) -> Result<String> {
    let object = &info.object;
    let selector = match info.resource.kind.as_str() {
        "ReplicationController" | "Service" => object.at("spec.selector"),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => object.at("spec.selector.matchLabels"),
        kind => {
            return message(format!(
                "cannot attach to *unstructured.Unstructured: selector for {kind} not implemented"
            ));
        }
    };
    let pairs: Vec<String> = selector
        .as_map()
        .into_iter()
        .flat_map(|map| map.iter())
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return message(format!("invalid {} '{}': it has no pod selector", info.resource.singular, info.name));
    }
    Ok(pairs.join(","))
}

/// All pods of an object.
pub(crate) async fn pods_of(context: &Context, info: &Info) -> Result<Vec<Info>> {
    if info.resource.kind == "Pod" {
        return Ok(vec![info.clone()]);
    }
    let query = ListQuery { selector: pod_selector(info)?, ..ListQuery::default() };
    list_pods(context, &info.namespace, &query).await
}

/// The pods of a namespace.
pub(crate) async fn list_pods(context: &Context, namespace: &str, query: &ListQuery) -> Result<Vec<Info>> {
    let resource = guess("v1", "Pod");
    let mut pods = Vec::new();
    list_pages(context, &resource, namespace, query, async |page| {
        pods.extend(split_list(&resource, page));
        Ok(())
    })
    .await?;
    Ok(pods)
}

/// The best pod of an object: one that runs and is ready, and longest of all.
async fn first_pod(context: &Context, info: Info) -> Result<Info> {
    if info.resource.kind == "Pod" {
        return Ok(info);
    }
    let mut limit = context.flags.duration("pod-running-timeout");
    if limit.is_zero() {
        limit = POD_TIMEOUT;
    }
    let deadline = tokio::time::Instant::now() + limit;
    let selector = pod_selector(&info)?;
    loop {
        let mut pods = pods_of(context, &info).await?;
        pods.sort_by_key(|pod| rank(&pod.object));
        if let Some(best) = pods.into_iter().next() {
            return Ok(best);
        }
        if tokio::time::timeout_at(deadline, next_pod(context, &info.namespace, &selector)).await.is_err() {
            return message("timed out waiting for the condition");
        }
    }
}

/// Waits for any event of the selected pods.
async fn next_pod(context: &Context, namespace: &str, selector: &str) -> Result<()> {
    let query = ListQuery { selector: selector.to_string(), ..ListQuery::default() };
    let request = query.request(&guess("v1", "Pod"), namespace, "").query("watch", "true");
    let mut lines =
        context.client().await?.send(&crate::transport::Request { is_long: true, ..request }).await?.lines();
    lines.next().await.transpose().map(drop)
}

/// Smaller is better.
fn rank(pod: &Tree) -> (bool, i32, bool, String) {
    let phase = match pod.str("status.phase") {
        "Running" => 0,
        "Unknown" => 1,
        "Pending" => 2,
        _ => 3,
    };
    let is_ready =
        pod.list("status.conditions").iter().any(|one| one.str("type") == "Ready" && one.str("status") == "True");
    (pod.str("spec.nodeName").is_empty(), phase, !is_ready, pod.str("metadata.creationTimestamp").to_string())
}

/// The container of the flag, of the annotation, or the first one.
pub(crate) fn container_of(context: &Context, pod: &Info) -> Result<String> {
    let names = container_names(&pod.object);
    let wanted = context.flags.str("container");
    if !wanted.is_empty() {
        if names.iter().any(|name| name == wanted) {
            return Ok(wanted.to_string());
        }
        return message(format!(
            "container {wanted} is not valid for pod {} out of: {}",
            pod.name,
            described_names(&pod.object)
        ));
    }
    let annotated = pod.object.at("metadata.annotations").get(DEFAULT_CONTAINER).and_then(Tree::as_str);
    if let Some(name) = annotated.filter(|name| names.iter().any(|known| known == name)) {
        return Ok(name.to_string());
    }
    let containers = pod.object.list("spec.containers");
    let Some(first) = containers.first() else { return message(format!("pod {} has no containers", pod.name)) };
    if names.len() > 1 && !context.flags.bool("quiet") {
        context.note(&format!(
            "Defaulted container {} out of: {}",
            api::field::go_quote(first.str("name")),
            described_names(&pod.object)
        ));
    }
    Ok(first.str("name").to_string())
}

/// The names of all containers of a pod.
pub(crate) fn container_names(pod: &Tree) -> Vec<String> {
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    lists.iter().flat_map(|path| pod.list(path)).map(|container| container.str("name").to_string()).collect()
}

/// `a, b, c (init), d (ephem)`.
pub(crate) fn described_names(pod: &Tree) -> String {
    let lists = [("spec.containers", ""), ("spec.ephemeralContainers", " (ephem)"), ("spec.initContainers", " (init)")];
    let names = lists.iter().flat_map(|(path, suffix)| {
        pod.list(path).iter().map(move |container| format!("{}{suffix}", container.str("name")))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Waits until a pod's containers run, or have ended.
pub(crate) async fn wait_until_running(context: &Context, pod: &Info, limit: Duration) -> Result<Info> {
    let is_up = |object: &Tree| -> Result<Option<Tree>> {
        let phase = object.str("status.phase");
        let runs = object.list("status.containerStatuses").iter().any(|status| status.at("state").has("running"));
        Ok((runs || matches!(phase, "Running" | "Succeeded" | "Failed")).then(|| object.clone()))
    };
    let waiting = follow(context, pod, is_up);
    let object = match tokio::time::timeout(limit, waiting).await {
        Ok(object) => object?,
        Err(_) => return Err(Error::new("timed out waiting for the condition")),
    };
    Ok(Info { object, ..pod.clone() })
}
