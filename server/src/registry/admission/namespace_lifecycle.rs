//! NamespaceLifecycle: no object is created in a missing or terminating namespace, and system namespaces stay.

use api::Tree;
use api::status::{Cause, Status};

use super::{Attributes, Operation};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    _: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    // Access reviews may name a namespace that does not exist yet.
    let review = attributes.is_kind("authorization.k8s.io", "LocalSubjectAccessReview");
    if !attributes.resource.kind.namespaced || attributes.namespace.is_empty() || review {
        return Ok(());
    }
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace);
    match check_namespace(namespace.as_deref(), attributes.operation) {
        Verdict::Fine => Ok(()),
        Verdict::Missing => Err(Status::not_found("", "namespaces", attributes.namespace)),
        Verdict::Terminating => Err(terminating(attributes)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Missing,
    Terminating,
}

/// In a terminating namespace existing objects may be changed, but no object may be created.
fn check_namespace(namespace: Option<&Tree>, operation: Operation) -> Verdict {
    let Some(namespace) = namespace else { return Verdict::Missing };
    let going = namespace.at("metadata").has("deletionTimestamp") || namespace.str("status.phase") == "Terminating";
    if going && operation == Operation::Create { Verdict::Terminating } else { Verdict::Fine }
}

fn terminating(attributes: &Attributes<'_>) -> Status {
    let namespace = attributes.namespace;
    let mut status = attributes
        .forbidden(format!("unable to create new content in namespace {namespace} because it is being terminated"));
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
pub(super) fn validate(
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

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn rejects_creates_in_terminating_namespaces() {
        let going = json(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#);
        let cases = [
            (None, Operation::Create, Verdict::Missing),
            (None, Operation::Update, Verdict::Missing),
            (Some(&going), Operation::Create, Verdict::Terminating),
            (Some(&going), Operation::Update, Verdict::Fine),
        ];
        for (namespace, operation, want) in cases {
            assert_eq!(check_namespace(namespace, operation), want, "{operation:?}");
        }
    }
}
