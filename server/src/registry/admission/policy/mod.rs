//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: policies in CEL, which bindings apply to requests. Policies,
//! bindings and params come from the watch caches; a cluster without policies pays two comparisons of revisions.

mod compiled;
mod decision;
mod mutating;
mod params;
mod patch;
mod validating;

use api::Tree;
use api::status::Status;

use super::expressions::{Checks, Input, request_resource};
use super::request::describe_request;
use super::versioned_objects::VersionedObjects;
use super::{Attributes, Operation, PluginFuture};
use crate::storage::resource::Resource;
pub(crate) use compiled::Policies;
pub(crate) use decision::ErrorType;
pub(crate) use mutating::Mutating;
pub(crate) use validating::Validating;

pub(crate) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a Tree>,
    old: Option<&'a Tree>,
    warnings: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let compiled = attributes.registry.validating_policies.of(attributes.registry)?;
    if is_exempt(attributes) {
        return None;
    }
    Some(Box::pin(async move { validating::validate(attributes, &compiled.hooks, (object, old), warnings).await }))
}

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a mut Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let compiled = attributes.registry.mutating_policies.of(attributes.registry)?;
    if is_exempt(attributes) || attributes.operation == Operation::Delete {
        return None;
    }
    Some(Box::pin(async move { mutating::mutate(attributes, &compiled.hooks, object, old).await }))
}

/// Reviews are not stored, and rejecting them would break the cluster.
const REVIEWS: &[(&str, &str)] = &[
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// A broken policy must not prevent the repair of policies.
const POLICIES: &[&str] = &[
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// No policy may interfere with writes of the server itself, with reviews and with policies.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let kind = &attributes.resource.kind;
    attributes.origin.is_none()
        || REVIEWS.contains(&(kind.group(), kind.plural()))
        || (kind.group() == "admissionregistration.k8s.io" && POLICIES.contains(&kind.plural()))
}

/// The namespace of the request; null for cluster-scoped objects.
fn find_namespace(attributes: &Attributes<'_>) -> Result<Tree, Status> {
    if attributes.namespace.is_empty() || attributes.is_kind("", "Namespace") {
        return Ok(Tree::Null);
    }
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace);
    let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", attributes.namespace))?;
    Ok((*namespace).clone())
}

/// The input of a policy's expressions for a request.
struct View<'a> {
    attributes: &'a Attributes<'a>,
    shown: VersionedObjects,
    /// The request in the version that the policy's rules name.
    request: Tree,
    /// Match conditions get the resource of the request itself.
    own_request: Tree,
    namespace: Tree,
    resource: cel::ResourceRequest,
}

impl<'a> View<'a> {
    fn new(
        attributes: &'a Attributes<'_>,
        other: Option<&Resource>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<View<'a>, Status> {
        let request = describe_request(attributes, other);
        let mut own_request = request.clone();
        own_request.set("resource", request.at("requestResource").clone());
        Ok(View {
            attributes,
            shown: VersionedObjects::new(attributes, other, object, old)?,
            request,
            own_request,
            namespace: find_namespace(attributes)?,
            resource: request_resource(attributes),
        })
    }

    fn input<'s>(&'s self, params: &'s Tree, checks: &'s Checks<'_>) -> Input<'s> {
        Input {
            object: &self.shown.object,
            old: &self.shown.old,
            request: &self.request,
            namespace: &self.namespace,
            params,
            deadline: self.attributes.deadline(),
            authorizer: Some((checks, &self.resource)),
        }
    }

    /// Conditions have no access to the namespace.
    fn condition_input<'s>(&'s self, params: &'s Tree, checks: &'s Checks<'_>) -> Input<'s> {
        Input { request: &self.own_request, namespace: &Tree::Null, ..self.input(params, checks) }
    }
}
