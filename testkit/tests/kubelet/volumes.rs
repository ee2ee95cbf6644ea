//! Volumes of pods: objects are read with the rights of the node and written to the pod's directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use kubelet::objects::Objects;
use kubelet::volumes::{Host, MountInputs, MountedVolumes, Volumes, mounts};
use testkit::{Client, Cluster, Storage};
use tokio::sync::mpsc;

use super::{is_apart, node_client};

pub const CORE: &str = "/api/v1/namespaces/default";

fn read(text: &str) -> Tree {
    api::yaml::decode(text.as_bytes()).unwrap()
}

pub async fn make(client: &Client, path: &str, text: &str) -> Tree {
    let reply = client.post(path, &read(text)).await;
    assert_eq!(reply.code, 201, "{:?}", reply.tree());
    reply.tree()
}

/// A node with volumes and nothing else.
pub struct Node {
    pub directory: tempfile::TempDir,
    objects: Arc<Objects>,
    pub volumes: Arc<Volumes>,
    config: Arc<kubelet::Config>,
    changed: mpsc::UnboundedReceiver<String>,
}

impl Node {
    pub fn start(cluster: &Cluster) -> Node {
        Node::start_in(cluster, tempfile::tempdir().unwrap())
    }

    /// Starts in the directory of another kubelet, as after a restart.
    pub fn start_in(cluster: &Cluster, directory: tempfile::TempDir) -> Node {
        let config = Arc::new(kubelet::Config { root_dir: directory.path().into(), ..kubelet::Config::default() });
        let client = node_client(cluster, "n1");
        let (sender, changed) = mpsc::unbounded_channel();
        let tell = move |uid: &str| drop(sender.send(uid.to_string()));
        let objects = Arc::new(Objects::new(client.clone(), 1, tell));
        let allocatable = || tree! { "cpu" => "4", "memory" => "1Gi" };
        let clock = Arc::new(stdx::clock::SystemClock);
        let host = Host::new(config.clone(), "n1", client, clock, objects.clone(), allocatable);
        Node { directory, objects, volumes: Arc::new(Volumes::new(host)), config, changed }
    }

    pub async fn prepare(&self, pod: &Tree) -> MountedVolumes {
        self.objects.register(pod);
        self.volumes.prepare(pod).await.expect("volumes")
    }

    pub async fn problem(&self, pod: &Tree) -> Vec<String> {
        self.objects.register(pod);
        let problem = self.volumes.prepare(pod).await.expect_err("a problem");
        problem.warnings.into_iter().map(|warning| format!("{} {}", warning.reason, warning.message)).collect()
    }

    /// The directory of a volume.
    pub fn at(&self, pod: &Tree, kind: &str, name: &str) -> PathBuf {
        self.config.pod_dir(pod.str("metadata.uid")).join("volumes").join(kind).join(name)
    }

    pub async fn told(&mut self) -> String {
        tokio::time::timeout(Duration::from_secs(10), self.changed.recv()).await.expect("in time").expect("a pod")
    }

    pub fn is_mounted(&self, path: &Path) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
    }
}

pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec:
  nodeName: n1
  serviceAccountName: default
  automountServiceAccountToken: false
  securityContext: {fsGroup: 2000}
  containers:
  - name: c
    image: i
    resources: {limits: {cpu: 500m, memory: 64Mi}}
    volumeMounts:
    - {name: config, mountPath: /config}
    - {name: secret, mountPath: /secret}
    - {name: own, mountPath: /own}
    - {name: all, mountPath: /all}
    - {name: scratch, mountPath: /scratch}
    - {name: memory, mountPath: /memory}
    - {name: scratch, mountPath: /sub, subPathExpr: $(NAME)/x}
    - {name: config, mountPath: /one, subPath: a}
  volumes:
  - {name: config, configMap: {name: settings, defaultMode: 0o440}}
  - {name: secret, secret: {secretName: keys, items: [{key: k, path: in/side, mode: 0o400}]}}
  - name: own
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}
  - name: all
    projected:
      sources:
      - {serviceAccountToken: {path: token, expirationSeconds: 600}}
      - {configMap: {name: settings, items: [{key: a, path: a}]}}
      - {secret: {name: absent, optional: true}}
      - {clusterTrustBundle: {name: anchors, path: ca.pem}}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: unused, configMap: {name: nowhere}}
"#;

pub async fn account_and_node(client: &Client) {
    let account = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}";
    make(client, &format!("{CORE}/serviceaccounts"), account).await;
    make(client, "/api/v1/nodes", "{apiVersion: v1, kind: Node, metadata: {name: n1}}").await;
}

const SECRET: &str = "{apiVersion: v1, kind: Secret, metadata: {name: keys}, data: {k: c2VjcmV0}}";

async fn fill(cluster: &Cluster) -> Tree {
    let client = &cluster.client;
    account_and_node(client).await;
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: one, b: two}}";
    make(client, &format!("{CORE}/configmaps"), map).await;
    make(client, &format!("{CORE}/secrets"), SECRET).await;
    let bundle = r#"{"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": "anchors"}, "spec": {"trustBundle": PEM}}"#;
    let pem = cluster.pki().read("ca").unwrap().unwrap().certificate;
    let bundle = bundle.replace("PEM", &format!("{pem:?}"));
    make(client, "/apis/certificates.k8s.io/v1/clustertrustbundles", &bundle).await;
    make(client, &format!("{CORE}/pods"), POD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_volumes_and_leaves_nothing() {
    if !is_apart("kubelet::volumes::a_pod_gets_its_volumes_and_leaves_nothing") {
        return;
    }
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let pod = fill(&cluster).await;
    let mut node = Node::start(&cluster);
    let mounted = node.prepare(&pod).await;
    assert_eq!(mounted.volumes.len(), 6, "what no container uses is not made");
    assert!(mounted.again.is_some_and(|again| again <= Duration::from_secs(480)), "{:?}", mounted.again);
    look_at_all(&node, &pod);
    look_at_mounts(&node, &pod, &mounted).await;
    follow_a_change(&cluster.client, &mut node, &pod).await;
    // A second look changes nothing, and a new kubelet finds all as it is.
    fs::write(node.at(&pod, "kubernetes.io~empty-dir", "memory").join("kept"), "x").unwrap();
    let node = Node::start_in(&cluster, node.directory);
    node.prepare(&pod).await;
    assert_eq!(text(node.at(&pod, "kubernetes.io~empty-dir", "memory").join("kept")), "x");
    assert_eq!(node.volumes.reconstruct().unwrap(), [pod.str("metadata.uid")]);
    node.volumes.remove(pod.str("metadata.uid")).await.unwrap();
    assert_eq!(node.volumes.reconstruct().unwrap(), [""; 0]);
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(pod.str("metadata.uid")));
    cluster.stop().await;
}

fn look_at_all(node: &Node, pod: &Tree) {
    let at = |kind: &str, name: &str| node.at(pod, &format!("kubernetes.io~{kind}"), name);
    let config = at("configmap", "config");
    assert_eq!((text(config.join("a")), text(config.join("b"))), ("one".into(), "two".into()));
    assert_eq!((mode(&config.join("a")), fs::metadata(config.join("a")).unwrap().gid()), (0o440, 2000));
    assert_eq!(fs::read_link(config.join("a")).unwrap(), Path::new("..data/a"));
    let secret = at("secret", "secret");
    assert_eq!((text(secret.join("in/side")), mode(&secret.join("in/side"))), ("secret".into(), 0o440));
    assert!(node.is_mounted(&secret) && node.is_mounted(&at("projected", "all")) && !node.is_mounted(&config));
    let own = at("downward-api", "own");
    assert_eq!((text(own.join("labels")), text(own.join("cpu"))), ("app=\"web\"".into(), "500".into()));
    let all = at("projected", "all");
    assert_eq!((text(all.join("token")).split('.').count(), mode(&all.join("token"))), (3, 0o640));
    assert_eq!(text(all.join("a")), "one");
    assert!(text(all.join("ca.pem")).starts_with("-----BEGIN CERTIFICATE-----\n"));
    let scratch = at("empty-dir", "scratch");
    assert_eq!((mode(&scratch), fs::metadata(&scratch).unwrap().gid()), (0o2777, 2000));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let memory = at("empty-dir", "memory");
    let line = table.lines().find(|line| line.contains(memory.to_str().unwrap())).expect("a mount");
    assert!(line.contains("tmpfs") && line.contains("size=1024k"), "{line}");
}

async fn look_at_mounts(node: &Node, pod: &Tree, mounted: &MountedVolumes) {
    let container = &pod.list("spec.containers")[0];
    let env = [("NAME".to_string(), b"made".to_vec())];
    let given = MountInputs { env: &env, ..MountInputs::default() };
    for _ in 0..2 {
        let created = mounts(&node.config, pod, container, mounted, &given).await.unwrap();
        let by =
            |path: &str| PathBuf::from(&created.iter().find(|mount| mount.container_path == path).unwrap().host_path);
        let scratch = node.at(pod, "kubernetes.io~empty-dir", "scratch");
        assert_eq!(mode(&scratch.join("made/x")), 0o2777);
        fs::write(by("/sub").join("f"), "through").unwrap();
        assert_eq!(text(scratch.join("made/x/f")), "through");
        assert_eq!(text(by("/one")), "one", "a file is bound as a file");
        let binds = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(binds.matches("volume-subpaths").count(), 2, "twice is once");
    }
    // A link that leads out is not followed.
    let scratch = node.at(pod, "kubernetes.io~empty-dir", "scratch");
    std::os::unix::fs::symlink("/etc", scratch.join("evil")).unwrap();
    let env = [("NAME".to_string(), b"evil".to_vec())];
    let refused =
        mounts(&node.config, pod, container, mounted, &MountInputs { env: &env, ..MountInputs::default() }).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "failed to prepare subPath for volumeMount \"scratch\" of container \"c\""
    );
    assert!(!Path::new("/etc/x").exists());
}

async fn follow_a_change(client: &Client, node: &mut Node, pod: &Tree) {
    let patch = r#"{"data":{"a":"new","b":null,"c":"three"}}"#;
    assert_eq!(client.patch(&format!("{CORE}/configmaps/settings"), "merge", patch).await.code, 200);
    assert_eq!(node.told().await, pod.str("metadata.uid"));
    node.prepare(pod).await;
    let config = node.at(pod, "kubernetes.io~configmap", "config");
    assert_eq!((text(config.join("a")), text(config.join("c"))), ("new".into(), "three".into()));
    assert!(!config.join("b").exists());
    assert_eq!(text(node.at(pod, "kubernetes.io~projected", "all").join("a")), "new");
    // A deleted object is reported, and the files stay.
    assert_eq!(client.delete(&format!("{CORE}/secrets/keys")).await.code, 200);
    node.told().await;
    let mounted = node.prepare(pod).await;
    let warned: Vec<&str> = mounted.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(warned, ["MountVolume.SetUp failed for volume \"secret\" : secret \"keys\" not found"]);
    assert_eq!(text(node.at(pod, "kubernetes.io~secret", "secret").join("in/side")), "secret");
    make(client, &format!("{CORE}/secrets"), SECRET).await;
    node.told().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_reported_and_awaited() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    account_and_node(client).await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, automountServiceAccountToken: false, containers: [{name: c, image: i, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}], volumes: [{name: a, configMap: {name: later}}, {name: b, persistentVolumeClaim: {claimName: data}}]}}";
    let pod = make(client, &format!("{CORE}/pods"), pod).await;
    let mut node = Node::start(&cluster);
    let missing = "FailedMount MountVolume.SetUp failed for volume \"a\" : configmap \"later\" not found";
    let waits = "FailedMount Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[b]: error processing PVC default/data: failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    assert_eq!(node.problem(&pod).await, [missing, waits]);
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {a: one}}";
    make(client, &format!("{CORE}/configmaps"), map).await;
    assert_eq!(node.told().await, pod.str("metadata.uid"));
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeName: v1, storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let claim = make(client, &format!("{CORE}/persistentvolumeclaims"), claim).await;
    let unbound = node.problem(&pod).await;
    assert!(
        unbound.len() == 1 && unbound[0].ends_with("error processing PVC default/data: PVC is not bound"),
        "{unbound:?}"
    );
    bind(client, node.directory.path(), &claim).await;
    let mounted = node.prepare(&pod).await;
    assert_eq!(mounted.volumes["b"].name, "v1");
    node.volumes.remove(pod.str("metadata.uid")).await.unwrap();
    assert!(node.directory.path().join("data").is_dir(), "what the volume holds stays");
    cluster.stop().await;
}

/// Binds a claim to a directory of the node, as a controller would.
async fn bind(client: &Client, directory: &Path, claim: &Tree) {
    let data = directory.join("data");
    let uid = claim.str("metadata.uid");
    let volume = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: v1}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], hostPath: {{path: '{}', type: DirectoryOrCreate}}, claimRef: {{namespace: default, name: data, uid: {uid}}}}}}}",
        data.display()
    );
    make(client, "/api/v1/persistentvolumes", &volume).await;
    let bound = client
        .patch(&format!("{CORE}/persistentvolumeclaims/data/status"), "merge", r#"{"status":{"phase":"Bound"}}"#)
        .await;
    assert_eq!(bound.code, 200);
}

/// A volume of a directory, bound to a claim of the same name.
async fn bound(client: &Client, name: &str, modes: &str, more: &str) {
    let claim = format!(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{volumeName: {name}, storageClassName: '', accessModes: {modes}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
    );
    let claim = make(client, &format!("{CORE}/persistentvolumeclaims"), &claim).await;
    let volume = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}, annotations: {{pv.beta.kubernetes.io/gid: '77'}}}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: {modes}, hostPath: {{path: /tmp}}, {more} claimRef: {{namespace: default, name: {name}, uid: {}}}}}}}",
        claim.str("metadata.uid")
    );
    make(client, "/api/v1/persistentvolumes", &volume).await;
    let path = format!("{CORE}/persistentvolumeclaims/{name}/status");
    assert_eq!(client.patch(&path, "merge", r#"{"status":{"phase":"Bound"}}"#).await.code, 200);
}

async fn with_claim(client: &Client, name: &str, claim: &str) -> Tree {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {nodeName: n1, automountServiceAccountToken: false, containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: CLAIM}]}}";
    make(client, &format!("{CORE}/pods"), &text.replace("NAME", name).replace("CLAIM", claim)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn enforces_access_of_persistent_volumes() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    account_and_node(client).await;
    let elsewhere = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [far]}]}]}},";
    bound(client, "far", "[ReadWriteOnce]", elsewhere).await;
    bound(client, "sole", "[ReadWriteOncePod]", "").await;
    let node = Node::start(&cluster);
    let lost = with_claim(client, "lost", "{claimName: far}").await;
    let wanted = "FailedMount MountVolume.NodeAffinity check failed for volume \"far\" : no matching NodeSelectorTerms";
    assert_eq!(node.problem(&lost).await, [wanted]);
    let patch = r#"{"metadata":{"labels":{"zone":"far"}}}"#;
    assert_eq!(client.patch("/api/v1/nodes/n1", "merge", patch).await.code, 200);
    node.prepare(&lost).await;

    let first = with_claim(client, "first", "{claimName: sole, readOnly: true}").await;
    let second = with_claim(client, "second", "{claimName: sole}").await;
    let mounted = node.prepare(&first).await;
    assert_eq!(mounted.groups(&first), [77]);
    let container = &first.list("spec.containers")[0];
    let seen = mounts(&node.config, &first, container, &mounted, &MountInputs::default()).await.unwrap();
    assert!(seen[0].readonly, "the claim says so");
    let wanted = "FailedMount MountVolume.SetUp failed for volume \"sole\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    assert_eq!(node.problem(&second).await, [wanted]);
    node.volumes.remove(first.str("metadata.uid")).await.unwrap();
    node.prepare(&second).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_issued_and_replaced_in_time() {
    if !is_apart("kubelet::volumes::a_certificate_is_issued_and_replaced_in_time") {
        return;
    }
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    account_and_node(client).await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, serviceAccountName: default, automountServiceAccountToken: false, securityContext: {fsGroup: 2000, fsGroupChangePolicy: OnRootMismatch}, containers: [{name: c, image: i, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, projected: {sources: [{podCertificate: {signerName: example.com/s, keyType: ED25519, keyPath: key, certificateChainPath: chain}}]}}]}}";
    let pod = make(client, &format!("{CORE}/pods"), pod).await;
    let node = Node::start(&cluster);
    let requests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    // The certificate must be replaced as soon as it exists: its times are those of an hour ago.
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    for chain in ["-----BEGIN CERTIFICATE-----\nfirst", "-----BEGIN CERTIFICATE-----\nsecond"] {
        let signer = async {
            let is_new = |one: &&Tree| !names.contains(&one.str("metadata.name").to_string());
            let asked = client.until(requests, |_, list| list.list("items").iter().any(|one| is_new(&one))).await;
            let name = asked.list("items").iter().find(is_new).unwrap().str("metadata.name").to_string();
            let at = |minutes: i64| {
                let now = stdx::clock::Clock::now(&stdx::clock::SystemClock).seconds;
                api::time::format_seconds(now + minutes * 60)
            };
            let condition = tree! {
                "type" => "Issued", "status" => "True", "reason" => "Yes", "message" => "", "lastTransitionTime" => at(0),
            };
            let status = tree! {
                "conditions" => api::list![condition], "certificateChain" => chain,
                "notBefore" => at(-60), "beginRefreshAt" => at(-30), "notAfter" => at(60),
            };
            let body = api::json::encode(&tree! { "status" => status }, None);
            let path = format!("{requests}/{name}/status");
            let reply = client.patch(&path, "merge", std::str::from_utf8(&body).unwrap()).await;
            assert_eq!(reply.code, 200, "{:?}", reply.tree());
            name
        };
        let (_, name) = tokio::join!(node.prepare(&pod), signer);
        names.push(name);
        let directory = node.at(&pod, "kubernetes.io~projected", "a");
        assert_eq!(text(directory.join("chain")), chain);
        keys.push(text(directory.join("key")));
        let stat = fs::metadata(directory.join("key")).unwrap();
        assert_eq!((stat.gid(), mode(&directory.join("key"))), (2000, 0o640), "the group reads it");
    }
    assert!(keys[0] != keys[1] && keys[0].contains("PRIVATE KEY"), "each has a key of its own");
    node.volumes.remove(pod.str("metadata.uid")).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_certificates_are_requested() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    account_and_node(client).await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: c, image: i, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, projected: {sources: [{podCertificate: {signerName: example.com/s, keyType: ED25519, credentialBundlePath: bundle, userAnnotations: {example.com/a: b}}}]}}]}}";
    let pod = make(client, &format!("{CORE}/pods"), pod).await;
    let node = Node::start(&cluster);
    let requests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let signer = async {
        let asked = client.until(requests, |_, list| list.list("items").len() == 1).await;
        let asked = &asked.list("items")[0];
        assert_eq!(asked.str("spec.podUID"), pod.str("metadata.uid"));
        assert_eq!(asked.map("spec.unverifiedUserAnnotations").str("example.com/a"), "b");
        let path = format!("{requests}/{}/status", asked.str("metadata.name"));
        let denied = r#"{"status":{"conditions":[{"type":"Denied","status":"True","reason":"No","message":"not you","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
        let reply = client.patch(&path, "merge", denied).await;
        assert_eq!(reply.code, 200, "{:?}", reply.tree());
    };
    let (problem, ()) = tokio::join!(node.problem(&pod), signer);
    let wanted = "FailedMount MountVolume.SetUp failed for volume \"a\" : PodCertificateRequest was permanently denied: reason=\"No\" message=\"not you\"";
    assert_eq!(problem, [wanted]);
    assert_eq!(node.problem(&pod).await, [wanted], "it is not asked again");
    assert_eq!(client.get(requests).await.tree().list("items").len(), 1);
    cluster.stop().await;
}
