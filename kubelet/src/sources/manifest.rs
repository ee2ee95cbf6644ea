//! A static pod, from the text of its file.

use api::{Tree, field, list, tree, yaml};
use client::Resource;

use crate::model::pod;
use crate::objects;

/// A manifest that is no static pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error("expected a v1 Pod, got {kind:?} of {version:?}")]
    Kind { kind: String, version: String },
    #[error("metadata.uid {0:?}: not a valid directory name")]
    Uid(String),
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
    /// The errors of all fields.
    #[error("{}", .0.join(", "))]
    Invalid(Vec<String>),
}

/// Reads, defaults and validates a pod. Its UID is derived from its source and content, so that a changed file is
/// another pod.
pub(crate) fn read(bytes: &[u8], node: &str, source: &str, origin: &str) -> Result<Tree, ManifestError> {
    let mut tree = yaml::decode(bytes)?;
    if (tree.str("apiVersion"), tree.str("kind")) != ("v1", "Pod") {
        return Err(ManifestError::Kind { kind: tree.str("kind").into(), version: tree.str("apiVersion").into() });
    }
    let uid = match tree.str("metadata.uid") {
        "" => hash(&[node.as_bytes(), origin.as_bytes(), bytes]),
        uid if pod::is_plain(uid) => uid.to_string(),
        uid => return Err(ManifestError::Uid(uid.to_string())),
    };
    let name = format!("{}-{}", tree.str("metadata.name"), node.to_lowercase());
    let meta = tree.child("metadata");
    meta.set("name", name);
    meta.set_default("namespace", "default");
    meta.set("uid", uid.as_str());
    let annotations = tree.child("metadata.annotations");
    annotations.set(pod::HASH, uid.as_str());
    annotations.set(pod::SOURCE, source);
    tree.child("spec").set("nodeName", node);
    // No taint of the node may evict a static pod.
    tree.child("spec").list_entry("tolerations").push(tree! { "operator" => "Exists", "effect" => "NoExecute" });
    check_references(&tree)?;
    let kind = &kinds::core::pod::KIND;
    (kind.set_defaults)(&mut tree);
    let mut errors = field::Errors::default();
    kinds::meta::validate_object_meta(kind, &tree, &mut errors);
    (kind.validate)(&tree, &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if texts.is_empty() { Ok(tree) } else { Err(ManifestError::Invalid(texts)) }
}

/// A static pod runs without the API server, and cannot depend on API objects.
fn check_references(pod: &Tree) -> Result<(), ManifestError> {
    match reference(pod) {
        Some(what) => Err(ManifestError::Reference(what)),
        None => Ok(()),
    }
}

/// The first reference of a pod, in upstream's words and order.
fn reference(pod: &Tree) -> Option<&'static str> {
    let (named, volumes) = (objects::references(pod), pod.list("spec.volumes"));
    let names = |resource: Resource| named.iter().any(|reference| reference.resource == resource);
    let has_secret = |volume: &Tree| WITH_SECRET.iter().any(|kind| volume.at(kind).has("secretRef"));
    if !pod.str("spec.serviceAccountName").is_empty() {
        Some("serviceaccounts")
    } else if names(objects::SECRETS) || volumes.iter().any(has_secret) {
        Some("secrets")
    } else if names(objects::CONFIG_MAPS) {
        Some("configmaps")
    } else if !pod.list("spec.resourceClaims").is_empty() {
        Some("resourceclaims")
    } else {
        volumes.iter().find_map(of_volume)
    }
}

/// Kinds of volumes that may name a secret, and otherwise refer to no API object.
const WITH_SECRET: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];
const VOLUMES: [(&str, &str); 5] = [
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTIONS: [(&str, &str); 3] = [
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

fn of_volume(volume: &Tree) -> Option<&'static str> {
    let find = |tree: &Tree, table: &[(&str, &'static str)]| {
        table.iter().find(|(field, _)| tree.has(field)).map(|(_, what)| *what)
    };
    let mut sources = volume.list("projected.sources").iter();
    find(volume, &VOLUMES).or_else(|| sources.find_map(|source| find(source, &PROJECTIONS)))
}

/// 32 hexadecimal digits that follow from all parts.
fn hash(parts: &[&[u8]]) -> String {
    let mut sums = [0xcbf2_9ce4_8422_2325_u64, 0x6c62_272e_07bb_0142];
    for byte in parts.iter().flat_map(|part| part.iter().copied().chain([0])) {
        for (index, sum) in sums.iter_mut().enumerate() {
            let mixed = *sum ^ u64::from(byte) ^ (index as u64) << 8;
            *sum = mixed.wrapping_mul(0x100_0000_01b3).rotate_left(u32::try_from(index).unwrap_or(0));
        }
    }
    format!("{:016x}{:016x}", sums[0], sums[1])
}

/// The mirror pod of a static pod.
pub(crate) fn mirror(pod: &Tree, node: &Tree) -> Tree {
    let mut mirror = pod.clone();
    let uid = pod::uid(pod).to_string();
    let owner = tree! {
        "apiVersion" => "v1", "kind" => "Node", "controller" => true,
        "name" => node.str("metadata.name"), "uid" => node.str("metadata.uid"),
    };
    let meta = mirror.child("metadata");
    meta.remove("uid");
    meta.set("ownerReferences", list![owner]);
    mirror.child("metadata.annotations").set(pod::MIRROR, uid);
    mirror.remove("status");
    mirror
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: i}]}}";

    #[test]
    fn sets_name_and_uid_of_static_pods() {
        let one = read(POD.as_bytes(), "node", "file", "/a").expect("a pod");
        assert_eq!((one.str("metadata.name"), one.str("metadata.namespace")), ("web-node", "default"));
        assert_eq!(one.str("spec.restartPolicy"), "Always");
        assert!(pod::is_static(&one));
        let again = read(POD.as_bytes(), "node", "file", "/a").expect("a pod");
        let moved = read(POD.as_bytes(), "node", "file", "/b").expect("a pod");
        assert_eq!(pod::uid(&one), pod::uid(&again));
        assert_ne!(pod::uid(&one), pod::uid(&moved));
        assert_eq!(pod::uid(&one).len(), 32);
    }

    #[test]
    fn rejects_invalid_static_pods() {
        let cases = [
            ("{apiVersion: v1, kind: Service}", "expected a v1 Pod"),
            ("{apiVersion: v1, kind: Pod, metadata: {name: w}, spec: {}}", "spec.containers"),
            (&POD.replace("name: web", "name: ../web"), "metadata.name"),
            (&POD.replace("name: web", "namespace: ../.., name: web"), "metadata.namespace"),
            (&POD.replace("name: web", "uid: ../../etc, name: web"), "metadata.uid"),
        ];
        for (text, expected) in cases {
            let error = read(text.as_bytes(), "n1", "file", "/a").expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn rejects_references_to_api_objects() {
        let of_pod = |field: &str| POD.replace("spec: {", &format!("spec: {{{field}, "));
        let of_container = |field: &str| POD.replace("image: i", &format!("image: i, {field}"));
        let of_volume = |kind: &str| of_pod(&format!("volumes: [{{name: v, {kind}}}]"));
        let projected = |source: &str| of_volume(&format!("projected: {{sources: [{{{source}}}]}}"));
        let cases = [
            (of_pod("serviceAccountName: a"), "serviceaccounts"),
            (of_pod("imagePullSecrets: [{name: a}]"), "secrets"),
            (of_pod("resourceClaims: [{name: a, resourceClaimName: b}]"), "resourceclaims"),
            (of_pod("initContainers: [{name: b, image: i, envFrom: [{secretRef: {name: s}}]}]"), "secrets"),
            (of_container("envFrom: [{configMapRef: {name: c}}]"), "configmaps"),
            (of_container("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "secrets"),
            (of_container("env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]"), "configmaps"),
            (of_volume("secret: {secretName: s}"), "secrets"),
            (of_volume("iscsi: {secretRef: {name: s}}"), "secrets"),
            (of_volume("configMap: {name: s}"), "configmaps"),
            (projected("configMap: {name: s}"), "configmaps"),
            (of_volume("persistentVolumeClaim: {claimName: s}"), "persistentvolumeclaims"),
            (of_volume("ephemeral: {}"), "persistentvolumeclaims (via ephemeral volumes)"),
            (of_volume("csi: {driver: d}"), "csidrivers (via CSI volumes)"),
            (projected("serviceAccountToken: {path: p}"), "serviceaccounts (via projected volumes)"),
            (projected("clusterTrustBundle: {name: n, path: p}"), "clustertrustbundles"),
        ];
        for (text, expected) in cases {
            let error = read(text.as_bytes(), "n1", "file", "/a").expect_err(&text);
            assert_eq!(error.to_string(), format!("static pods may not reference {expected}"));
        }
        let own = "downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}";
        let fine = [of_volume("hostPath: {path: /}"), projected(own), of_container("env: [{name: A, value: b}]")];
        for text in fine {
            assert_eq!(read(text.as_bytes(), "n1", "file", "/a").err().map(|error| error.to_string()), None, "{text}");
        }
    }

    #[test]
    fn mirror_names_its_static_pod() {
        let pod = read(POD.as_bytes(), "n1", "file", "/a").expect("a pod");
        let node = tree! { "metadata" => tree! { "name" => "n1", "uid" => "x" } };
        let mirror = mirror(&pod, &node);
        assert_eq!(pod::annotation(&mirror, pod::MIRROR), pod::uid(&pod));
        assert_eq!(mirror.list("metadata.ownerReferences")[0].str("uid"), "x");
        assert!(!mirror.at("metadata").has("uid"));
    }
}
