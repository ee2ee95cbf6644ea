//! Cores and devices that are a pod's own, on the embedded runtime in namespaces of its own. Needs root, and two cores.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::grpc::{Answering, Answers, BoxFuture, respond_stream, respond_unary, serve_calls};
use kubelet::managers::devices::wire;
use tempfile::TempDir;

use crate::support::{BINARY, tool};

const ENTER: &str = "ip link set lo up && ip link add way type veth peer name out && \
    ip address add 192.0.2.10/24 dev way && ip link set way up && ip link set out up && \
    ip route add default via 192.0.2.1 && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
    mkdir -p /var/lib/cni && mount -t tmpfs none /var/lib/cni && exec \"$0\" \"$@\"";

const CONFIG: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: '0'
topologyManagerPolicy: single-numa-node
";

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shares}
spec:
  nodeName: node
  containers: [{name: c, image: tiphys.local/hello}]
---
apiVersion: v1
kind: Pod
metadata: {name: has}
spec:
  nodeName: node
  containers:
  - name: c
    image: tiphys.local/hello
    resources: {limits: {cpu: "1", memory: 64Mi, example.com/thing: "1"}}
"#;

const TOO_MUCH: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: wants}
spec:
  nodeName: node
  containers:
  - name: c
    image: tiphys.local/hello
    resources: {limits: {cpu: "1", memory: 64Mi}}
"#;

struct Cluster {
    process: Child,
    dir: TempDir,
    cgroup: String,
}

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().expect("a folder");
        let name = dir.path().file_name().expect("a name").to_string_lossy().replace('.', "");
        let cgroup = format!("/tiphys-e2e-{name}");
        std::fs::write(dir.path().join("kubelet.yaml"), CONFIG).expect("a file");
        let process = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER, BINARY])
            .args(["up", "--port", "6443", "--node-name", "node", "--cgroup-root", &cgroup, "--data-dir"])
            .arg(dir.path().join("data"))
            .arg("--kubelet-config")
            .arg(dir.path().join("kubelet.yaml"))
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare is there");
        Cluster { process, dir, cgroup }
    }

    fn kubectl(&self, args: &[&str]) -> Option<String> {
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        let inside = std::fs::read_to_string(children).ok()?.trim().to_string();
        let kubectl = tool("kubectl-1.20/usr/bin/kubectl");
        let mut command = Command::new("nsenter");
        command.args(["-t", &inside, "--net", "--mount", "--pid"]).arg(kubectl).args(args);
        let output = command.env("KUBECONFIG", self.dir.path().join("data/kubeconfig")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    fn apply(&self, manifest: &str) {
        let file = self.dir.path().join("manifest.yaml");
        std::fs::write(&file, manifest).expect("a file");
        until("the pods are made", || self.kubectl(&["apply", "-f", &file.to_string_lossy()]));
    }

    fn get(&self, what: &[&str], path: &str) -> Option<String> {
        let path = format!("jsonpath={{{path}}}");
        self.kubectl(&[&["get"], what, &["-o", &path]].concat())
    }

    /// The cores that the kernel lets a pod's container use.
    fn cores(&self, pod: &str) -> Option<String> {
        let id = self.get(&["pod", pod], ".status.containerStatuses[0].containerID")?;
        let pattern = format!("*{}*/cpuset.cpus", id.rsplit_once('/')?.1);
        let found = Command::new("find").args(["/sys/fs/cgroup", "-path", &pattern]).output().ok()?;
        let file = String::from_utf8_lossy(&found.stdout).lines().next()?.to_string();
        Some(std::fs::read_to_string(file).ok()?.trim().to_string())
    }
}

impl Drop for Cluster {
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let pattern = format!("*{}*", self.cgroup);
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let found = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-path", &pattern]).output();
            let found = found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            if found.is_empty() || Instant::now() > deadline {
                return;
            }
            found.lines().rev().for_each(|dir| drop(std::fs::remove_dir(dir)));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A plugin with one device, whose health a test changes.
async fn serve_plugin(dir: &Path, health: tokio::sync::watch::Receiver<&'static str>) {
    let answering: Answering = Arc::new(move |request| {
        let health = health.clone();
        match request.uri().path() {
            "/v1beta1.DevicePlugin/ListAndWatch" => respond_stream(
                request,
                move |_: wire::Empty| -> BoxFuture<'static, Answers<wire::ListAndWatchResponse>> {
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
        let told: Result<wire::Empty, _> = cri::grpc::call(&channel, wire::REGISTER, register).await;
        told.expect("registered");
    });
    serve_calls(listener, answering).await.expect("served");
}

fn lists(mut health: tokio::sync::watch::Receiver<&'static str>) -> Answers<wire::ListAndWatchResponse> {
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
    Box::pin(Polled(next))
}

/// A stream by the function that gives its next item.
struct Polled<F>(F);

impl<T, F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin> tokio_stream::Stream
    for Polled<F>
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
fn cores_and_devices_are_given_to_pods() {
    let cluster = Cluster::start();
    let plugins = cluster.dir.path().join("data/kubelet/device-plugins");
    until("plugins can register", || plugins.join("kubelet.sock").exists().then_some(()));
    let (health, seen) = tokio::sync::watch::channel("Healthy");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.spawn(async move { serve_plugin(&plugins, seen).await });
    let things = ".status.allocatable.example\\.com/thing";
    until("the node has a device", || cluster.get(&["node", "node"], things).filter(|count| count == "1"));
    assert_eq!(cluster.get(&["node", "node"], ".status.allocatable.cpu").as_deref(), Some("1"));
    cluster.apply(PODS);
    let cores = |pod: &'static str, want: &'static str| {
        until(&format!("{pod} has {want}"), || cluster.cores(pod).filter(|cores| cores == want));
    };
    cores("has", "1");
    cores("shares", "0");
    let status = ".status.containerStatuses[0].allocatedResourcesStatus[0]";
    let told = || cluster.get(&["pod", "has"], &format!("{status}.resources[0].health"));
    until("its device is healthy", || told().filter(|health| health == "Healthy"));
    assert_eq!(cluster.get(&["pod", "has"], &format!("{status}.name")).as_deref(), Some("example.com/thing"));
    health.send_replace("Unhealthy");
    until("its device is not healthy any more", || told().filter(|health| health == "Unhealthy"));
    let page = "/api/v1/namespaces/default/pods/has:8080/proxy/";
    let page = until("the pod answers", || cluster.kubectl(&["get", "--raw", page]));
    assert!(page.lines().any(|line| line == "THING=t0"), "{page}");
    cluster.apply(TOO_MUCH);
    until("the pod is refused", || cluster.get(&["pod", "wants"], ".status.phase").filter(|phase| phase == "Failed"));
    let reason = cluster.get(&["pod", "wants"], ".status.reason");
    assert_eq!(reason.as_deref(), Some("TopologyAffinityError"));
    cluster.kubectl(&["delete", "pod", "has", "--grace-period=1"]).expect("deleted");
    cores("shares", "0-1");
}
