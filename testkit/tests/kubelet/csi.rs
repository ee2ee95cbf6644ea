//! Volumes of a CSI driver, from its registration to the last call. The fake driver mounts tmpfs and records its calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use api::{Tree, list, tree};
use cri::grpc::{Body, BoxFuture, CallHandler, ResponseFuture, respond_unary, serve_calls};
use kubelet::volumes::csi::{sha256, wire};
use stdx::sync::Mutex;
use testkit::{Client, Cluster, Storage};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::is_apart;
use super::volumes::{CORE, Node, account_and_node, make, mode, text};
use crate::until;

const NAME: &str = "memory.example";

/// A call of the driver, with its arguments.
#[derive(Debug, Clone, Default, PartialEq)]
struct Called {
    call: &'static str,
    volume: String,
    path: String,
    context: BTreeMap<String, String>,
    group: String,
}

#[derive(Default)]
struct Calls(Mutex<Vec<Called>>);

impl Calls {
    fn note(&self, called: Called) {
        self.0.lock().push(called);
    }

    /// The names of calls since the last time, each once.
    fn take(&self) -> Vec<Called> {
        std::mem::take(&mut *self.0.lock())
    }

    fn names(&self) -> Vec<&'static str> {
        self.take().iter().map(|called| called.call).collect()
    }
}

struct Driver {
    calls: Arc<Calls>,
    /// The number of slow volumes that may be mounted.
    gate: Arc<Semaphore>,
    registration: PathBuf,
    tasks: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Driver {
    /// Listens, and registers in the directory of registrations.
    fn start(root: &Path) -> Driver {
        let calls = Arc::new(Calls::default());
        let (endpoint, registration) = (root.join("driver.sock"), root.join("plugins_registry/memory.sock"));
        fs::create_dir_all(registration.parent().unwrap()).unwrap();
        let driver = UnixListener::bind(&endpoint).unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let called = (calls.clone(), gate.clone());
        let node: CallHandler = Arc::new(move |request| node(&called.0, &called.1, request));
        let endpoint = endpoint.to_str().unwrap().to_string();
        let called = calls.clone();
        let known: CallHandler = Arc::new(move |request| registration_of(&called, &endpoint, request));
        let announced = UnixListener::bind(&registration).unwrap();
        let tasks = vec![tokio::spawn(serve_calls(driver, node)), tokio::spawn(serve_calls(announced, known))];
        Driver { calls, gate, registration, tasks }
    }

    fn stop(self) {
        fs::remove_file(&self.registration).unwrap();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn with<T: Send + 'static>(answer: T) -> BoxFuture<'static, T> {
    Box::pin(async move { Ok(answer) })
}

fn registration_of(calls: &Arc<Calls>, endpoint: &str, request: http::Request<Body>) -> ResponseFuture {
    let (calls, endpoint) = (calls.clone(), endpoint.to_string());
    match request.uri().path() {
        "/pluginregistration.Registration/GetInfo" => respond_unary(request, move |_: wire::Empty| {
            with(wire::PluginInfo {
                kind: "CSIPlugin".into(),
                name: NAME.into(),
                endpoint: endpoint.clone(),
                supported_versions: vec!["1.0.0".into()],
            })
        }),
        _ => respond_unary(request, move |status: wire::RegistrationStatus| {
            assert!(status.plugin_registered, "{}", status.error);
            calls.note(Called { call: "registered", ..Called::default() });
            with(wire::Empty {})
        }),
    }
}

fn node(calls: &Arc<Calls>, gate: &Arc<Semaphore>, request: http::Request<Body>) -> ResponseFuture {
    let (calls, gate) = (calls.clone(), gate.clone());
    let path = request.uri().path().trim_start_matches("/csi.v1.Node/").to_string();
    match path.as_str() {
        "NodeGetInfo" => respond_unary(request, |_: wire::Empty| {
            let segments = BTreeMap::from([("topology.memory.example/rack".to_string(), "r1".to_string())]);
            let topology = Some(wire::Topology { segments });
            with(wire::NodeInfo { node_id: "id-1".into(), max_volumes_per_node: 9, accessible_topology: topology })
        }),
        "NodeGetCapabilities" => respond_unary(request, |_: wire::Empty| {
            let stage = wire::NodeRpc { kind: wire::capability::STAGE_UNSTAGE_VOLUME };
            with(wire::NodeCapabilities { capabilities: vec![wire::NodeCapability { rpc: Some(stage) }] })
        }),
        "NodeStageVolume" => respond_unary(request, move |asked: wire::NodeStageVolume| {
            let mut context = asked.volume_context;
            context.extend(asked.publish_context);
            context.extend(asked.secrets);
            let (volume, path) = (asked.volume_id, asked.staging_target_path);
            calls.note(Called { call: "stage", volume, path, context, ..Called::default() });
            with(wire::Empty {})
        }),
        "NodePublishVolume" => respond_unary(request, move |asked: wire::NodePublishVolume| {
            let (calls, gate) = (calls.clone(), gate.clone());
            Box::pin(async move {
                if asked.volume_context.contains_key("slow") {
                    calls.note(Called { call: "asked", ..Called::default() });
                    // The driver finishes a call whether or not the caller waits.
                    tokio::spawn(async move { drop(gate.acquire().await) }).await.unwrap();
                }
                mount(&asked.target_path);
                let (volume, path, context) = (asked.volume_id, asked.target_path, asked.volume_context);
                calls.note(Called { call: "publish", volume, path, context, group: asked.staging_target_path });
                Ok(wire::Empty {})
            })
        }),
        "NodeUnpublishVolume" => respond_unary(request, move |asked: wire::NodeUnpublishVolume| {
            assert!(Command::new("umount").arg(&asked.target_path).status().unwrap().success());
            fs::remove_dir(&asked.target_path).unwrap();
            calls.note(Called { call: "unpublish", volume: asked.volume_id, ..Called::default() });
            with(wire::Empty {})
        }),
        _ => respond_unary(request, move |asked: wire::NodeUnstageVolume| {
            calls.note(Called { call: "unstage", volume: asked.volume_id, ..Called::default() });
            with(wire::Empty {})
        }),
    }
}

fn mount(target: &str) {
    if Path::new(target).is_dir() {
        return;
    }
    fs::create_dir(target).unwrap();
    assert!(Command::new("mount").args(["-t", "tmpfs", "tmpfs", target]).status().unwrap().success());
}

async fn fill(client: &Client) {
    account_and_node(client).await;
    let driver = "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: memory.example}, spec: {attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}}";
    make(client, "/apis/storage.k8s.io/v1/csidrivers", driver).await;
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: stage}, data: {password: eA==}}";
    make(client, &format!("{CORE}/secrets"), secret).await;
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeName: pv1, storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let claim = make(client, &format!("{CORE}/persistentvolumeclaims"), claim).await;
    let volume = "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv1}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: memory.example, volumeHandle: h-1, volumeAttributes: {size: big}, nodeStageSecretRef: {name: stage, namespace: default}}, claimRef: {namespace: default, name: data, uid: UID}}}";
    make(client, "/api/v1/persistentvolumes", &volume.replace("UID", claim.str("metadata.uid"))).await;
    let bound = r#"{"status":{"phase":"Bound"}}"#;
    assert_eq!(client.patch(&format!("{CORE}/persistentvolumeclaims/data/status"), "merge", bound).await.code, 200);
}

async fn pod(client: &Client, name: &str, volume: &str) -> Tree {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {nodeName: n1, automountServiceAccountToken: false, securityContext: {fsGroup: 3000}, containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, VOLUME}]}}";
    make(client, &format!("{CORE}/pods"), &text.replace("NAME", name).replace("VOLUME", volume)).await
}

async fn attach(client: &Client) {
    let name = format!("csi-{}", sha256("h-1memory.examplen1"));
    let object = tree! {
        "apiVersion" => "storage.k8s.io/v1", "kind" => "VolumeAttachment", "metadata" => tree! { "name" => &name },
        "spec" => tree! { "attacher" => NAME, "nodeName" => "n1", "source" => tree! { "persistentVolumeName" => "pv1" } },
    };
    let path = "/apis/storage.k8s.io/v1/volumeattachments";
    assert_eq!(client.post(path, &object).await.code, 201);
    let status = r#"{"status":{"attached":true,"attachmentMetadata":{"device":"/dev/x"}}}"#;
    assert_eq!(client.patch(&format!("{path}/{name}/status"), "merge", status).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn csi_driver_mounts_and_unmounts_volumes() {
    if !is_apart("kubelet::csi::csi_driver_mounts_and_unmounts_volumes") {
        return;
    }
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    fill(client).await;
    let one = pod(client, "one", "persistentVolumeClaim: {claimName: data}").await;
    let mut node = Node::start(&cluster);
    let volumes = node.volumes.clone();
    let finding = tokio::spawn(async move { volumes.run(&|_, _, _| Ok(())).await });
    let unknown = "FailedMount MountVolume.MountDevice failed for volume \"pv1\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name memory.example not found in the list of registered CSI drivers";
    assert_eq!(node.problem(&one).await, [unknown]);
    // A driver that does not respond must not block the next one.
    let registry = node.directory.path().join("plugins_registry");
    fs::create_dir_all(&registry).unwrap();
    let _silent = UnixListener::bind(registry.join("a-silent.sock")).unwrap();
    let driver = Driver::start(node.directory.path());
    let csi_node = "/apis/storage.k8s.io/v1/csinodes/n1";
    let shown = client.until(csi_node, |code, object| code == 200 && !object.list("spec.drivers").is_empty()).await;
    let wanted = tree! {
        "name" => NAME, "nodeID" => "id-1", "topologyKeys" => list!["topology.memory.example/rack"],
        "allocatable" => tree! { "count" => 9 },
    };
    assert_eq!(shown.list("spec.drivers"), [wanted]);
    let labelled = client.get("/api/v1/nodes/n1").await.tree();
    assert_eq!(labelled.map("metadata.labels").str("topology.memory.example/rack"), "r1");
    assert_eq!(
        labelled.map("metadata.annotations").str("csi.volume.kubernetes.io/nodeid"),
        r#"{"memory.example":"id-1"}"#
    );
    until("the driver is registered", async || driver.calls.0.lock().iter().any(|called| called.call == "registered"))
        .await;
    assert_eq!(node.told().await, one.str("metadata.uid"), "it waits no longer");

    // The volume is attached before the driver is called.
    assert_eq!(node.problem(&one).await, [""; 0], "waiting for an attachment is no failure yet");
    assert_eq!(driver.calls.names(), ["registered"]);
    let used: Vec<String> = node.volumes.in_use().borrow().iter().cloned().collect();
    assert_eq!(used, ["kubernetes.io/csi/memory.example^h-1"]);
    attach(client).await;
    node.prepare(&one).await;
    published(&node, &one, &driver.calls.take());
    node.prepare(&one).await;
    assert!(driver.calls.take().is_empty(), "once is enough");

    // Two pods share what is staged; it goes with the last of them.
    let two = pod(client, "two", "persistentVolumeClaim: {claimName: data}").await;
    let inline = pod(client, "inline", "csi: {driver: memory.example, volumeAttributes: {a: b}}").await;
    node.prepare(&two).await;
    let mounted = node.prepare(&inline).await;
    assert_eq!(mounted.volumes["v"].name, "v");
    let called = driver.calls.take().pop().unwrap();
    assert_eq!((called.call, called.context["csi.storage.k8s.io/ephemeral"].as_str()), ("publish", "true"));
    let uid = |pod: &Tree| pod.str("metadata.uid").to_string();
    node.volumes.remove(&uid(&one)).await.unwrap();
    assert_eq!(driver.calls.names(), ["unpublish"]);
    // A new kubelet reads from its files which volumes to unmount.
    finding.abort();
    let node = Node::start_in(&cluster, node.directory);
    let error = node.volumes.remove(&uid(&two)).await.unwrap_err().to_string();
    assert!(error.contains("not found in the list of registered CSI drivers"), "{error}");
    let volumes = node.volumes.clone();
    let finding = tokio::spawn(async move { volumes.run(&|_, _, _| Ok(())).await });
    until("the driver is called", async || !driver.calls.take().is_empty()).await;
    node.volumes.remove(&uid(&two)).await.unwrap();
    assert_eq!(driver.calls.names(), ["unpublish", "unstage"]);
    node.volumes.remove(&uid(&inline)).await.unwrap();
    assert_eq!(driver.calls.names(), ["unpublish"]);
    assert!(node.volumes.in_use().borrow().is_empty() && node.volumes.reconstruct().unwrap().is_empty());
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(node.directory.path().to_str().unwrap()));
    driver.stop();
    client.until(csi_node, |_, object| object.list("spec.drivers").is_empty()).await;
    finding.abort();
    cluster.stop().await;
}

fn published(node: &Node, pod: &Tree, calls: &[Called]) {
    let [stage, publish] = calls else { panic!("{calls:?}") };
    let root = node.directory.path().to_str().unwrap();
    let staged = format!("{root}/plugins/kubernetes.io/csi/{NAME}/{}/globalmount", sha256("h-1"));
    assert_eq!((stage.call, stage.volume.as_str(), &stage.path), ("stage", "h-1", &staged));
    let told = |key: &str| stage.context.get(key).map(String::as_str);
    assert_eq!((told("size"), told("device"), told("password")), (Some("big"), Some("/dev/x"), Some("x")));
    let target = node.at(pod, "kubernetes.io~csi", "pv1").join("mount");
    assert_eq!((publish.call, Path::new(&publish.path), &publish.group), ("publish", target.as_path(), &staged));
    assert_eq!(publish.context["csi.storage.k8s.io/pod.name"], "one");
    assert!(node.is_mounted(&target));
    assert_eq!(mode(&target) & 0o2070, 0o2070, "it is the group's");
    let data = text(target.parent().unwrap().join("vol_data.json"));
    assert!(data.contains(r#""driverName":"memory.example""#) && data.contains(r#""volumeHandle":"h-1""#), "{data}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_mounts_are_undone() {
    if !is_apart("kubelet::csi::unfinished_mounts_are_undone") {
        return;
    }
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    fill(client).await;
    let node = Node::start(&cluster);
    // No driver was called for this volume, and none is needed to clean it up.
    let early = pod(client, "early", "persistentVolumeClaim: {claimName: data}").await;
    assert_eq!(node.problem(&early).await.len(), 1);
    node.volumes.remove(early.str("metadata.uid")).await.unwrap();

    let volumes = node.volumes.clone();
    let finding = tokio::spawn(async move { volumes.run(&|_, _, _| Ok(())).await });
    let driver = Driver::start(node.directory.path());
    until("the driver is registered", async || driver.calls.0.lock().iter().any(|called| called.call == "registered"))
        .await;
    let slow = pod(client, "slow", "csi: {driver: memory.example, volumeAttributes: {slow: 'true'}}").await;
    let (volumes, wanted) = (node.volumes.clone(), slow.clone());
    let preparing = tokio::spawn(async move { volumes.prepare(&wanted).await.is_ok() });
    until("the driver is asked", async || driver.calls.0.lock().iter().any(|called| called.call == "asked")).await;
    // The pod ends while the driver is at it: the call has to end before anything is removed.
    preparing.abort();
    let (volumes, uid) = (node.volumes.clone(), slow.str("metadata.uid").to_string());
    let removing = tokio::spawn(async move { volumes.remove(&uid).await });
    driver.gate.add_permits(1);
    removing.await.unwrap().unwrap();
    assert_eq!(driver.calls.names(), ["registered", "asked", "publish", "unpublish"]);
    assert!(!node.at(&slow, "kubernetes.io~csi", "v").exists());
    finding.abort();
    driver.stop();
    cluster.stop().await;
}
