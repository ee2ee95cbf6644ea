//! The match conditions of a webhook: CEL expressions that decide whether it is called.

use api::Tree;
use api::status::Status;

use super::invoke::Invocation;
use crate::registry::admission::Attributes;
use crate::registry::admission::expressions::{Checks, Input, Session, evaluate_conditions, request_resource};
use crate::registry::admission::metrics::{AdmissionPhase, ConditionOwner};
use crate::registry::admission::request::describe_request;
use crate::registry::admission::versioned_objects::VersionedObjects;

/// Whether a webhook is called. The failure policy decides about a condition that fails.
pub(super) async fn are_met(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    shown: &VersionedObjects,
    half: AdmissionPhase,
) -> Result<bool, Status> {
    let hook = invocation.hook;
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let request = describe_request(attributes, invocation.other.as_deref());
    let namespace = namespace_object(attributes);
    let (checks, resource) = (Checks::new(attributes), request_resource(attributes));
    let outcome = checks.evaluate(|| {
        let input = Input {
            object: &shown.object,
            old: &shown.old,
            request: &request,
            namespace: &namespace,
            params: &Tree::Null,
            deadline: attributes.deadline(),
            authorizer: Some((&checks, &resource)),
        };
        evaluate_conditions(&hook.conditions, &Session::new(input, &[]))
    });
    let outcome = outcome.await;
    let metrics = &attributes.registry.admitted;
    let owner = ConditionOwner::Webhook { name: &hook.name, half };
    metrics.conditions(owner, attributes.operation, &outcome);
    let is_met = match outcome.result {
        Ok(is_met) => is_met,
        Err(error) if hook.ignore_failure => {
            tracing::warn!(webhook = hook.name, %error, "match conditions failed, skipping webhook");
            false
        }
        Err(error) => return Err(attributes.forbidden(error)),
    };
    if !is_met {
        metrics.exclusion(owner, attributes.operation);
    }
    Ok(is_met)
}

/// The namespace of the request; null for cluster-scoped objects.
fn namespace_object(attributes: &Attributes<'_>) -> Tree {
    if attributes.namespace.is_empty() {
        return Tree::Null;
    }
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace);
    namespace.map(|namespace| (*namespace).clone()).unwrap_or_default()
}
