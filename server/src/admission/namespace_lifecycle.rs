//! Nothing is made in a namespace that is missing or going; what the system needs stays.

use api::Tree;
use api::status::{Cause, Status};

use super::{Attributes, Operation};

/// Nothing new goes into a namespace that is missing or being deleted.
pub fn mutate(attributes: &Attributes<'_>, _: &mut Tree, _: Option<&Tree>, _: &mut Vec<String>) -> Result<(), Status> {
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
pub fn validate(
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
