//! Collects the status of a cluster from its data directory and its API.

use std::path::Path;
use std::time::{Duration, SystemTime};

use api::Tree;
use client::{Client, Resource};

use super::{Certificate, Check, Pods, Status};
use crate::cli::certs;
use crate::component::remote::Remote;
use crate::control_plane::manifests::inventory;
use crate::error::{Error, Result};
use crate::machine::lock;
use crate::machine::run_state::{self, RunState};

const COMPONENTS: Resource = Resource::core("componentstatuses");
const MAPS: Resource = Resource::core("configmaps");
const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
/// Pods beyond this number are not examined.
const MAX_PODS: &str = "limit=5000";
const TIMEOUT: Duration = Duration::from_secs(10);
const DAY: u64 = 86_400;

pub(super) async fn collect(data_dir: &Path, name: &str) -> Status {
    let process = RunState::read(data_dir);
    let mut status = Status {
        name: process.as_ref().map_or(name, |process| process.name.as_str()).to_string(),
        data_dir: data_dir.display().to_string(),
        is_starting: process.is_none() && lock::holder(data_dir).is_some(),
        now: seconds(SystemTime::now()),
        store_bytes: run_state::store_bytes(data_dir),
        certificates: certificates(data_dir),
        ..Status::default()
    };
    if let Some(process) = &process {
        let asked = tokio::time::timeout(TIMEOUT, examine(process, &mut status)).await;
        let timed_out = || Error::Response(format!("no response within {} s", TIMEOUT.as_secs()));
        status.unreachable = asked.unwrap_or_else(|_| Err(timed_out())).err().map(|error| error.describe());
    }
    status.process = process;
    status
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The certificates of the data directory that expire first, if they can be read.
fn certificates(data_dir: &Path) -> Vec<Certificate> {
    let now = SystemTime::now();
    let left = |end: SystemTime| match end.duration_since(now) {
        Ok(left) => i64::try_from(left.as_secs() / DAY).unwrap_or(i64::MAX),
        Err(past) => -i64::try_from(past.duration().as_secs() / DAY + 1).unwrap_or(i64::MAX),
    };
    let all = certs::expirations(data_dir).unwrap_or_default();
    let mut all: Vec<Certificate> =
        all.into_iter().map(|(name, end)| Certificate { name, days_left: left(end) }).collect();
    all.sort_by_key(|certificate| certificate.days_left);
    all
}

async fn examine(process: &RunState, status: &mut Status) -> Result<()> {
    let client = Remote::read("tiphys", "kubeconfig", &process.kubeconfig)?.client();
    status.components = list(&client, COMPONENTS, "").await?.iter().map(component).collect();
    status.nodes = list(&client, NODES, "").await?.iter().map(node).collect();
    let selected = format!("labelSelector={}", inventory::LABEL);
    let maps = client.list(MAPS, inventory::NAMESPACE, &selected).await;
    let maps = maps.map_err(|error| Error::Response(error.message()))?;
    status.manifests = maps.list("items").iter().map(manifest).collect();
    status.pods = summarize(&list(&client, PODS, MAX_PODS).await?);
    Ok(())
}

async fn list(client: &Client, resource: Resource, query: &str) -> Result<Vec<Tree>> {
    let list = client.list(resource, "", query).await.map_err(|error| Error::Response(error.message()))?;
    Ok(list.list("items").to_vec())
}

fn condition<'a>(object: &'a Tree, path: &str, kind: &str) -> Option<&'a Tree> {
    object.at(path).as_list()?.iter().find(|condition| condition.str("type") == kind)
}

fn component(object: &Tree) -> Check {
    let healthy = condition(object, "conditions", "Healthy");
    let is_healthy = healthy.is_some_and(|condition| condition.str("status") == "True");
    let why = healthy.map(|condition| [condition.str("error"), condition.str("message")].join(" ").trim().to_string());
    let detail = if is_healthy { String::new() } else { why.unwrap_or_else(|| "unknown".to_string()) };
    Check { name: object.str("metadata.name").to_string(), is_healthy, detail }
}

fn node(object: &Tree) -> Check {
    let ready = condition(object, "status.conditions", "Ready");
    let is_healthy = ready.is_some_and(|condition| condition.str("status") == "True");
    let detail = match (is_healthy, ready) {
        (true, _) => object.str("status.nodeInfo.kubeletVersion").to_string(),
        (false, Some(ready)) => format!("{}: {}", ready.str("reason"), ready.str("message")),
        (false, None) => "its kubelet has not reported yet".to_string(),
    };
    Check { name: object.str("metadata.name").to_string(), is_healthy, detail }
}

/// A file of the data directory, and what of it could not be applied.
fn manifest(map: &Tree) -> Check {
    let data = map.map("data");
    let (name, detail) = (data.str("file").to_string(), data.str("error").to_string());
    Check { name, is_healthy: detail.is_empty(), detail }
}

fn summarize(pods: &[Tree]) -> Pods {
    let mut summary = Pods { total: pods.len(), ..Pods::default() };
    for pod in pods {
        let ready = condition(pod, "status.conditions", "Ready");
        if ready.is_some_and(|condition| condition.str("status") == "True") {
            summary.ready += 1;
        } else if pod.str("status.phase") != "Succeeded" {
            let name = format!("{}/{}", pod.str("metadata.namespace"), pod.str("metadata.name"));
            summary.problems.push(Check { name, is_healthy: false, detail: why_not_ready(pod) });
        }
    }
    summary
}

/// The most specific reason that the status of a pod gives.
fn why_not_ready(pod: &Tree) -> String {
    if !pod.str("metadata.deletionTimestamp").is_empty() {
        return "Terminating".to_string();
    }
    let waiting = ["status.initContainerStatuses", "status.containerStatuses"]
        .into_iter()
        .filter_map(|path| pod.at(path).as_list())
        .flatten()
        .map(|container| (container.at("state.waiting.reason"), container.at("state.terminated.reason")))
        .find_map(|(waiting, terminated)| waiting.as_str().or(terminated.as_str().filter(|why| *why != "Completed")));
    let unscheduled = condition(pod, "status.conditions", "PodScheduled").filter(|one| one.str("status") == "False");
    match (waiting, unscheduled, pod.str("status.reason")) {
        (_, _, reason) if !reason.is_empty() => reason.to_string(),
        (_, Some(unscheduled), _) => format!("{}: {}", unscheduled.str("reason"), unscheduled.str("message")),
        (Some(reason), _, _) => reason.to_string(),
        (None, None, _) => pod.str("status.phase").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Tree {
        api::yaml::decode(text.as_bytes()).expect("YAML")
    }

    #[test]
    fn pods_have_the_most_specific_reason() {
        let check = |status: &str, want: Option<&str>| {
            let pod = yaml(&format!("{{metadata: {{name: a, namespace: n}}, status: {status}}}"));
            let problems = summarize(std::slice::from_ref(&pod)).problems;
            assert_eq!(problems.first().map(|problem| problem.detail.as_str()), want, "{status}");
        };
        check("{phase: Running, conditions: [{type: Ready, status: 'True'}]}", None);
        check("{phase: Succeeded}", None);
        check("{phase: Running}", Some("Running"));
        check("{phase: Failed, reason: Evicted}", Some("Evicted"));
        check(
            "{phase: Pending, containerStatuses: [{state: {waiting: {reason: ImagePullBackOff}}}]}",
            Some("ImagePullBackOff"),
        );
        check(
            "{phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: full}]}",
            Some("Unschedulable: full"),
        );
    }

    #[test]
    fn nodes_and_components_say_what_is_wrong() {
        let ready = "{metadata: {name: a}, status: {nodeInfo: {kubeletVersion: v1.37.0}, \
                     conditions: [{type: Ready, status: 'True'}]}}";
        assert_eq!(node(&yaml(ready)), Check { name: "a".into(), is_healthy: true, detail: "v1.37.0".into() });
        let lost = "{metadata: {name: a}, status: {conditions: [{type: Ready, status: Unknown, \
                    reason: NodeStatusUnknown, message: no status}]}}";
        let lost = node(&yaml(lost));
        assert_eq!((lost.is_healthy, lost.detail.as_str()), (false, "NodeStatusUnknown: no status"));
        let broken = "{metadata: {name: etcd-0}, conditions: [{type: Healthy, status: 'False', message: refused}]}";
        assert_eq!(component(&yaml(broken)).detail, "refused");
    }
}
