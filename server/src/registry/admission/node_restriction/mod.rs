//! NodeRestriction: a kubelet may write its own node, its own pods, and the objects named after it. The Node authorizer
//! decides which objects it may access; this plugin checks their content.

pub(crate) mod audience;
mod labels;

use api::status::Status;
use api::{Map, Tree};

use super::{Attributes, Operation};
use crate::authorization::node::{Referred, node_name, pod_refers_to};
use labels::forbidden_labels;

const MIRROR: &str = "kubernetes.io/config.mirror";

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    check_write(attributes, Some(object), old)
}

/// Checks deletions, which have no object to mutate.
pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation == Operation::Delete { check_write(attributes, object, old) } else { Ok(()) }
}

fn check_write(attributes: &Attributes<'_>, object: Option<&Tree>, old: Option<&Tree>) -> Result<(), Status> {
    let Some(node) = node_name(attributes.user) else { return Ok(()) };
    let write = NodeWrite { attributes, node, object: object.unwrap_or(&Tree::Null), old: old.unwrap_or(&Tree::Null) };
    write.check_request().map_err(|refusal| match refusal {
        Rejection::Forbidden(why) => attributes.forbidden(&why),
        Rejection::Status(status) => *status,
    })
}

struct NodeWrite<'a> {
    attributes: &'a Attributes<'a>,
    node: &'a str,
    /// Null if the request has none.
    object: &'a Tree,
    old: &'a Tree,
}

enum Rejection {
    Forbidden(String),
    Status(Box<Status>),
}

type CheckResult = Result<(), Rejection>;

fn refuse(why: impl Into<String>) -> CheckResult {
    Err(Rejection::Forbidden(why.into()))
}

fn check(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { refuse(why()) }
}

impl NodeWrite<'_> {
    fn check_request(&self) -> CheckResult {
        if self.node.is_empty() {
            return refuse(format!("could not determine node from user {:?}", self.attributes.user.name));
        }
        let kind = &self.attributes.resource.kind;
        match (kind.group(), kind.plural()) {
            ("", "pods") => self.pod(),
            ("", "nodes") => self.node(),
            ("", "persistentvolumeclaims") => self.claim(),
            ("", "serviceaccounts") => self.token(),
            ("coordination.k8s.io", "leases") => self.lease(),
            ("storage.k8s.io", "csinodes") => self.csi_node(),
            ("resource.k8s.io", "resourceslices") => self.slice(),
            ("certificates.k8s.io", "podcertificaterequests") => self.certificate_request(),
            ("certificates.k8s.io", "certificatesigningrequests") => self.signing_request(),
            _ => Ok(()),
        }
    }

    fn unexpected(&self) -> CheckResult {
        refuse(format!("unexpected operation {:?}", operation(self.attributes.operation)))
    }

    fn pod(&self) -> CheckResult {
        let node = self.node;
        match (self.attributes.subresource, self.attributes.operation) {
            ("", Operation::Create) => self.mirror_pod(),
            ("", Operation::Delete) => check(self.old.str("spec.nodeName") == node, || {
                format!("node {node:?} can only delete pods with spec.nodeName set to itself")
            }),
            ("", other) => refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                operation(other)
            )),
            ("status", Operation::Update) => self.pod_status(),
            ("eviction", Operation::Create) => {
                let pod = self.stored_pod(self.attributes.name)?;
                check(pod.str("spec.nodeName") == node, || {
                    format!("node {node} can only evict pods with spec.nodeName set to itself")
                })
            }
            ("status" | "eviction", _) => self.unexpected(),
            (other, _) => {
                refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
        }
    }

    fn stored_pod(&self, name: &str) -> Result<std::sync::Arc<Tree>, Rejection> {
        let key = format!("{}/{name}", self.attributes.namespace);
        let missing = || Rejection::Status(Box::new(Status::not_found("", "pods", name)));
        self.attributes.registry.storage.object("pods", &key).ok_or_else(missing)
    }

    /// A mirror pod refers to no other object.
    fn mirror_pod(&self) -> CheckResult {
        let (node, pod) = (self.node, self.object);
        check(pod.map("metadata.annotations").contains(MIRROR), || {
            format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods")
        })?;
        check(pod.str("spec.nodeName") == node, || {
            format!("node {node:?} can only create pods with spec.nodeName set to itself")
        })?;
        self.owner(pod.list("metadata.ownerReferences"))?;
        match referenced_kind(pod) {
            None => Ok(()),
            Some(what) => refuse(format!("node {node:?} can not create pods that reference {what}")),
        }
    }

    fn owner(&self, owners: &[Tree]) -> CheckResult {
        let node = self.node;
        let owner = match owners {
            [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
            [one] => one,
            _ => {
                return refuse(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let is_node = owner.str("apiVersion") == "v1" && owner.str("kind") == "Node" && owner.str("name") == node;
        check(is_node, || format!("node {node:?} can only create pods with an owner reference set to itself"))?;
        check(owner.bool("controller"), || {
            format!("node {node:?} can only create pods with a controller owner reference set to itself")
        })?;
        check(!owner.bool("blockOwnerDeletion"), || {
            format!("node {node:?} must not set blockOwnerDeletion on an owner reference")
        })?;
        let missing = || Rejection::Status(Box::new(Status::not_found("", "nodes", node)));
        let stored = self.attributes.registry.storage.object("minions", node).ok_or_else(missing)?;
        let (given, uid) = (owner.str("uid"), stored.str("metadata.uid"));
        check(given == uid, || format!("node {node} UID mismatch: expected {given} got {uid}"))
    }

    fn pod_status(&self) -> CheckResult {
        let (node, old, new) = (self.node, self.old, self.object);
        check(old.str("spec.nodeName") == node, || {
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself")
        })?;
        check(old.map("metadata.labels") == new.map("metadata.labels"), || {
            format!("node {node:?} cannot update labels through pod status")
        })?;
        let same = |path: &str| old.at(path) == new.at(path);
        check(same("status.resourceClaimStatuses"), || format!("node {node:?} cannot update resource claim statues"))?;
        check(same("status.extendedResourceClaimStatus"), || {
            format!("node {node:?} cannot update extended resource claim status")
        })
    }

    fn node(&self) -> CheckResult {
        let (node, name) = (self.node, self.attributes.name);
        check(name == node, || format!("node {node:?} is not allowed to modify node {name:?}"))?;
        let nothing = Map::new();
        let labels = self.object.map("metadata.labels");
        match self.attributes.operation {
            Operation::Create => {
                check(!self.object.at("spec").has("configSource"), || {
                    format!("node {node:?} is not allowed to create pods with a non-nil configSource")
                })?;
                let labels = forbidden_labels(labels, &nothing);
                check(labels.is_empty(), || {
                    format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", "))
                })
            }
            Operation::Update => {
                check(self.object.list("spec.taints") == self.old.list("spec.taints"), || {
                    format!("node {node:?} is not allowed to modify taints")
                })?;
                // With an owner that does not exist, the garbage collector would delete the node, and it could register
                // again without its taints.
                let owners = |node: &Tree| node.list("metadata.ownerReferences").to_vec();
                check(owners(self.object) == owners(self.old), || {
                    format!("node {node:?} is not allowed to modify ownerReferences")
                })?;
                let labels = forbidden_labels(labels, self.old.map("metadata.labels"));
                check(labels.is_empty(), || format!("is not allowed to modify labels: {}", labels.join(", ")))
            }
            _ => Ok(()),
        }
    }

    fn claim(&self) -> CheckResult {
        if self.attributes.subresource != "status" {
            return refuse("may only update PVC status");
        }
        if self.attributes.operation != Operation::Update {
            return self.unexpected();
        }
        check(rest_of_claim(self.object) == rest_of_claim(self.old), || {
            let node = self.node;
            format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions")
        })
    }

    /// A token must be requested for a pod on this node.
    fn token(&self) -> CheckResult {
        if self.attributes.operation != Operation::Create || self.attributes.subresource != "token" {
            return Ok(());
        }
        let bound = self.object.at("spec.boundObjectRef");
        let to_pod = bound.str("apiVersion") == "v1" && bound.str("kind") == "Pod" && !bound.str("name").is_empty();
        check(to_pod, || "node requested token not bound to a pod".to_string())?;
        let uid = bound.str("uid");
        check(!uid.is_empty(), || "node requested token with a pod binding without a uid".to_string())?;
        let pod = self.stored_pod(bound.str("name"))?;
        check(pod.str("metadata.uid") == uid, || {
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            )
        })?;
        check(pod.str("spec.nodeName") == self.node, || {
            "node requested token bound to a pod scheduled on a different node".to_string()
        })
    }

    fn lease(&self) -> CheckResult {
        check(self.attributes.namespace == "kube-node-lease", || {
            "can only access leases in the \"kube-node-lease\" system namespace".to_string()
        })?;
        check(self.attributes.name == self.node, || {
            "can only access node lease with the same name as the requesting node".to_string()
        })
    }

    fn csi_node(&self) -> CheckResult {
        check(self.attributes.name == self.node, || {
            "can only access CSINode with the same name as the requesting node".to_string()
        })
    }

    fn slice(&self) -> CheckResult {
        let own = |tree: &Tree| tree.str("spec.nodeName") == self.node;
        match self.attributes.operation {
            Operation::Create => check(own(self.object), || {
                "can only create ResourceSlice with the same NodeName as the requesting node".to_string()
            }),
            // Validation forbids a change of the node.
            Operation::Update => Ok(()),
            _ => check(own(self.old), || {
                "can only delete ResourceSlice with the same NodeName as the requesting node".to_string()
            }),
        }
    }

    fn certificate_request(&self) -> CheckResult {
        if self.attributes.operation != Operation::Create || !self.attributes.subresource.is_empty() {
            return refuse(format!("unexpected operation {:?}", operation(self.attributes.operation)));
        }
        let spec = self.object.at("spec");
        check(spec.str("nodeName") == self.node, || {
            format!(
                "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {:?}",
                spec.str("nodeName"),
                self.node
            )
        })?;
        let pod = self.stored_pod(spec.str("podName"))?;
        check(pod.str("metadata.uid") == spec.str("podUID"), || {
            format!("PodCertificateRequest.Spec.PodUID={:?} is not the UID of the pod", spec.str("podUID"))
        })?;
        check(pod.str("spec.nodeName") == self.node, || {
            format!("pod {:?} is not running on the requesting node {:?}", spec.str("podName"), self.node)
        })?;
        check(pod.str("spec.serviceAccountName") == spec.str("serviceAccountName"), || {
            format!(
                "PodCertificateRequest.Spec.ServiceAccountName={:?} is not the account of the pod",
                spec.str("serviceAccountName")
            )
        })?;
        check(!pod.map("metadata.annotations").contains(MIRROR), || {
            "pod is a mirror pod, which has no identity".to_string()
        })
    }

    /// A kubelet requests certificates only for its own name.
    fn signing_request(&self) -> CheckResult {
        if self.attributes.operation != Operation::Create || !self.attributes.subresource.is_empty() {
            return Ok(());
        }
        let signer = self.object.str("spec.signerName");
        if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
            return Ok(());
        }
        let own = format!("system:node:{}", self.node);
        let name = super::certificate_subject_restriction::common_name(self.object.str("spec.request"));
        let name = name.map_err(|why| Rejection::Forbidden(format!("unable to parse csr: {why}")))?;
        check(name == own, || format!("can only create a node CSR with CN={own}"))
    }
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// The part of a claim that a node must not change.
fn rest_of_claim(claim: &Tree) -> Tree {
    let mut claim = claim.clone();
    for path in [
        "metadata.resourceVersion",
        "metadata.managedFields",
        "status.capacity",
        "status.conditions",
        "status.allocatedResources",
        "status.allocatedResourceStatuses",
        "status.currentVolumeAttributesClassName",
        "status.modifyVolumeStatus",
    ] {
        claim.remove_at(path);
    }
    if claim.map("status").is_empty() {
        claim.remove("status");
    }
    claim
}

/// The first kind of object that a pod refers to, as the rejection names it.
fn referenced_kind(pod: &Tree) -> Option<&'static str> {
    if !pod.str("spec.serviceAccountName").is_empty() {
        return Some("a service account");
    }
    let kinds = [
        (Referred::Secret, "secrets"),
        (Referred::ConfigMap, "configmaps"),
        (Referred::Claim, "persistentvolumeclaims"),
    ];
    let projected = || pod.list("spec.volumes").iter().flat_map(|volume| volume.list("projected.sources"));
    if projected().any(|source| source.has("clusterTrustBundle")) {
        return Some("clustertrustbundles");
    }
    if !pod.list("spec.resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    kinds.into_iter().find(|(kind, _)| pod_refers_to(pod, *kind)).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    #[test]
    fn a_mirror_pod_refers_to_nothing() {
        let cases = [
            (r#"{"spec":{"containers":[{"name":"c"}]}}"#, None),
            (r#"{"spec":{"serviceAccountName":"a"}}"#, Some("a service account")),
            (r#"{"spec":{"volumes":[{"secret":{"secretName":"s"}}]}}"#, Some("secrets")),
            (r#"{"spec":{"volumes":[{"configMap":{"name":"s"}}]}}"#, Some("configmaps")),
            (r#"{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"s"}}]}}"#, Some("persistentvolumeclaims")),
            (
                r#"{"spec":{"volumes":[{"projected":{"sources":[{"clusterTrustBundle":{}}]}}]}}"#,
                Some("clustertrustbundles"),
            ),
            (r#"{"spec":{"resourceClaims":[{"name":"r"}]}}"#, Some("resourceclaims")),
        ];
        for (pod, want) in cases {
            assert_eq!(referenced_kind(&json(pod)), want, "{pod}");
        }
    }

    #[test]
    fn claim_update_may_only_report_a_resize() {
        let claim = |size: &str, label: &str| {
            json(&format!(
                r#"{{"metadata":{{"labels":{{"a":"{label}"}}}},"status":{{"capacity":{{"storage":"{size}"}}}}}}"#
            ))
        };
        assert_eq!(rest_of_claim(&claim("1", "x")), rest_of_claim(&claim("2", "x")));
        assert_ne!(rest_of_claim(&claim("1", "x")), rest_of_claim(&claim("1", "y")));
    }
}
