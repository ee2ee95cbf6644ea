//! Webhooks: configurations in the API name servers that are called for requests. Mutating webhooks return patches, one
//! after the other; validating ones are called concurrently and allow or refuse. A cluster without configurations pays
//! one comparison of revisions.

mod compiled;
mod invoke;
pub(crate) mod matching;
mod notes;
mod review;
mod rounds;
mod shown;

use std::sync::Arc;

use api::Tree;
use api::status::Status;

use super::metrics::{Half, Outcome};
use super::setup::{FieldError, Source};
use super::{Attributes, Pending, Settings};
use crate::common::join::{Joined, join_all};
use crate::outbound::callout::{Logins, kubeconfig};
pub(crate) use compiled::Compiled;
use compiled::{Hook, Side};
use invoke::{Failure, Said};
use matching::Invocation;
pub(crate) use rounds::Rounds;
use shown::Shown;

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a mut Tree>,
    old: Option<&'a Tree>,
    warnings: &'a mut Vec<String>,
) -> Pending<'a> {
    let hooks = relevant(attributes, Side::Mutating)?;
    Some(Box::pin(mutate_all(attributes, hooks, object, old, warnings)))
}

pub(crate) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a Tree>,
    old: Option<&'a Tree>,
    warnings: &'a mut Vec<String>,
) -> Pending<'a> {
    let hooks = relevant(attributes, Side::Validating)?;
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

/// The webhooks of a side; None if there are none, or if none may interfere: for writes of the server itself, and for
/// the configurations, which a broken webhook must not keep from being repaired.
fn relevant(attributes: &Attributes<'_>, side: Side) -> Option<Arc<Vec<Hook>>> {
    let hooks = attributes.registry.webhooks.of(attributes.registry, side)?;
    attributes.origin?;
    let exempt = attributes.resource.kind.group == "admissionregistration.k8s.io";
    (!exempt).then_some(hooks)
}

async fn mutate_all(
    attributes: &Attributes<'_>,
    hooks: Arc<Vec<Hook>>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    attributes.rounds.begin(object.as_deref());
    for (index, hook) in hooks.iter().enumerate() {
        let Some(invocation) = matching::find(hook, attributes, object.as_deref(), old)? else { continue };
        if !attributes.rounds.may_call(&hook.id) {
            continue;
        }
        let shown = Shown::new(attributes, &invocation, object.as_deref(), old)?;
        let mut said = invoke::call(attributes, &invocation, &shown, Side::Mutating).await;
        attributes.rounds.called(hook);
        note(attributes, &said, warnings);
        let (outcome, took) = (said.outcome(hook), said.took);
        let settled = settle(attributes, hook, &mut said, Side::Mutating, index);
        let changed = settled.and_then(|patch| match patch {
            None => Ok(false),
            Some(patch) => {
                let changed = shown.patch(attributes, &invocation, object.as_deref_mut(), &patch)?;
                notes::patch(attributes, hook, index, &patch);
                Ok(changed)
            }
        });
        let broken = changed.is_err() && outcome == Outcome::Allowed;
        let outcome = if broken { Outcome::Broken } else { outcome };
        attributes.registry.admitted.webhook(&hook.name, Half::Admit, attributes.operation, outcome, took);
        notes::mutation(attributes, hook, index, *changed.as_ref().unwrap_or(&false));
        if changed? {
            attributes.rounds.changed();
        }
    }
    attributes.rounds.end(object.as_deref());
    Ok(())
}

async fn validate_all(
    attributes: &Attributes<'_>,
    hooks: Arc<Vec<Hook>>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut calls: Vec<(Invocation<'_>, Shown)> = Vec::new();
    for hook in hooks.iter() {
        if let Some(invocation) = matching::find(hook, attributes, object, old)? {
            let shown = Shown::new(attributes, &invocation, object, old)?;
            calls.push((invocation, shown));
        }
    }
    let asked = calls.iter().map(|(invocation, shown)| {
        let call = invoke::call(attributes, invocation, shown, Side::Validating);
        Box::pin(call) as Joined<'_, Said>
    });
    let answers = join_all(asked.collect()).await;
    let mut refused = None;
    for (index, ((invocation, _), mut said)) in calls.iter().zip(answers).enumerate() {
        note(attributes, &said, warnings);
        let (hook, operation) = (invocation.hook, attributes.operation);
        attributes.registry.admitted.webhook(&hook.name, Half::Validate, operation, said.outcome(hook), said.took);
        let verdict = settle(attributes, invocation.hook, &mut said, Side::Validating, index);
        refused = refused.or(verdict.err());
    }
    refused.map_or(Ok(()), Err)
}

fn note(attributes: &Attributes<'_>, said: &Said, warnings: &mut Vec<String>) {
    warnings.extend(said.warnings.iter().cloned());
    for (key, value) in &said.annotations {
        attributes.annotate(key.clone(), value);
    }
}

/// The patch of a webhook that allows the request. A failed call counts as its failure policy says.
fn settle(
    attributes: &Attributes<'_>,
    hook: &Hook,
    said: &mut Said,
    side: Side,
    index: usize,
) -> Result<Option<Vec<u8>>, Status> {
    match std::mem::replace(&mut said.verdict, Ok(None)) {
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
