//! Claims and volumes.

use api::{Tree, list, tree};
use testkit::{Client, Cluster};

use super::{CORE, assert_like, gone, make, make_node, merge, see, start};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

async fn claim(client: &Client, name: &str, class: Option<&str>) {
    make(client, &format!("{CORE}/persistentvolumeclaims"), &claim_of(name, class)).await;
}

fn claim_of(name: &str, class: Option<&str>) -> Tree {
    let mut spec = tree! {
        "accessModes" => list!["ReadWriteOnce"],
        "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
    };
    if let Some(class) = class {
        spec.set("storageClassName", class);
    }
    let metadata = tree! { "name" => name };
    tree! { "apiVersion" => "v1", "kind" => "PersistentVolumeClaim", "metadata" => metadata, "spec" => spec }
}

async fn volume(client: &Client, name: &str, class: &str, source: (&str, Tree)) {
    let mut spec = tree! {
        "storageClassName" => class,
        "capacity" => tree! { "storage" => "2Gi" },
        "accessModes" => list!["ReadWriteOnce"],
    };
    spec.set(source.0, source.1);
    let metadata = tree! { "name" => name };
    let volume = tree! { "apiVersion" => "v1", "kind" => "PersistentVolume", "metadata" => metadata, "spec" => spec };
    make(client, VOLUMES, &volume).await;
}

async fn pod(client: &Client, name: &str, node: &str, volume: Tree) {
    let mut volume = volume;
    volume.set("name", "data");
    let mut spec = tree! {
        "containers" => list![tree! { "name" => "c", "image" => "app:1" }],
        "volumes" => list![volume],
    };
    if !node.is_empty() {
        spec.set("nodeName", node);
    }
    let metadata = tree! { "name" => name };
    let pod = tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => metadata, "spec" => spec };
    make(client, &format!("{CORE}/pods"), &pod).await;
}

fn of_claim(name: &str) -> Tree {
    tree! { "persistentVolumeClaim" => tree! { "claimName" => name } }
}

fn phase(object: &Tree) -> &str {
    object.str("status.phase")
}

fn condition(object: &Tree) -> String {
    object.list("status.conditions").first().map_or("", |condition| condition.str("status")).to_string()
}

async fn event(client: &Client, name: &str, reason: &str) -> String {
    let path = format!("{CORE}/events?fieldSelector=involvedObject.name%3D{name},reason%3D{reason}");
    let seen = see(client, &path, reason, |events| !events.list("items").is_empty()).await;
    seen.list("items")[0].str("message").to_string()
}

const CLAIM: &str = "\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  annotations:
    pv.kubernetes.io/bind-completed: \"yes\"
    pv.kubernetes.io/bound-by-controller: \"yes\"
  finalizers:
  - kubernetes.io/pvc-protection
  name: c
  namespace: default
spec:
  accessModes:
  - ReadWriteOnce
  resources:
    requests:
      storage: 1Gi
  storageClassName: manual
  volumeMode: Filesystem
  volumeName: v
status:
  accessModes:
  - ReadWriteOnce
  capacity:
    storage: 2Gi
  conditions:
  - message: No pods are currently referencing this PVC
    reason: NoPodsUsingPVC
    status: \"True\"
    type: Unused
  phase: Bound
";

const VOLUME: &str = "\
apiVersion: v1
kind: PersistentVolume
metadata:
  annotations:
    pv.kubernetes.io/bound-by-controller: \"yes\"
  finalizers:
  - kubernetes.io/pv-protection
  name: v
spec:
  accessModes:
  - ReadWriteOnce
  capacity:
    storage: 2Gi
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    name: c
    namespace: default
  hostPath:
    path: /x
    type: \"\"
  persistentVolumeReclaimPolicy: Retain
  storageClassName: manual
  volumeMode: Filesystem
status:
  phase: Bound
";

#[tokio::test(flavor = "multi_thread")]
async fn claims_bind_and_release_volumes() {
    let mut cluster = start().await;
    let client = &cluster.client;
    let path = format!("{CORE}/persistentvolumeclaims/c");
    claim(client, "c", Some("manual")).await;
    let missing = event(client, "c", "ProvisioningFailed").await;
    assert_eq!(missing, "storageclass.storage.k8s.io \"manual\" not found");
    volume(client, "v", "manual", ("hostPath", tree! { "path" => "/x" })).await;
    let bound = see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound.str("spec.volumeName"), "v");
    assert_eq!(bound.str("status.capacity.storage"), "2Gi");
    let bound = see(client, &format!("{VOLUMES}/v"), "a bound volume", |volume| phase(volume) == "Bound").await;
    assert_eq!(bound.str("spec.claimRef.name"), "c");
    assert_like(&bound, VOLUME);
    let unused = see(client, &path, "unused", |claim| condition(claim) == "True").await;
    assert_like(&unused, CLAIM);

    make_node(client, "node-a", "192.0.2.1").await;
    pod(client, "p", "node-a", of_claim("c")).await;
    see(client, &path, "used", |claim| condition(claim) == "False").await;
    client.delete(&path).await;
    client.delete(&format!("{VOLUMES}/v")).await;
    claim(client, "other", Some("manual")).await;
    // Other keys have passed the same queues by then.
    event(client, "other", "ProvisioningFailed").await;
    assert_eq!(client.get(&path).await.code, 200, "a pod uses it");
    client.delete(&format!("{CORE}/pods/p?gracePeriodSeconds=0")).await;
    gone(client, &path).await;
    gone(client, &format!("{VOLUMES}/v")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expanded_claims_wait_for_their_driver() {
    let mut cluster = start().await;
    let client = &cluster.client;
    let class = tree! {
        "apiVersion" => "storage.k8s.io/v1",
        "kind" => "StorageClass",
        "metadata" => tree! { "name" => "wide" },
        "provisioner" => "driver.example.com",
        "allowVolumeExpansion" => true,
    };
    make(client, "/apis/storage.k8s.io/v1/storageclasses", &class).await;
    volume(client, "v", "wide", ("hostPath", tree! { "path" => "/x" })).await;
    claim(client, "c", Some("wide")).await;
    let path = format!("{CORE}/persistentvolumeclaims/c");
    see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
    let requests = tree! { "requests" => tree! { "storage" => "3Gi" } };
    merge(client, &path, &tree! { "spec" => tree! { "resources" => requests } }).await;
    let told = event(client, "c", "ExternalExpanding").await;
    assert_eq!(told, "waiting for an external controller to expand this PVC");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_volume_is_released_and_another_is_not_recycled() {
    let mut cluster = start().await;
    let client = &cluster.client;
    for (name, policy, want) in [("keep", "Retain", "Released"), ("again", "Recycle", "Failed")] {
        volume(client, name, name, ("hostPath", tree! { "path" => "/x" })).await;
        let policy = tree! { "spec" => tree! { "persistentVolumeReclaimPolicy" => policy } };
        merge(client, &format!("{VOLUMES}/{name}"), &policy).await;
        claim(client, name, Some(name)).await;
        let path = format!("{CORE}/persistentvolumeclaims/{name}");
        see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
        client.delete(&path).await;
        see(client, &format!("{VOLUMES}/{name}"), want, |volume| phase(volume) == want).await;
    }
    cluster.stop().await;
}

/// A cluster whose nodes have a directory for volumes, and a class that is not the default yet.
async fn start_with_directories() -> Cluster {
    let cluster = Cluster::start_changed(|plan, pki| {
        let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
        let own = cluster::pki::cluster::ClusterPki::new(pki.clone(), loopback, &plan.config, &[]).expect("names");
        let mut options = own.controller_options(&plan.config).expect("options");
        std::sync::Arc::make_mut(&mut options).local_path_directory = "/var/volumes".to_string();
        plan.controllers = Some(cluster::control_plane::Controllers { chosen: vec!["*".to_string()], options });
    })
    .await;
    let account = format!("{CORE}/serviceaccounts/default");
    see(&cluster.client, &account, "an account", |account| account.has("metadata")).await;
    make_node(&cluster.client, "node-a", "192.0.2.1").await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_get_directories_on_the_node_of_their_pod() {
    let mut cluster = start_with_directories().await;
    let client = &cluster.client;
    let path = format!("{CORE}/persistentvolumeclaims/c");
    claim(client, "c", None).await;
    let none = event(client, "c", "FailedBinding").await;
    assert_eq!(none, "no persistent volumes available for this claim and no storage class is set");
    // The class is created later, and the claim gets it.
    make(client, "/apis/storage.k8s.io/v1/storageclasses", &controllers::default_class()).await;
    let waiting = event(client, "c", "WaitForFirstConsumer").await;
    assert_eq!(waiting, "waiting for first consumer to be created before binding");
    pod(client, "p", "node-a", of_claim("c")).await;
    let bound = see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound.str("spec.storageClassName"), "local-path");
    let name = bound.str("spec.volumeName").to_string();
    assert_eq!(name, format!("pvc-{}", bound.str("metadata.uid")));
    let volume = client.get(&format!("{VOLUMES}/{name}")).await.tree();
    assert_eq!(volume.str("spec.hostPath.path"), format!("/var/volumes/{name}_default_c"));
    let term = &volume.list("spec.nodeAffinity.required.nodeSelectorTerms")[0].list("matchExpressions")[0];
    assert_eq!(term.list("values"), ["node-a".into()]);
    assert_eq!(event(client, "c", "ProvisioningSucceeded").await, format!("Successfully provisioned volume {name}"));
    client.delete(&format!("{CORE}/pods/p?gracePeriodSeconds=0")).await;
    client.delete(&path).await;
    gone(client, &path).await;
    gone(client, &format!("{VOLUMES}/{name}")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_removed_after_erasure() {
    let mut cluster = start_with_directories().await;
    let client = &cluster.client;
    make(client, "/apis/storage.k8s.io/v1/storageclasses", &controllers::default_class()).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    make(client, &format!("{rbac}/clusterroles"), &cluster::control_plane::addons::provisioner_role()).await;
    make(client, &format!("{rbac}/clusterrolebindings"), &cluster::control_plane::addons::provisioner_binding()).await;
    let node = "/api/v1/nodes/node-a";
    let annotate = |key: &str, value: String| {
        tree! { "metadata" => tree! { "annotations" => tree! { format!("tiphys.io/{key}") => value } } }
    };
    merge(client, node, &annotate("volumes-erased", "[]".to_string())).await;
    let path = format!("{CORE}/persistentvolumeclaims/c");
    claim(client, "c", None).await;
    pod(client, "p", "node-a", of_claim("c")).await;
    let bound = see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
    let volume = format!("{VOLUMES}/{}", bound.str("spec.volumeName"));
    let directory = client.get(&volume).await.tree().str("spec.hostPath.path").to_string();
    client.delete(&format!("{CORE}/pods/p?gracePeriodSeconds=0")).await;
    client.delete(&path).await;
    let asked = |node: &Tree| node.map("metadata.annotations").str("tiphys.io/volumes-to-erase").to_string();
    let wanted = format!("[{directory:?}]");
    see(client, node, "a request to erase it", |node| asked(node) == wanted).await;
    assert_eq!(client.get(&volume).await.code, 200, "it is there until nothing of it is left");
    merge(client, node, &annotate("volumes-erased", wanted.clone())).await;
    gone(client, &volume).await;
    see(client, node, "nothing more to erase", |node| asked(node).is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_volumes_have_a_claim() {
    let mut cluster = start_with_directories().await;
    let client = &cluster.client;
    make(client, "/apis/storage.k8s.io/v1/storageclasses", &controllers::default_class()).await;
    let spec = tree! {
        "accessModes" => list!["ReadWriteOnce"],
        "storageClassName" => "local-path",
        "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
    };
    let template = tree! { "volumeClaimTemplate" => tree! { "spec" => spec } };
    pod(client, "p", "node-a", tree! { "ephemeral" => template }).await;
    let path = format!("{CORE}/persistentvolumeclaims/p-data");
    let bound = see(client, &path, "a bound claim", |claim| phase(claim) == "Bound").await;
    assert_eq!(bound.list("metadata.ownerReferences")[0].str("name"), "p");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_drivers_are_attached_and_detached() {
    let mut cluster = start().await;
    let client = &cluster.client;
    make_node(client, "node-a", "192.0.2.1").await;
    let csi = tree! { "driver" => "d.example.com", "volumeHandle" => "h" };
    volume(client, "v", "manual", ("csi", csi)).await;
    claim(client, "c", Some("manual")).await;
    pod(client, "p", "node-a", of_claim("c")).await;
    let seen = see(client, ATTACHMENTS, "an attachment", |list| list.list("items").len() == 1).await;
    let attachment = &seen.list("items")[0];
    assert_eq!(attachment.str("spec.source.persistentVolumeName"), "v");
    let path = format!("{ATTACHMENTS}/{}", attachment.str("metadata.name"));
    merge(client, &format!("{path}/status"), &tree! { "status" => tree! { "attached" => true } }).await;
    let node = "/api/v1/nodes/node-a";
    let attached = |node: &Tree| node.list("status.volumesAttached").len();
    let seen = see(client, node, "an attached volume", |node| attached(node) == 1).await;
    let name = seen.list("status.volumesAttached")[0].str("name").to_string();
    assert_eq!(name, "kubernetes.io/csi/d.example.com^h");
    event(client, "p", "SuccessfulAttachVolume").await;
    let in_use = tree! { "status" => tree! { "volumesInUse" => list![name.as_str()] } };
    merge(client, &format!("{node}/status"), &in_use).await;
    client.delete(&format!("{CORE}/pods/p?gracePeriodSeconds=0")).await;
    see(client, &format!("{CORE}/persistentvolumeclaims/c"), "unused", |claim| condition(claim) == "True").await;
    assert_eq!(client.get(&path).await.code, 200, "the node has not let go");
    merge(client, &format!("{node}/status"), &tree! { "status" => tree! { "volumesInUse" => Tree::Null } }).await;
    gone(client, &path).await;
    see(client, node, "nothing attached", |node| attached(node) == 0).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attributes_class_stays_while_a_claim_names_it() {
    let mut cluster = start().await;
    let client = &cluster.client;
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class = tree! {
        "apiVersion" => "storage.k8s.io/v1", "kind" => "VolumeAttributesClass",
        "metadata" => tree! { "name" => "gold" }, "driverName" => "d.example.com",
        "parameters" => tree! { "iops" => "1" },
    };
    make(client, classes, &class).await;
    let path = format!("{classes}/gold");
    see(client, &path, "a finalizer", |class| !class.list("metadata.finalizers").is_empty()).await;
    let mut named = claim_of("c", Some("manual"));
    named.child("spec").set("volumeAttributesClassName", "gold");
    make(client, &format!("{CORE}/persistentvolumeclaims"), &named).await;
    let claim = format!("{CORE}/persistentvolumeclaims/c");
    client.delete(&path).await;
    assert!(client.get(&path).await.tree().at("metadata").has("deletionTimestamp"), "a claim names it");
    client.delete(&claim).await;
    gone(client, &path).await;
    cluster.stop().await;
}
