//! Exclusive CPUs and devices of pods. Needs two CPUs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cri::grpc::{BoxFuture, CallHandler, ResponseStream, respond_stream, respond_unary, serve_calls};
use kubelet::resources::managers::devices::wire;

use super::case::Case;
use super::cluster::{Cluster, ENTER, NODE, Runtime, cgroup_of};

const CONFIG: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: '0'
topologyManagerPolicy: single-numa-node
";

fn start() -> Cluster {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("kubelet.yaml"), CONFIG).expect("a file");
    let cgroup = cgroup_of(&dir);
    let words = ["up", "--port", "6443", "--node-name", NODE, "--data-dir", "data", "--cgroup-root", &cgroup];
    let words = words.iter().chain(&["--kubelet-config", "kubelet.yaml"]).map(ToString::to_string);
    let cluster = Cluster::run(dir, Runtime::Embedded, ENTER, &words.collect::<Vec<_>>());
    cluster.enter();
    cluster
}

/// The cores that the kernel lets a pod's container use.
fn cores(case: &Case<'_>, pod: &str) -> Option<String> {
    let pod = case.object("pods", pod);
    let id = pod.list("status.containerStatuses").first()?.str("containerID").rsplit_once('/')?.1.to_string();
    let found = Command::new("find").args(["/sys/fs/cgroup", "-path", &format!("*{id}*/cpuset.cpus")]).output().ok()?;
    let file = String::from_utf8_lossy(&found.stdout).lines().next()?.to_string();
    Some(fs::read_to_string(file).ok()?.trim().to_string())
}

fn until_cores(case: &Case<'_>, pod: &str, want: &str) {
    case.until(&format!("{pod} has {want}"), || cores(case, pod), |cores| cores.as_deref() == Some(want));
}

/// The resource and the health of the device that the pod has.
fn health(case: &Case<'_>) -> Option<(String, String)> {
    let pod = case.object("pods", "has");
    let resource = pod.list("status.containerStatuses").first()?.list("allocatedResourcesStatus").first()?.clone();
    let health = resource.list("resources").first()?.str("health").to_string();
    Some((resource.str("name").to_string(), health))
}

/// A plugin with one device, whose health a test changes.
async fn serve_plugin(dir: &Path, health: tokio::sync::watch::Receiver<&'static str>) {
    let answering: CallHandler = Arc::new(move |request| {
        let health = health.clone();
        match request.uri().path() {
            "/v1beta1.DevicePlugin/ListAndWatch" => respond_stream(
                request,
                move |_: wire::Empty| -> BoxFuture<'static, ResponseStream<wire::ListAndWatchResponse>> {
                    let lists = lists(health.clone());
                    Box::pin(async move { Ok(lists) })
                },
            ),
            _ => respond_unary(request, |_: wire::AllocateRequest| -> BoxFuture<'static, wire::AllocateResponse> {
                let mut answer = wire::ContainerAllocateResponse::default();
                answer.envs.insert("THING".to_string(), "t0".to_string());
                Box::pin(async move { Ok(wire::AllocateResponse { container_responses: vec![answer] }) })
            }),
        }
    });
    let listener = tokio::net::UnixListener::bind(dir.join("thing.sock")).expect("a socket");
    let register = wire::RegisterRequest {
        version: wire::VERSION.to_string(),
        endpoint: "thing.sock".to_string(),
        resource_name: "example.com/thing".to_string(),
        options: None,
    };
    let channel = cri::grpc::dial(&dir.join("kubelet.sock"));
    tokio::spawn(async move {
        let registered: Result<wire::Empty, _> = cri::grpc::call(&channel, wire::REGISTER, register).await;
        registered.expect("registered");
    });
    serve_calls(listener, answering).await.expect("served");
}

fn lists(mut health: tokio::sync::watch::Receiver<&'static str>) -> ResponseStream<wire::ListAndWatchResponse> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let device =
                wire::Device { id: "t0".to_string(), health: health.borrow_and_update().to_string(), topology: None };
            if sender.send(Ok(wire::ListAndWatchResponse { devices: vec![device] })).await.is_err() {
                return;
            }
            if health.changed().await.is_err() {
                return;
            }
        }
    });
    let next = move |context: &mut std::task::Context<'_>| receiver.poll_recv(context);
    Box::pin(PollStream(next))
}

/// A stream from a function that polls its next item.
struct PollStream<F>(F);

impl<T, F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin> tokio_stream::Stream
    for PollStream<F>
{
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        (self.0)(context)
    }
}

#[test]
fn cpus_and_devices_are_assigned_to_pods() {
    let cluster = start();
    let case = Case::of_cluster(&cluster);
    let plugins = cluster.dir.path().join("data/kubelet/device-plugins");
    case.until("plugins can register", || plugins.join("kubelet.sock").exists(), |there| *there);
    let (sick, seen) = tokio::sync::watch::channel("Healthy");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.spawn(async move { serve_plugin(&plugins, seen).await });
    let node = || case.read("/api/v1/nodes/node").map("status.allocatable").clone();
    let node = case.until("a device", node, |allocatable| allocatable.str("example.com/thing") == "1");
    assert_eq!(node.str("cpu"), "1", "one is reserved");
    case.until("the account", || case.object("serviceaccounts", "default"), |account| !account.is_null());
    let hello = "nodeName: node, containers: [{name: c, image: tiphys.local/hello";
    case.pod("shares", &format!("{hello}}}]"));
    let limits = "resources: {limits: {cpu: '1', memory: 64Mi";
    case.pod("has", &format!("{hello}, {limits}, example.com/thing: '1'}}}}}}]"));
    until_cores(&case, "has", "1");
    until_cores(&case, "shares", "0");
    let is = |want: &'static str| {
        let want = Some(("example.com/thing".to_string(), want.to_string()));
        case.until("the device's health", || health(&case), |health| *health == want);
    };
    is("Healthy");
    sick.send_replace("Unhealthy");
    is("Unhealthy");
    case.until_ready("has");
    let page = case.kubectl(&["get", "--raw", "/api/v1/namespaces/default/pods/has:8080/proxy/"]);
    assert!(page.lines().any(|line| line == "THING=t0"), "{page}");
    case.pod("wants", &format!("{hello}, {limits}}}}}}}]"));
    let refused = case.until_pod("wants", "an end", |pod| pod.str("status.phase") == "Failed");
    assert_eq!(refused.str("status.reason"), "TopologyAffinityError");
    case.kubectl(&["delete", "pod", "has", "--grace-period=1"]);
    until_cores(&case, "shares", "0-1");
}
