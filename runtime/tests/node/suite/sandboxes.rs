//! Calls about sandboxes.

use std::sync::Arc;

use cri::{
    ListPodSandboxRequest, NamespaceMode, PodSandboxFilter, PodSandboxState, PodSandboxStateValue,
    PodSandboxStatusRequest, RemovePodSandboxRequest, RunPodSandboxRequest, RuntimeService, StopPodSandboxRequest,
    StreamPodSandboxesRequest, UpdatePodSandboxResourcesRequest,
};
use tokio_stream::StreamExt;

use super::{Pod, Suite, cases, code};
use crate::harness::options;

const UNKNOWN: &str = "0123456789abcdef";

cases! {
    "RunPodSandbox: a pod gets an address" => has_an_address, "10.213.80.x";
    "RunPodSandbox: one in the host's network gets none" => has_no_address, "\"\"";
    "RunPodSandbox: a name is taken once" => a_name_twice, "Unknown, after removal ok";
    "RunPodSandbox: another attempt is another pod" => another_attempt, "ok";
    "RunPodSandbox: a handler that is not configured" => unknown_handler, "Unknown";
    "RunPodSandbox: without metadata" => no_metadata, "Unknown";
    "StopPodSandbox: stops containers, idempotent" => stop_twice, "ok, ok, Notready, Exited 137";
    "StopPodSandbox: unknown ID" => stop_unknown, "ok";
    "RemovePodSandbox: a running one, twice" => remove_twice, "ok, ok, NotFound, containers 0";
    "RemovePodSandbox: unknown ID" => remove_unknown, "ok";
    "PodSandboxStatus: reflects its config" => shown, "status Ready default/status-uid/2 a=1 note=two host ipc 0";
    "PodSandboxStatus: by a prefix of its ID" => short_id, "the same";
    "PodSandboxStatus: unknown ID" => status_unknown, "NotFound";
    "PodSandboxStatus: more with verbose" => verbose, "0, some";
    "ListPodSandbox: by id, label and state" => filtered, "id 1, short id 1, label 2, two labels 1, ready 1, not ready 1, other 0";
    "StreamPodSandboxes: streams the list" => streamed, "1";
    "UpdatePodSandboxResources: accepts new resources" => resources, "ok";
    "UpdatePodSandboxResources: unknown ID" => resources_unknown, "NotFound";
}

fn status_of(id: &str) -> PodSandboxStatusRequest {
    PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: false }
}

async fn address(suite: &Suite, pod: &Pod) -> String {
    let status = suite.node.runtime.pod_sandbox_status(status_of(&pod.id)).await.unwrap().status.unwrap();
    status.network.unwrap_or_default().ip
}

pub async fn networked(suite: &Suite, name: &str, change: impl FnOnce(&mut cri::PodSandboxConfig)) -> Pod {
    let own = |config: &mut cri::PodSandboxConfig| {
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
        change(config);
    };
    suite.pod_with(name, own).await
}

async fn has_an_address(suite: Arc<Suite>) -> String {
    let pod = networked(&suite, "address", |_| {}).await;
    let ip = address(&suite, &pod).await;
    let (network, host) = ip.rsplit_once('.').unwrap();
    if host.parse::<u8>().is_ok_and(|host| host > 1) { format!("{network}.x") } else { ip }
}

async fn has_no_address(suite: Arc<Suite>) -> String {
    let pod = suite.pod("no-address").await;
    format!("{:?}", address(&suite, &pod).await)
}

async fn a_name_twice(suite: Arc<Suite>) -> String {
    let pod = suite.pod("twice").await;
    let request = RunPodSandboxRequest { config: Some(pod.config.clone()), ..Default::default() };
    let second = suite.node.runtime.run_pod_sandbox(request.clone()).await;
    suite.node.remove_sandbox(&pod.id).await;
    format!("{}, after removal {}", code(&second), code(&suite.node.runtime.run_pod_sandbox(request).await))
}

async fn another_attempt(suite: Arc<Suite>) -> String {
    let mut pod = suite.pod("attempt").await;
    pod.config.metadata.as_mut().unwrap().attempt = 1;
    let request = RunPodSandboxRequest { config: Some(pod.config), ..Default::default() };
    code(&suite.node.runtime.run_pod_sandbox(request).await)
}

async fn unknown_handler(suite: Arc<Suite>) -> String {
    let config = Some(suite.node.sandbox_config("handler"));
    code(&suite.node.runtime.run_pod_sandbox(RunPodSandboxRequest { config, runtime_handler: "none".into() }).await)
}

async fn no_metadata(suite: Arc<Suite>) -> String {
    let config = cri::PodSandboxConfig { metadata: None, ..suite.node.sandbox_config("nameless") };
    code(&suite.node.runtime.run_pod_sandbox(RunPodSandboxRequest { config: Some(config), ..Default::default() }).await)
}

async fn stop(suite: &Suite, id: &str) -> String {
    code(&suite.node.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id.into() }).await)
}

async fn remove(suite: &Suite, id: &str) -> String {
    code(&suite.node.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: id.into() }).await)
}

async fn stop_twice(suite: Arc<Suite>) -> String {
    let (pod, id) = suite.running("stop-pod", "sleep 1000").await;
    let stopped = [stop(&suite, &pod.id).await, stop(&suite, &pod.id).await].join(", ");
    let status = suite.node.runtime.pod_sandbox_status(status_of(&pod.id)).await.unwrap().status.unwrap();
    let container = suite.node.status(&id).await;
    format!("{stopped}, {:?}, {:?} {}", status.state(), container.state(), container.exit_code)
}

async fn stop_unknown(suite: Arc<Suite>) -> String {
    stop(&suite, UNKNOWN).await
}

async fn remove_twice(suite: Arc<Suite>) -> String {
    let (pod, _) = suite.running("remove-pod", "sleep 1000").await;
    let removed = [remove(&suite, &pod.id).await, remove(&suite, &pod.id).await].join(", ");
    let status = code(&suite.node.runtime.pod_sandbox_status(status_of(&pod.id)).await);
    let filter = Some(cri::ContainerFilter { pod_sandbox_id: pod.id, ..Default::default() });
    let left = suite.node.runtime.list_containers(cri::ListContainersRequest { filter }).await.unwrap();
    format!("{removed}, {status}, containers {}", left.containers.len())
}

async fn remove_unknown(suite: Arc<Suite>) -> String {
    remove(&suite, UNKNOWN).await
}

async fn shown(suite: Arc<Suite>) -> String {
    let pod = suite
        .pod_with("status", |config| {
            config.metadata.as_mut().unwrap().attempt = 2;
            config.labels.insert("a".into(), "1".into());
            config.annotations.insert("note".into(), "two".into());
        })
        .await;
    let status = suite.node.runtime.pod_sandbox_status(status_of(&pod.id)).await.unwrap().status.unwrap();
    let metadata = status.metadata.clone().unwrap();
    let namespaces = status.linux.clone().unwrap().namespaces.unwrap().options.unwrap();
    format!(
        "{} {:?} {}/{}/{} a={} note={} {} ipc {}",
        metadata.name,
        status.state(),
        metadata.namespace,
        metadata.uid,
        metadata.attempt,
        status.labels["a"],
        status.annotations["note"],
        if namespaces.network() == NamespaceMode::Node { "host" } else { "pod" },
        namespaces.ipc,
    )
}

async fn short_id(suite: Arc<Suite>) -> String {
    let pod = suite.pod("short").await;
    match suite.node.runtime.pod_sandbox_status(status_of(&pod.id[..13])).await {
        Ok(answer) if answer.status.as_ref().unwrap().id == pod.id => "the same".into(),
        other => code(&other),
    }
}

async fn status_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.pod_sandbox_status(status_of(UNKNOWN)).await)
}

async fn verbose(suite: Arc<Suite>) -> String {
    let pod = suite.pod("verbose").await;
    let plain = suite.node.runtime.pod_sandbox_status(status_of(&pod.id)).await.unwrap().info;
    let request = PodSandboxStatusRequest { verbose: true, ..status_of(&pod.id) };
    let more = suite.node.runtime.pod_sandbox_status(request).await.unwrap().info;
    format!("{}, {}", plain.len(), if more.is_empty() { "none" } else { "some" })
}

async fn filtered(suite: Arc<Suite>) -> String {
    let labelled = |name: &'static str| {
        let suite = suite.clone();
        async move {
            let change = |config: &mut cri::PodSandboxConfig| {
                config.labels = [("case", "filter"), ("name", name)].map(|(k, v)| (k.into(), v.into())).into();
            };
            suite.pod_with(name, change).await
        }
    };
    let (one, two) = (labelled("filter-one").await, labelled("filter-two").await);
    stop(&suite, &two.id).await;
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let both = PodSandboxFilter { label_selector: labels(&[("case", "filter")]), ..Default::default() };
    let in_state = |state: PodSandboxState| {
        let state = Some(PodSandboxStateValue { state: state as i32 });
        PodSandboxFilter { state, ..both.clone() }
    };
    let table = [
        ("id", PodSandboxFilter { id: one.id.clone(), ..Default::default() }),
        ("short id", PodSandboxFilter { id: one.id[..13].into(), ..Default::default() }),
        ("label", both.clone()),
        (
            "two labels",
            PodSandboxFilter {
                label_selector: labels(&[("case", "filter"), ("name", "filter-two")]),
                ..Default::default()
            },
        ),
        ("ready", in_state(PodSandboxState::Ready)),
        ("not ready", in_state(PodSandboxState::Notready)),
        ("other", PodSandboxFilter { label_selector: labels(&[("case", "none")]), ..Default::default() }),
    ];
    let mut results = Vec::new();
    for (name, filter) in table {
        let request = ListPodSandboxRequest { filter: Some(filter) };
        results.push(format!("{name} {}", suite.node.runtime.list_pod_sandbox(request).await.unwrap().items.len()));
    }
    results.join(", ")
}

async fn streamed(suite: Arc<Suite>) -> String {
    let pod = suite.pod("streamed").await;
    let filter = Some(PodSandboxFilter { id: pod.id, ..Default::default() });
    let mut answers = match suite.node.runtime.stream_pod_sandboxes(StreamPodSandboxesRequest { filter }).await {
        Ok(answers) => answers,
        refused => return code(&refused),
    };
    let mut count = 0;
    while let Some(answer) = answers.next().await {
        count += answer.unwrap().pod_sandboxes.len();
    }
    count.to_string()
}

async fn resources(suite: Arc<Suite>) -> String {
    let pod = suite.pod("pod-resources").await;
    let request = UpdatePodSandboxResourcesRequest { pod_sandbox_id: pod.id, ..Default::default() };
    code(&suite.node.runtime.update_pod_sandbox_resources(request).await)
}

async fn resources_unknown(suite: Arc<Suite>) -> String {
    let request = UpdatePodSandboxResourcesRequest { pod_sandbox_id: UNKNOWN.into(), ..Default::default() };
    code(&suite.node.runtime.update_pod_sandbox_resources(request).await)
}
