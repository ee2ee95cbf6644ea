//! Volumes that are directories of a node: provisioned for a claim once its node is selected, deleted after the claim
//! is deleted. The kubelet erases the directories; an annotation of its Node requests it, another one confirms it. The
//! kubelet does not trust the annotation alone: the volume itself must be released and belong to this provisioner.

use std::sync::Arc;

use api::{Tree, list, tree};

use crate::support::event_message::EventMessage;
use crate::support::volumes::{PROVISIONED_BY, PROVISIONER, SELECTED_NODE, annotation, is_deleting};

pub(super) const NAME: &str = "tiphys.io/local-path";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotations of a node: the directories to erase and the erased directories, as JSON lists. A node without the second
/// annotation does not erase anything.
const TO_ERASE: &str = "tiphys.io/volumes-to-erase";
const ERASED: &str = "tiphys.io/volumes-erased";

/// The default storage class of the provisioner.
pub fn default_class() -> Tree {
    let annotations = tree! { "storageclass.kubernetes.io/is-default-class" => "true" };
    tree! {
        "apiVersion" => "storage.k8s.io/v1",
        "kind" => "StorageClass",
        "metadata" => tree! { "name" => "local-path", "annotations" => annotations },
        "provisioner" => NAME,
        "reclaimPolicy" => "Delete",
        "volumeBindingMode" => "WaitForFirstConsumer",
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Create(Tree),
    Refuse(EventMessage),
}

/// Whether this provisioner must provision a volume for the claim.
pub(crate) fn needs_volume(claim: &Tree) -> bool {
    annotation(claim, PROVISIONER) == NAME && claim.str("spec.volumeName").is_empty() && !is_deleting(claim)
}

pub(super) fn volume_name(claim: &Tree) -> String {
    format!("pvc-{}", claim.str("metadata.uid"))
}

/// `node` is the selected node.
pub(super) fn plan(claim: &Tree, class: Option<&Tree>, node: Option<&Tree>, is_made: bool, directory: &str) -> Plan {
    let selected = annotation(claim, SELECTED_NODE);
    let Some(class) = class.filter(|class| needs_volume(claim) && class.str("provisioner") == NAME) else {
        return Plan::Keep;
    };
    let waits = class.str("volumeBindingMode") == "WaitForFirstConsumer";
    if is_made || (waits && selected.is_empty()) {
        return Plan::Keep;
    }
    let failure = unsupported(claim, class).or_else(|| match (selected, node) {
        ("", _) => {
            Some("a directory needs a node: the class has to have volumeBindingMode WaitForFirstConsumer".into())
        }
        (name, None) => Some(format!("nodes {name:?} not found")),
        _ => None,
    });
    match (failure, node) {
        (None, Some(node)) => Plan::Create(volume(claim, class, node, directory)),
        (why, _) => {
            let name = class.str("metadata.name");
            let message = format!("failed to provision volume with StorageClass {name:?}: {}", why.unwrap_or_default());
            Plan::Refuse(EventMessage::warning("ProvisioningFailed", message))
        }
    }
}

/// Unsupported features are rejected rather than ignored.
fn unsupported(claim: &Tree, class: &Tree) -> Option<String> {
    let is_shared = |mode: &&Tree| !matches!(mode.as_str(), Some("ReadWriteOnce" | "ReadWriteOncePod"));
    let parameter = class.map("parameters").keys().next();
    if let Some(mode) = claim.list("spec.accessModes").iter().find(is_shared) {
        return Some(format!("access mode {} is not supported", mode.as_str().unwrap_or("")));
    }
    if let Some(parameter) = parameter {
        return Some(format!("unknown parameter {parameter:?} of the storage class"));
    }
    let checks = [
        (claim.str("spec.volumeMode") == "Block", "volumeMode Block is not supported"),
        (claim.at("spec").has("selector"), "claim Selector is not supported"),
        (claim.at("spec").has("dataSource") || claim.at("spec").has("dataSourceRef"), "data sources are not supported"),
        (!claim.str("spec.volumeAttributesClassName").is_empty(), "volume attributes classes are not supported"),
        (!class.list("mountOptions").is_empty(), "mount options are not supported"),
    ];
    checks.into_iter().find(|(fails, _)| *fails).map(|(_, why)| why.to_string())
}

fn volume(claim: &Tree, class: &Tree, node: &Tree, directory: &str) -> Tree {
    let meta = claim.at("metadata");
    let name = volume_name(claim);
    let path = format!("{}/{name}_{}_{}", directory.trim_end_matches('/'), meta.str("namespace"), meta.str("name"));
    let on_node = tree! { "key" => HOSTNAME, "operator" => "In", "values" => list![host(node)] };
    let terms = list![tree! { "matchExpressions" => list![on_node] }];
    let reference = tree! {
        "kind" => "PersistentVolumeClaim",
        "apiVersion" => "v1",
        "namespace" => meta.str("namespace"),
        "name" => meta.str("name"),
        "uid" => meta.str("uid"),
        "resourceVersion" => meta.str("resourceVersion"),
    };
    let spec = tree! {
        "capacity" => tree! { "storage" => claim.at("spec.resources.requests.storage").clone() },
        "accessModes" => claim.at("spec.accessModes").clone(),
        "claimRef" => reference,
        "persistentVolumeReclaimPolicy" => class.at("reclaimPolicy").clone(),
        "storageClassName" => class.str("metadata.name"),
        "volumeMode" => "Filesystem",
        "hostPath" => tree! { "path" => path, "type" => "DirectoryOrCreate" },
        "nodeAffinity" => tree! { "required" => tree! { "nodeSelectorTerms" => terms } },
    };
    tree! {
        "apiVersion" => "v1",
        "kind" => "PersistentVolume",
        "metadata" => tree! { "name" => name, "annotations" => tree! { PROVISIONED_BY => NAME } },
        "spec" => spec,
    }
}

/// Whether a volume of this provisioner is released and must be deleted.
pub(crate) fn needs_deletion(volume: &Tree) -> bool {
    annotation(volume, PROVISIONED_BY) == NAME
        && volume.str("status.phase") == "Released"
        && volume.str("spec.persistentVolumeReclaimPolicy") == "Delete"
        && !is_deleting(volume)
}

/// The host of a volume.
pub(crate) fn host_of(volume: &Tree) -> &str {
    let term = volume.list("spec.nodeAffinity.required.nodeSelectorTerms").first();
    let expression = term.and_then(|term| term.list("matchExpressions").first());
    let value = expression.and_then(|expression| expression.list("values").first());
    value.and_then(Tree::as_str).unwrap_or_default()
}

/// The host name that volumes use for a node.
pub(super) fn host(node: &Tree) -> &str {
    match node.map("metadata.labels").str(HOSTNAME) {
        "" => node.str("metadata.name"),
        hostname => hostname,
    }
}

/// The next step of deleting a volume.
#[derive(Debug, PartialEq)]
pub(crate) enum DeletionStep {
    /// The directory is erased, or no node can erase it.
    Delete,
    /// Request the node to erase it by setting these annotations.
    RequestErasure(Tree),
    /// The erasure is requested.
    Wait,
}

/// `going` are all volumes of the node that are to be deleted.
pub(crate) fn plan_deletion(volume: &Tree, node: Option<&Tree>, going: &[Arc<Tree>]) -> DeletionStep {
    let Some(node) = node.filter(|node| node.map("metadata.annotations").contains(ERASED)) else {
        return DeletionStep::Delete;
    };
    let path = path(volume);
    if directories(node, ERASED).iter().any(|erased| erased == path) {
        return DeletionStep::Delete;
    }
    let mut wanted: Vec<String> = going.iter().map(|volume| self::path(volume).to_string()).collect();
    wanted.sort_unstable();
    if wanted == directories(node, TO_ERASE) {
        DeletionStep::Wait
    } else {
        DeletionStep::RequestErasure(erase_request(&wanted))
    }
}

/// The node's erase request without a deleted volume; None if it was not requested.
pub(super) fn done(volume: &Tree, node: &Tree) -> Option<Tree> {
    let mut wanted = directories(node, TO_ERASE);
    let before = wanted.len();
    wanted.retain(|directory| directory != path(volume));
    (wanted.len() < before).then(|| erase_request(&wanted))
}

fn erase_request(directories: &[String]) -> Tree {
    let list: Vec<Tree> = directories.iter().map(|directory| Tree::from(directory.as_str())).collect();
    let value = match list.is_empty() {
        true => Tree::Null,
        false => String::from_utf8_lossy(&api::json::encode(&list.into(), None)).into_owned().into(),
    };
    tree! { "metadata" => tree! { "annotations" => tree! { TO_ERASE => value } } }
}

fn directories(node: &Tree, annotation: &str) -> Vec<String> {
    let list = api::json::decode(node.map("metadata.annotations").str(annotation).as_bytes()).unwrap_or_default();
    let directories = list.as_list().unwrap_or(&[]).iter().filter_map(Tree::as_str);
    directories.map(str::to_string).collect()
}

fn path(volume: &Tree) -> &str {
    volume.str("spec.hostPath.path")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Tree {
        let annotations = tree! { PROVISIONER => NAME, SELECTED_NODE => "node" };
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "c", "uid" => "u", "annotations" => annotations },
            "spec" => tree! {
                "accessModes" => list!["ReadWriteOnce"],
                "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
            },
        }
    }

    fn class() -> Tree {
        default_class()
    }

    fn node() -> Tree {
        tree! { "metadata" => tree! { "name" => "node", "labels" => tree! { HOSTNAME => "host" } } }
    }

    fn refused(claim: &Tree, class: &Tree, node: Option<&Tree>) -> String {
        match plan(claim, Some(class), node, false, "/d") {
            Plan::Refuse(event) => event.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn volumes_have_node_affinity() {
        let Plan::Create(volume) = plan(&claim(), Some(&class()), Some(&node()), false, "/d/") else {
            panic!("it is made")
        };
        assert_eq!(volume.str("metadata.name"), "pvc-u");
        let path = tree! { "path" => "/d/pvc-u_n_c", "type" => "DirectoryOrCreate" };
        assert_eq!(*volume.at("spec.hostPath"), path);
        let term = &volume.list("spec.nodeAffinity.required.nodeSelectorTerms")[0].list("matchExpressions")[0];
        assert_eq!(term.list("values"), ["host".into()]);
        assert_eq!(volume.str("spec.claimRef.uid"), "u");
        assert_eq!(volume.str("spec.persistentVolumeReclaimPolicy"), "Delete");
    }

    #[test]
    fn provisions_once_after_node_selection() {
        let keep = |claim: &Tree, class: Option<&Tree>, is_made: bool| {
            assert_eq!(plan(claim, class, Some(&node()), is_made, "/d"), Plan::Keep);
        };
        keep(&claim(), Some(&class()), true);
        keep(&claim(), None, false);
        let changed = |path: &str, key: &str, value: &str| {
            let mut claim = claim();
            claim.child(path).set(key, value);
            claim
        };
        keep(&changed("metadata.annotations", PROVISIONER, "other"), Some(&class()), false);
        keep(&changed("metadata.annotations", SELECTED_NODE, ""), Some(&class()), false);
        keep(&changed("spec", "volumeName", "v"), Some(&class()), false);
    }

    #[test]
    fn refuses_unsupported_claims() {
        let with = |key: &str, value: Tree| {
            let mut claim = claim();
            claim.child("spec").set(key, value);
            claim
        };
        let check = |claim: Tree, want: &str| {
            let got = refused(&claim, &class(), Some(&node()));
            assert!(got.ends_with(want), "{got}");
        };
        check(with("accessModes", list!["ReadWriteMany"]), "access mode ReadWriteMany is not supported");
        check(with("volumeMode", "Block".into()), "volumeMode Block is not supported");
        check(with("selector", tree! {}), "claim Selector is not supported");
        assert!(refused(&claim(), &class(), None).ends_with("nodes \"node\" not found"));
        let mut odd = class();
        odd.set("parameters", tree! { "x" => "1" });
        assert!(refused(&claim(), &odd, Some(&node())).ends_with("unknown parameter \"x\" of the storage class"));
        let mut hasty = class();
        hasty.set("volumeBindingMode", "Immediate");
        let mut unplaced = claim();
        unplaced.child("metadata.annotations").remove(SELECTED_NODE);
        assert!(refused(&unplaced, &hasty, None).contains("WaitForFirstConsumer"));
    }

    #[test]
    fn deletes_released_volumes() {
        let volume = |maker: &str, phase: &str, policy: &str| {
            tree! {
                "metadata" => tree! { "annotations" => tree! { PROVISIONED_BY => maker } },
                "spec" => tree! { "persistentVolumeReclaimPolicy" => policy },
                "status" => tree! { "phase" => phase },
            }
        };
        assert!(needs_deletion(&volume(NAME, "Released", "Delete")));
        assert!(!needs_deletion(&volume(NAME, "Bound", "Delete")));
        assert!(!needs_deletion(&volume(NAME, "Released", "Retain")));
        assert!(!needs_deletion(&volume("other", "Released", "Delete")));
    }

    #[test]
    fn deletes_volumes_after_erasure() {
        let volume = |name: &str| {
            let Plan::Create(mut volume) = plan(&claim(), Some(&class()), Some(&node()), false, "/d") else {
                panic!("it is made")
            };
            volume.child("spec.hostPath").set("path", name);
            volume
        };
        let (one, two) = (volume("/d/1"), volume("/d/2"));
        assert_eq!(host_of(&one), "host");
        let going = [Arc::new(two.clone()), Arc::new(one.clone())];
        assert_eq!(plan_deletion(&one, None, &going), DeletionStep::Delete, "the node is deleted");
        assert_eq!(plan_deletion(&one, Some(&node()), &going), DeletionStep::Delete, "it erases nothing");
        let with = |to_erase: &str, erased: &str| {
            let mut node = node();
            let annotations = tree! { TO_ERASE => to_erase, ERASED => erased };
            node.child("metadata").set("annotations", annotations);
            node
        };
        let both = r#"["/d/1","/d/2"]"#;
        let annotate_node =
            |value: Tree| tree! { "metadata" => tree! { "annotations" => tree! { TO_ERASE => value } } };
        assert_eq!(
            plan_deletion(&one, Some(&with("", "[]")), &going),
            DeletionStep::RequestErasure(annotate_node(both.into()))
        );
        assert_eq!(plan_deletion(&one, Some(&with(both, "[]")), &going), DeletionStep::Wait);
        assert_eq!(plan_deletion(&one, Some(&with(both, r#"["/d/1"]"#)), &going), DeletionStep::Delete);
        assert_eq!(done(&one, &with(both, "[]")), Some(annotate_node(r#"["/d/2"]"#.into())));
        assert_eq!(done(&two, &with(r#"["/d/2"]"#, "[]")), Some(annotate_node(Tree::Null)));
        assert_eq!(done(&two, &with("", "[]")), None);
    }
}
