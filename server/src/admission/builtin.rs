//! Plugins that are a few lines each.

use api::status::{Cause, Status};
use api::{Tree, tree};

use super::{Attributes, Operation};

/// Nothing new goes into a namespace that is missing or being deleted.
pub fn namespace_lifecycle(
    attributes: &Attributes<'_>,
    _: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation != Operation::Create
        || !attributes.resource.kind.namespaced
        || attributes.namespace.is_empty()
    {
        return Ok(());
    }
    let Some(namespace) = attributes.server.object("namespaces", attributes.namespace) else {
        return Err(Status::not_found("", "namespaces", attributes.namespace));
    };
    if !namespace.at("metadata").has("deletionTimestamp") {
        return Ok(());
    }
    Err(terminating(attributes))
}

fn terminating(attributes: &Attributes<'_>) -> Status {
    let namespace = attributes.namespace;
    let mut status = attributes
        .forbidden(&format!("unable to create new content in namespace {namespace} because it is being terminated"));
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause {
            reason: "NamespaceTerminating".to_string(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_string(),
        }];
    }
    status
}

/// The system's namespaces and priority classes stay.
pub fn immortal_namespaces(
    attributes: &Attributes<'_>,
    _: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let immortal = ["default", "kube-system", "kube-public"].contains(&attributes.name);
    if attributes.is("", "Namespace", Operation::Delete) && immortal {
        return Err(attributes.forbidden("this namespace may not be deleted"));
    }
    let system = ["system-node-critical", "system-cluster-critical"].contains(&attributes.name);
    if attributes.is("scheduling.k8s.io", "PriorityClass", Operation::Delete) && system {
        return Err(attributes.forbidden("this is a system priority class and cannot be deleted"));
    }
    Ok(())
}

pub fn taint_new_nodes(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "Node", Operation::Create) {
        return Ok(());
    }
    let taints = object.child("spec").list_entry("taints");
    let is_there =
        |taint: &Tree| taint.str("key") == "node.kubernetes.io/not-ready" && taint.str("effect") == "NoSchedule";
    if !taints.iter().any(is_there) {
        taints.push(tree! { "key" => "node.kubernetes.io/not-ready", "effect" => "NoSchedule" });
    }
    Ok(())
}

/// A pod leaves a node that is lost after five minutes, unless it says otherwise.
pub fn default_toleration_seconds(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let pod = attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update);
    if !pod {
        return Ok(());
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !object.list("spec.tolerations").iter().any(|toleration| tolerates(toleration, key)) {
            object.child("spec").list_entry("tolerations").push(tree! {
                "key" => key, "operator" => "Exists", "effect" => "NoExecute", "tolerationSeconds" => 300,
            });
        }
    }
    Ok(())
}

fn tolerates(toleration: &Tree, key: &str) -> bool {
    let same_key = [key, ""].contains(&toleration.str("key"));
    same_key && ["NoExecute", ""].contains(&toleration.str("effect"))
}

/// A volume or claim that is in use is not deleted: its controller removes the finalizer.
pub fn storage_protection(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation != Operation::Create || !attributes.subresource.is_empty() {
        return Ok(());
    }
    let finalizer = match attributes.resource.kind.kind {
        "PersistentVolumeClaim" => "kubernetes.io/pvc-protection",
        "PersistentVolume" => "kubernetes.io/pv-protection",
        "VolumeAttributesClass" => "kubernetes.io/vac-protection",
        _ => return Ok(()),
    };
    let finalizers = object.child("metadata").list_entry("finalizers");
    if !finalizers.iter().any(|item| item.as_str() == Some(finalizer)) {
        finalizers.push(Tree::from(finalizer));
    }
    Ok(())
}
