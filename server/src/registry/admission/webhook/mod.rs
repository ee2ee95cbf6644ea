//! Webhooks: configurations in the API name servers that are called for requests. Mutating webhooks return patches, one
//! after the other; validating webhooks are called concurrently and allow or reject. A cluster without configurations
//! pays one comparison of revisions.

mod compiled;
mod conditions;
mod invoke;
mod notes;
mod review;

use std::sync::Arc;

use api::Tree;
use api::status::Status;

use super::metrics::{AdmissionPhase, Outcome};
use super::rounds::Group;
use super::setup::{FieldError, Source};
use super::versioned_objects::VersionedObjects;
use super::{Attributes, PluginFuture, Settings};
use crate::common::join::{BoxedFuture, join_all};
use crate::outbound::callout::{Logins, kubeconfig};
pub(crate) use compiled::Compiled;
use compiled::{Hook, WebhookKind};
use invoke::{CallResult, Failure, Invocation, find};

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a mut Tree>,
    old: Option<&'a Tree>,
    warnings: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let hooks = relevant(attributes, WebhookKind::Mutating)?;
    Some(Box::pin(mutate_all(attributes, hooks, object, old, warnings)))
}

pub(crate) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a Tree>,
    old: Option<&'a Tree>,
    warnings: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let hooks = relevant(attributes, WebhookKind::Validating)?;
    Some(Box::pin(validate_all(attributes, hooks, object, old, warnings)))
}

pub(crate) fn configure_mutating(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    settings.mutating_logins = logins(source)?;
    Ok(())
}

pub(crate) fn configure_validating(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    settings.validating_logins = logins(source)?;
    Ok(())
}

/// A WebhookAdmissionConfiguration names a kubeconfig whose users are named by the webhooks' hosts.
fn logins(source: &Source<'_>) -> Result<Logins, FieldError> {
    let old = source.expect(&["apiserver.config.k8s.io/v1alpha1"], "WebhookAdmission");
    old.or_else(|_| source.expect(&["apiserver.config.k8s.io/v1"], "WebhookAdmissionConfiguration"))?;
    source.only("", source.tree, &["apiVersion", "kind", "kubeConfigFile"])?;
    let file = std::path::Path::new(source.tree.str("kubeConfigFile"));
    if !file.is_absolute() {
        return Err(FieldError::new("kubeConfigFile", "must be an absolute path"));
    }
    kubeconfig::read_logins(file).map_err(|error| FieldError::new("kubeConfigFile", error))
}

/// The webhooks of a phase; None if there are none, or if none may interfere: for writes of the server itself, and for
/// the configurations, since a broken webhook must not prevent their repair.
fn relevant(attributes: &Attributes<'_>, side: WebhookKind) -> Option<Arc<Vec<Hook>>> {
    let hooks = attributes.registry.webhooks.of(attributes.registry, side)?;
    attributes.origin?;
    let exempt = attributes.resource.kind.group() == "admissionregistration.k8s.io";
    (!exempt).then_some(hooks)
}

async fn mutate_all(
    attributes: &Attributes<'_>,
    hooks: Arc<Vec<Hook>>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    attributes.rounds.begin(Group::Webhooks, object.as_deref());
    for (index, hook) in hooks.iter().enumerate() {
        let Some(invocation) = find(hook, attributes, object.as_deref(), old)? else { continue };
        if !attributes.rounds.may_call(Group::Webhooks, &hook.id) {
            continue;
        }
        let shown = VersionedObjects::new(attributes, invocation.other.as_deref(), object.as_deref(), old)?;
        if !conditions::are_met(attributes, &invocation, &shown, AdmissionPhase::Admit).await? {
            continue;
        }
        let mut result = invoke::call(attributes, &invocation, &shown, WebhookKind::Mutating).await;
        if hook.reinvoke {
            attributes.rounds.called(Group::Webhooks, &hook.id);
        }
        note(attributes, &result, warnings);
        let (outcome, took) = (result.outcome(hook), result.took);
        let settled = settle(attributes, hook, &mut result, WebhookKind::Mutating, index);
        let changed = settled.and_then(|patch| match patch {
            None => Ok(false),
            Some(patch) => {
                let changed = shown.patch(
                    attributes,
                    (&hook.name, invocation.other.as_deref()),
                    object.as_deref_mut(),
                    &patch,
                )?;
                notes::patch(attributes, hook, index, &patch);
                Ok(changed)
            }
        });
        let broken = changed.is_err() && outcome == Outcome::Allowed;
        let outcome = if broken { Outcome::Broken } else { outcome };
        attributes.registry.admitted.webhook(&hook.name, AdmissionPhase::Admit, attributes.operation, outcome, took);
        notes::mutation(attributes, hook, index, *changed.as_ref().unwrap_or(&false));
        if changed? {
            attributes.rounds.changed(Group::Webhooks);
        }
    }
    attributes.rounds.end(Group::Webhooks, object.as_deref());
    Ok(())
}

async fn validate_all(
    attributes: &Attributes<'_>,
    hooks: Arc<Vec<Hook>>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut calls: Vec<(Invocation<'_>, VersionedObjects)> = Vec::new();
    for hook in hooks.iter() {
        if let Some(invocation) = find(hook, attributes, object, old)? {
            let shown = VersionedObjects::new(attributes, invocation.other.as_deref(), object, old)?;
            if conditions::are_met(attributes, &invocation, &shown, AdmissionPhase::Validate).await? {
                calls.push((invocation, shown));
            }
        }
    }
    let requested = calls.iter().map(|(invocation, shown)| {
        let call = invoke::call(attributes, invocation, shown, WebhookKind::Validating);
        Box::pin(call) as BoxedFuture<'_, CallResult>
    });
    let results = join_all(requested.collect()).await;
    let mut refused = None;
    for (index, ((invocation, _), mut result)) in calls.iter().zip(results).enumerate() {
        note(attributes, &result, warnings);
        let (hook, operation) = (invocation.hook, attributes.operation);
        attributes.registry.admitted.webhook(
            &hook.name,
            AdmissionPhase::Validate,
            operation,
            result.outcome(hook),
            result.took,
        );
        let verdict = settle(attributes, invocation.hook, &mut result, WebhookKind::Validating, index);
        refused = refused.or(verdict.err());
    }
    refused.map_or(Ok(()), Err)
}

fn note(attributes: &Attributes<'_>, result: &CallResult, warnings: &mut Vec<String>) {
    warnings.extend(result.warnings.iter().cloned());
    for (key, value) in &result.annotations {
        attributes.annotate(key.clone(), value);
    }
}

/// The patch of a webhook that allows the request. The failure policy decides about a failed call.
fn settle(
    attributes: &Attributes<'_>,
    hook: &Hook,
    result: &mut CallResult,
    side: WebhookKind,
    index: usize,
) -> Result<Option<Vec<u8>>, Status> {
    match std::mem::replace(&mut result.verdict, Ok(None)) {
        Ok(patch) => Ok(patch),
        Err(Failure::Refused(status)) => Err(status),
        Err(Failure::Calling(why)) if hook.ignore_failure => {
            tracing::warn!(webhook = hook.name, %why, "webhook failed, continuing without it");
            notes::failed_open(attributes, hook, index, side);
            Ok(None)
        }
        Err(Failure::Calling(why)) => Err(Status::internal(format!("failed calling webhook {:?}: {why}", hook.name))),
    }
}
