//! Which objects are related to which node: through the pods that are bound to it, or because they name it. Pure: it is
//! fed with changes and queried for paths.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Tree, json};

use crate::storage::cache::{DerivedState, Item};

/// Storage paths, in the order in which the graph numbers them.
pub(crate) const SOURCES: [&str; 5] =
    ["pods", "persistentvolumes", "volumeattachments", "resourceslices", "podcertificaterequests"];

/// Objects that a node may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ResourceClaim,
    Account,
    Attachment,
    Slice,
    CertificateRequest,
}

#[derive(Default)]
pub(crate) struct Graph {
    /// Objects that lead to nodes, by kind and key, with the number of ways.
    nodes: HashMap<Kind, HashMap<Box<str>, Vec<Paths>>>,
    /// The claim of each bound volume.
    claims: HashMap<Arc<str>, Box<str>>,
    /// The node of each local volume.
    local: HashMap<Arc<str>, Box<str>>,
    /// The volumes that need a secret, by the secret's key.
    volumes: HashMap<Box<str>, Vec<Arc<str>>>,
}

struct Paths {
    node: Box<str>,
    count: usize,
}

impl DerivedState for Graph {
    fn apply(&mut self, source: usize, old: Option<&Item>, new: Option<&Item>) {
        if source == 1 {
            old.into_iter().for_each(|item| self.forget_volume(item));
            new.into_iter().for_each(|item| self.add_volume(item));
            return;
        }
        let read = |item: Option<&Item>| item.and_then(|item| edges(source, item));
        let (old, new) = (read(old), read(new));
        // A kubelet writes a pod's status often; what the pod refers to stays.
        if old == new {
            return;
        }
        old.into_iter().for_each(|edges| self.remove_edges(&edges));
        new.into_iter().for_each(|edges| self.add(edges));
    }
}

impl Graph {
    pub(super) fn is_related(&self, kind: Kind, key: &str, node: &str) -> bool {
        self.is_directly_related(kind, key, node)
            || match kind {
                // A local volume is on the node's own disk, which the node can read and erase anyway. The node has to
                // read the volume to find out whether it may erase it.
                Kind::Volume => {
                    self.volume_leads(key, node) || self.local.get(key).is_some_and(|local| **local == *node)
                }
                Kind::Secret => {
                    self.volumes.get(key).into_iter().flatten().any(|volume| self.volume_leads(volume, node))
                }
                _ => false,
            }
    }

    fn is_directly_related(&self, kind: Kind, key: &str, node: &str) -> bool {
        let ways = self.nodes.get(&kind).and_then(|objects| objects.get(key));
        ways.is_some_and(|ways| ways.iter().any(|way| *way.node == *node))
    }

    fn volume_leads(&self, volume: &str, node: &str) -> bool {
        self.claims.get(volume).is_some_and(|claim| self.is_directly_related(Kind::Claim, claim, node))
    }

    fn add(&mut self, edges: Edges) {
        for (kind, key) in edges.objects {
            let ways = self.nodes.entry(kind).or_default().entry(key.into()).or_default();
            match ways.iter_mut().find(|way| *way.node == *edges.node) {
                Some(way) => way.count += 1,
                None => ways.push(Paths { node: edges.node.as_str().into(), count: 1 }),
            }
        }
    }

    fn remove_edges(&mut self, edges: &Edges) {
        for (kind, key) in &edges.objects {
            let Some(objects) = self.nodes.get_mut(kind) else { continue };
            let Some(ways) = objects.get_mut(key.as_str()) else { continue };
            ways.iter_mut().filter(|way| *way.node == *edges.node).for_each(|way| way.count -= 1);
            ways.retain(|way| way.count > 0);
            if ways.is_empty() {
                objects.remove(key.as_str());
            }
        }
    }

    fn add_volume(&mut self, item: &Item) {
        let volume = read_volume(item);
        if let Some(node) = node_of(&volume) {
            self.local.insert(item.key.clone(), node.into());
        }
        let Some(claim) = claim_of(&volume) else { return };
        self.claims.insert(item.key.clone(), claim.into());
        for secret in volume_secrets(&volume) {
            self.volumes.entry(secret.into()).or_default().push(item.key.clone());
        }
    }

    fn forget_volume(&mut self, item: &Item) {
        self.claims.remove(&*item.key);
        self.local.remove(&*item.key);
        for secret in volume_secrets(&read_volume(item)) {
            let Some(volumes) = self.volumes.get_mut(secret.as_str()) else { continue };
            volumes.retain(|volume| *volume != item.key);
            if volumes.is_empty() {
                self.volumes.remove(secret.as_str());
            }
        }
    }
}

/// The edges to one node that come from one object.
#[derive(Debug, PartialEq, Eq)]
struct Edges {
    node: String,
    objects: Vec<(Kind, String)>,
}

fn edges(source: usize, item: &Item) -> Option<Edges> {
    if source == 0 {
        return pod_edges(item);
    }
    let tree = json::decode_only(&item.bytes, &["spec.nodeName"]).ok()?;
    let node = tree.str("spec.nodeName");
    let kind = match source {
        2 => Kind::Attachment,
        3 => Kind::Slice,
        _ => Kind::CertificateRequest,
    };
    (!node.is_empty()).then(|| Edges { node: node.to_string(), objects: vec![(kind, item.key.to_string())] })
}

fn pod_edges(item: &Item) -> Option<Edges> {
    let pod = json::decode_only(&item.bytes, &["metadata", "spec", "status.resourceClaimStatuses", EXTENDED]).ok()?;
    let node = pod.str("spec.nodeName");
    if node.is_empty() {
        return None;
    }
    let mut objects = vec![(Kind::Pod, item.key.to_string())];
    // A node creates mirror pods itself: they must not grant it anything.
    if !pod.map("metadata.annotations").contains("kubernetes.io/config.mirror") {
        let named = references(&pod).into_iter().filter(|(_, name)| !name.is_empty());
        objects.extend(named.map(|(kind, name)| (kind, format!("{}/{name}", item.namespace()))));
        objects.sort_by(|(a, x), (b, y)| (*a as u8, x).cmp(&(*b as u8, y)));
        objects.dedup();
    }
    Some(Edges { node: node.to_string(), objects })
}

const EXTENDED: &str = "status.extendedResourceClaimStatus";

/// Everything in its namespace that a pod refers to.
pub(crate) fn references(pod: &Tree) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let spec = pod.at("spec");
    found.push((Kind::Account, spec.str("serviceAccountName").to_string()));
    for secret in spec.list("imagePullSecrets") {
        found.push((Kind::Secret, secret.str("name").to_string()));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.list(list).iter().for_each(|container| container_references(container, &mut found));
    }
    for volume in spec.list("volumes") {
        volume_references(volume, pod.str("metadata.name"), &mut found);
    }
    claim_references(pod, &mut found);
    found
}

fn container_references(container: &Tree, found: &mut Vec<(Kind, String)>) {
    let mut add = |kind, tree: &Tree| found.push((kind, tree.str("name").to_string()));
    for source in container.list("envFrom") {
        add(Kind::Secret, source.at("secretRef"));
        add(Kind::ConfigMap, source.at("configMapRef"));
    }
    for variable in container.list("env") {
        add(Kind::Secret, variable.at("valueFrom.secretKeyRef"));
        add(Kind::ConfigMap, variable.at("valueFrom.configMapKeyRef"));
    }
}

/// Volume types that name a secret, and the path of the name.
const VOLUME_SECRETS: &[&str] = &[
    "secret.secretName",
    "azureFile.secretName",
    "cephfs.secretRef.name",
    "cinder.secretRef.name",
    "flexVolume.secretRef.name",
    "rbd.secretRef.name",
    "scaleIO.secretRef.name",
    "iscsi.secretRef.name",
    "storageos.secretRef.name",
    "csi.nodePublishSecretRef.name",
];

fn volume_references(volume: &Tree, pod: &str, found: &mut Vec<(Kind, String)>) {
    found.extend(VOLUME_SECRETS.iter().map(|path| (Kind::Secret, volume.str(path).to_string())));
    found.push((Kind::ConfigMap, volume.str("configMap.name").to_string()));
    found.push((Kind::Claim, volume.str("persistentVolumeClaim.claimName").to_string()));
    if volume.has("ephemeral") {
        found.push((Kind::Claim, format!("{pod}-{}", volume.str("name"))));
    }
    for source in volume.list("projected.sources") {
        found.push((Kind::Secret, source.str("secret.name").to_string()));
        found.push((Kind::ConfigMap, source.str("configMap.name").to_string()));
    }
}

/// Claims by name, and those created from a template: the status has their names.
fn claim_references(pod: &Tree, found: &mut Vec<(Kind, String)>) {
    for claim in pod.list("spec.resourceClaims") {
        found.push((Kind::ResourceClaim, claim.str("resourceClaimName").to_string()));
    }
    for status in pod.list("status.resourceClaimStatuses") {
        found.push((Kind::ResourceClaim, status.str("resourceClaimName").to_string()));
    }
    found.push((Kind::ResourceClaim, pod.at(EXTENDED).str("resourceClaimName").to_string()));
}

fn read_volume(item: &Item) -> Tree {
    json::decode_only(&item.bytes, &["spec"]).unwrap_or_default()
}

/// The node on whose disk a local volume is.
fn node_of(volume: &Tree) -> Option<String> {
    let spec = volume.at("spec");
    let [term] = spec.list("nodeAffinity.required.nodeSelectorTerms") else { return None };
    let [expression] = term.list("matchExpressions") else { return None };
    let [host] = expression.list("values") else { return None };
    let names_it = expression.str("key") == "kubernetes.io/hostname" && expression.str("operator") == "In";
    let is_local = spec.has("hostPath") || spec.has("local");
    host.as_str().filter(|_| is_local && names_it).map(str::to_string)
}

fn claim_of(volume: &Tree) -> Option<String> {
    let claim = volume.at("spec.claimRef");
    (!claim.is_null()).then(|| format!("{}/{}", claim.str("namespace"), claim.str("name")))
}

/// The secrets that a kubelet needs for a volume; a secret without a namespace is in the namespace of the claim.
fn volume_secrets(volume: &Tree) -> Vec<String> {
    let spec = volume.at("spec");
    let own = spec.str("claimRef.namespace");
    let in_ref = [
        "azureFile:secretName:secretNamespace",
        "cephfs.secretRef:name:namespace",
        "cinder.secretRef:name:namespace",
        "flexVolume.secretRef:name:namespace",
        "rbd.secretRef:name:namespace",
        "scaleIO.secretRef:name:namespace",
        "iscsi.secretRef:name:namespace",
        "storageos.secretRef:name:namespace",
        "csi.nodePublishSecretRef:name:namespace",
        "csi.nodeStageSecretRef:name:namespace",
        "csi.nodeExpandSecretRef:name:namespace",
    ];
    let secret = |place: &&str| {
        let mut parts = place.split(':');
        let (path, name, namespace) = (parts.next()?, parts.next()?, parts.next()?);
        let reference = spec.at(path);
        let namespace = Some(reference.str(namespace)).filter(|namespace| !namespace.is_empty()).unwrap_or(own);
        let name = reference.str(name);
        (!name.is_empty()).then(|| format!("{namespace}/{name}"))
    };
    in_ref.iter().filter_map(secret).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn item(key: &str, json: &str) -> Item {
        Item::new(key, 1, Bytes::from(json.to_string()))
    }

    fn pod(node: &str, annotation: &str) -> Item {
        let json = r#"{"metadata":{"name":"p","annotations":{"ANNOTATION":""}},"spec":{"nodeName":"NODE",
            "serviceAccountName":"sa","imagePullSecrets":[{"name":"pull"}],
            "containers":[{"envFrom":[{"configMapRef":{"name":"env"}}],
                           "env":[{"valueFrom":{"secretKeyRef":{"name":"key"}}}]}],
            "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"pvc"}},{"name":"e","ephemeral":{}},
                       {"projected":{"sources":[{"configMap":{"name":"root"}},{"secret":{"name":"proj"}}]}}],
            "resourceClaims":[{"name":"c","resourceClaimName":"rc"}]},
            "status":{"resourceClaimStatuses":[{"name":"t","resourceClaimName":"made"}]}}"#;
        item("a/p", &json.replace("NODE", node).replace("ANNOTATION", annotation))
    }

    #[test]
    fn a_bound_pod_leads_to_its_node() {
        let mut graph = Graph::default();
        let of = |graph: &Graph, node: &str| {
            let all = [
                (Kind::Pod, "a/p"),
                (Kind::Account, "a/sa"),
                (Kind::Secret, "a/pull"),
                (Kind::Secret, "a/key"),
                (Kind::Secret, "a/proj"),
                (Kind::ConfigMap, "a/env"),
                (Kind::ConfigMap, "a/root"),
                (Kind::Claim, "a/pvc"),
                (Kind::Claim, "a/p-e"),
                (Kind::ResourceClaim, "a/rc"),
                (Kind::ResourceClaim, "a/made"),
            ];
            all.iter().filter(|(kind, key)| graph.is_related(*kind, key, node)).count()
        };
        graph.apply(0, None, Some(&pod("", "x")));
        assert_eq!(of(&graph, ""), 0, "a pod without a node leads nowhere");
        graph.apply(0, Some(&pod("", "x")), Some(&pod("n", "x")));
        assert_eq!((of(&graph, "n"), of(&graph, "m")), (11, 0));
        assert!(!graph.is_related(Kind::Secret, "b/key", "n"), "another namespace");
        assert!(!graph.is_related(Kind::ConfigMap, "a/key", "n"), "another kind");
        graph.apply(0, Some(&pod("n", "x")), None);
        assert_eq!(of(&graph, "n"), 0);
        graph.apply(0, None, Some(&pod("n", "kubernetes.io/config.mirror")));
        assert_eq!(of(&graph, "n"), 1, "a mirror pod opens nothing but itself");
    }

    #[test]
    fn two_pods_are_two_ways() {
        let mut graph = Graph::default();
        let named = |name: &str| item(&format!("a/{name}"), r#"{"spec":{"nodeName":"n","serviceAccountName":"sa"}}"#);
        graph.apply(0, None, Some(&named("p")));
        graph.apply(0, None, Some(&named("q")));
        graph.apply(0, Some(&named("p")), None);
        assert!(graph.is_related(Kind::Account, "a/sa", "n"));
        graph.apply(0, Some(&named("q")), None);
        assert!(!graph.is_related(Kind::Account, "a/sa", "n"));
    }

    #[test]
    fn volumes_lead_through_their_claims() {
        let mut graph = Graph::default();
        let volume = item(
            "pv",
            r#"{"spec":{"claimRef":{"namespace":"a","name":"pvc"},"csi":{"nodeStageSecretRef":{"name":"s","namespace":"x"}}}}"#,
        );
        graph.apply(1, None, Some(&volume));
        assert!(!graph.is_related(Kind::Volume, "pv", "n"));
        graph.apply(0, None, Some(&pod("n", "x")));
        assert!(graph.is_related(Kind::Volume, "pv", "n") && graph.is_related(Kind::Secret, "x/s", "n"));
        assert!(!graph.is_related(Kind::Volume, "pv", "m"));
        graph.apply(1, Some(&volume), None);
        assert!(!graph.is_related(Kind::Volume, "pv", "n") && !graph.is_related(Kind::Secret, "x/s", "n"));
    }

    #[test]
    fn some_objects_name_their_node() {
        let mut graph = Graph::default();
        for (source, kind) in [(2, Kind::Attachment), (3, Kind::Slice), (4, Kind::CertificateRequest)] {
            let named = item("o", r#"{"spec":{"nodeName":"n"}}"#);
            graph.apply(source, None, Some(&named));
            assert!(graph.is_related(kind, "o", "n") && !graph.is_related(kind, "o", "m"));
            graph.apply(source, Some(&named), Some(&item("o", r#"{"spec":{}}"#)));
            assert!(!graph.is_related(kind, "o", "n"));
        }
    }

    #[test]
    fn local_volume_leads_to_its_node() {
        let volume = |source: &str, hosts: &str| {
            let json = r#"{"spec":{SOURCE,"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[
                {"key":"kubernetes.io/hostname","operator":"In","values":HOSTS}]}]}}}}"#;
            item("pv", &json.replace("SOURCE", source).replace("HOSTS", hosts))
        };
        let path = r#""hostPath":{"path":"/d"}"#;
        for (source, hosts, leads) in [
            (path, r#"["n"]"#, true),
            (r#""local":{"path":"/d"}"#, r#"["n"]"#, true),
            (path, r#"["m"]"#, false),
            (path, r#"["n","m"]"#, false),
            (r#""csi":{"driver":"d"}"#, r#"["n"]"#, false),
        ] {
            let mut graph = Graph::default();
            let volume = volume(source, hosts);
            graph.apply(1, None, Some(&volume));
            assert_eq!(graph.is_related(Kind::Volume, "pv", "n"), leads, "{source} {hosts}");
            graph.apply(1, Some(&volume), None);
            assert!(!graph.is_related(Kind::Volume, "pv", "n"), "{source} {hosts}");
        }
    }
}
