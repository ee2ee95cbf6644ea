//! Runs mutating policies for a request: selects them, and applies their mutations one after the other.

use std::sync::Arc;

use api::Tree;
use api::schema::TypeRef;
use api::status::{Cause, Details, Status};
use kinds::{ExpressionKind, PolicyCompiler};
use tokio::time::Instant;

use super::compiled::{Binding, Evaluator, Hook, Policy};
use super::decision::ErrorType;
use super::patch::MutationError;
use super::{View, params, patch};
use crate::registry::admission::Attributes;
use crate::registry::admission::expressions::{Checks, Expression, Session, evaluate_conditions};
use crate::registry::admission::metrics::ConditionOwner;
use crate::registry::admission::rounds::Group;
use crate::storage::resource::{Resource, split_api_version};

/// The fields of a mutating policy.
pub(crate) struct Mutating {
    mutations: Vec<Mutation>,
    reinvoke: bool,
}

pub(super) struct Mutation {
    pub patch_type: PatchType,
    pub expression: Expression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

impl PatchType {
    pub(super) fn expression_kind(self) -> ExpressionKind {
        match self {
            PatchType::ApplyConfiguration => ExpressionKind::ApplyConfiguration,
            PatchType::JsonPatch => ExpressionKind::JsonPatch,
        }
    }
}

impl Evaluator for Mutating {
    const POLICIES: &'static str = "mutatingadmissionpolicies";
    const BINDINGS: &'static str = "mutatingadmissionpolicybindings";

    fn compile(spec: &Tree, compiler: &PolicyCompiler) -> Mutating {
        let mutation = |mutation: &Tree| {
            let (patch_type, field) = match mutation.str("patchType") {
                "JSONPatch" => (PatchType::JsonPatch, "jsonPatch"),
                _ => (PatchType::ApplyConfiguration, "applyConfiguration"),
            };
            let text = mutation.at(field).str("expression");
            Mutation { patch_type, expression: Expression::new(compiler, patch_type.expression_kind(), text) }
        };
        Mutating {
            mutations: spec.list("mutations").iter().map(mutation).collect(),
            reinvoke: spec.str("reinvocationPolicy") == "IfNeeded",
        }
    }
}

/// A policy that is to be applied with the params of a binding.
struct Invocation<'a> {
    policy: &'a Policy<Mutating>,
    binding: &'a Binding,
    /// None if the policy matches the version of the request.
    other: Option<Arc<Resource>>,
    params: Tree,
}

impl Invocation<'_> {
    fn id(&self) -> String {
        let (namespace, name) = (self.params.str("metadata.namespace"), self.params.str("metadata.name"));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
}

/// Why a policy could not be applied.
struct PolicyError {
    message: String,
    /// Empty if the mutation could not be tried at all.
    reason: &'static str,
}

/// The errors of policies that fail closed.
#[derive(Default)]
struct Errors(Vec<PolicyError>);

impl Errors {
    fn add(
        &mut self,
        policy: &Policy<Mutating>,
        binding: Option<&Binding>,
        why: &dyn std::fmt::Display,
        reason: &'static str,
    ) {
        if policy.fails_open {
            return;
        }
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let message = format!("policy '{}'{with} denied request: {why}", policy.name);
        self.0.push(PolicyError { message, reason });
    }

    fn misconfigured(&mut self, policy: &Policy<Mutating>, binding: Option<&Binding>, why: &dyn std::fmt::Display) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(policy, binding, &format_args!("failed to configure {what}: {why}"), "");
    }

    /// The first error is the message, and all of them are causes.
    fn finish(self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let mut status = attributes.forbidden("");
        status.message.clone_from(&first.message);
        if !first.reason.is_empty() {
            status.reason = first.reason.into();
        }
        let cause = |error: PolicyError| Cause { reason: String::new(), message: error.message, field: String::new() };
        status.details.get_or_insert_with(Details::default).causes.extend(self.0.into_iter().map(cause));
        Err(status)
    }
}

pub(super) async fn mutate(
    attributes: &Attributes<'_>,
    hooks: &[Hook<Mutating>],
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
) -> Result<(), Status> {
    let mut errors = Errors::default();
    let mut invocations = Vec::new();
    for hook in hooks {
        find_invocations(attributes, hook, (object.as_deref(), old), &mut invocations, &mut errors).await;
    }
    if !invocations.is_empty() {
        attributes.rounds.begin(Group::Policies, object.as_deref());
        let checks = Checks::new(attributes);
        let mut has_changed = false;
        for invocation in &invocations {
            has_changed |= invoke(attributes, invocation, (object.as_deref_mut(), old), &checks, &mut errors).await?;
        }
        if has_changed {
            attributes.rounds.changed(Group::Policies);
        }
        attributes.rounds.end(Group::Policies, object.as_deref());
    }
    errors.finish(attributes)
}

/// Selects the policies before the first one changes the object.
async fn find_invocations<'a>(
    attributes: &Attributes<'_>,
    hook: &'a Hook<Mutating>,
    (object, old): (Option<&Tree>, Option<&Tree>),
    invocations: &mut Vec<Invocation<'a>>,
    errors: &mut Errors,
) {
    let policy = &*hook.policy;
    let found = match policy.criteria.find(attributes, object, old) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return errors.misconfigured(policy, None, &error),
    };
    let resource = match params::find_resource(attributes, policy) {
        Ok(resource) => resource,
        Err(error) => return errors.misconfigured(policy, None, &error),
    };
    for binding in &hook.bindings {
        match binding.criteria.as_ref().map(|criteria| criteria.find(attributes, object, old)) {
            None | Some(Ok(Some(_))) => {}
            Some(Ok(None)) => continue,
            Some(Err(error)) => {
                errors.misconfigured(policy, Some(binding), &error);
                continue;
            }
        }
        match params::collect(attributes, resource.as_deref(), binding).await {
            Err(error) => errors.misconfigured(policy, Some(binding), &error),
            Ok(params) => {
                let invocation = |params| Invocation { policy, binding, other: found.other.clone(), params };
                invocations.extend(params.into_iter().map(invocation));
            }
        }
    }
}

/// Applies the mutations of a policy; true if that changed the object.
async fn invoke(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    (object, old): (Option<&mut Tree>, Option<&Tree>),
    checks: &Checks<'_>,
    errors: &mut Errors,
) -> Result<bool, Status> {
    let (policy, id) = (invocation.policy, invocation.id());
    let mut view = View::new(attributes, invocation.other.as_deref(), object.as_deref(), old)?;
    if !meets_conditions(invocation, &view, checks, errors).await || !attributes.rounds.may_call(Group::Policies, &id) {
        return Ok(false);
    }
    let mut has_changed = false;
    if let Some(object) = object {
        for mutation in &policy.evaluator.mutations {
            has_changed |= mutate_once(invocation, mutation, &mut view, object, checks, errors).await?;
        }
    }
    if policy.evaluator.reinvoke {
        attributes.rounds.called(Group::Policies, &id);
    }
    Ok(has_changed)
}

async fn meets_conditions(
    invocation: &Invocation<'_>,
    view: &View<'_>,
    checks: &Checks<'_>,
    errors: &mut Errors,
) -> bool {
    let policy = invocation.policy;
    let outcome = checks.evaluate(|| {
        let session = Session::new(view.condition_input(&invocation.params, checks), &policy.variables);
        evaluate_conditions(&policy.conditions, &session)
    });
    let outcome = outcome.await;
    let attributes = view.attributes;
    if !policy.conditions.is_empty() {
        let owner = ConditionOwner::Policy(&policy.name);
        attributes.registry.admitted.conditions(owner, attributes.operation, &outcome);
    }
    match outcome.result {
        Ok(is_met) => is_met,
        Err(error) => {
            errors.add(policy, Some(invocation.binding), &error, "Invalid");
            false
        }
    }
}

/// Applies one mutation. The next mutation gets the result.
async fn mutate_once(
    invocation: &Invocation<'_>,
    mutation: &Mutation,
    view: &mut View<'_>,
    object: &mut Tree,
    checks: &Checks<'_>,
    errors: &mut Errors,
) -> Result<bool, Status> {
    let (attributes, other) = (view.attributes, invocation.other.as_deref());
    let began = Instant::now();
    let result = checks.evaluate(|| {
        let session = Session::new(view.input(&invocation.params, checks), &invocation.policy.variables);
        let shown = &view.shown.object;
        patch::apply(mutation, &session, shown, find_type(other.unwrap_or(attributes.resource), shown))
    });
    let result = result.await;
    let error = result.as_ref().map_or_else(MutationError::error_type, |_| ErrorType::None);
    let names = (invocation.policy.name.as_str(), invocation.binding.name.as_str());
    attributes.registry.admitted.mutating_policy(names, error, began.elapsed());
    match result {
        Err(MutationError::UnknownType(status)) => Err(status),
        Err(error) => {
            errors.add(invocation.policy, Some(invocation.binding), &error, "Invalid");
            Ok(false)
        }
        Ok(patched) => {
            let has_changed = view.shown.replace(attributes, other, patched, object)?;
            if has_changed {
                view.shown.refresh(attributes, other, object)?;
            }
            Ok(has_changed)
        }
    }
}

/// The type of an object for the merge of apply configurations. A subresource can have another type than the resource.
fn find_type<'a>(resource: &'a Resource, object: &Tree) -> Option<TypeRef<'a>> {
    let kind = &resource.kind;
    if object.str("kind") == kind.kind() && object.str("apiVersion") == resource.api_version() {
        return Some(resource.ty());
    }
    let (group, version) = split_api_version(object.str("apiVersion"));
    api::schema::type_of(&group, &version, object.str("kind")).map(TypeRef::Table)
}
