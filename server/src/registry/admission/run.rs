//! Runs the plugins: the mutating half, then the validating one. Each plugin is timed.

use std::time::Duration;

use api::Tree;
use api::status::Status;
use tokio::time::Instant;

use super::metrics::{AdmissionMetrics, AdmissionPhase};
use super::{Attributes, Operation, Plugin};

/// How long a request waits for an object that a controller is about to create.
const READY_WAIT: Duration = Duration::from_secs(1);

/// The mutating phase. It runs a second time if a webhook has changed the object after earlier plugins. Requests that
/// write no object go to webhooks only.
pub(crate) async fn mutate(
    attributes: &Attributes<'_>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let began = Instant::now();
    let mut result = mutate_once(attributes, object.as_deref_mut(), old, warnings).await;
    if result.is_ok() && attributes.rounds.begin_second() {
        result = mutate_once(attributes, object, old, warnings).await;
    }
    // A failure policy must not decide about expressions that were interrupted.
    let result = attributes.deadline().check().and(result);
    attributes.registry.admitted.half(AdmissionPhase::Admit, attributes.operation, result.is_err(), began.elapsed());
    result
}

async fn mutate_once(
    attributes: &Attributes<'_>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut watch = StopWatch::new(attributes, AdmissionPhase::Admit);
    for (at, plugin) in attributes.registry.admission.plugins().enumerate() {
        if plugin.mutate.is_none() && plugin.mutate_async.is_none() {
            continue;
        }
        let result = mutate_by(plugin, attributes, object.as_deref_mut(), old, warnings).await;
        watch.record_plugin(at, plugin, result.is_err());
        result?;
    }
    Ok(())
}

async fn mutate_by(
    plugin: &Plugin,
    attributes: &Attributes<'_>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if let Some(object) = object.as_deref_mut().filter(|_| attributes.operation != Operation::Connect) {
        if let Some(is_ready) = plugin.is_ready {
            wait_until(attributes, object, is_ready).await;
        }
        if let Some(mutate) = plugin.mutate {
            mutate(attributes, object, old, warnings)?;
        }
    }
    let asking = plugin.mutate_async.and_then(|mutate| mutate(attributes, object, old, warnings));
    match asking {
        Some(asking) => asking.await,
        None => Ok(()),
    }
}

/// Times one plugin after the other; the end of one is the beginning of the next.
struct StopWatch<'a> {
    metrics: &'a AdmissionMetrics,
    half: AdmissionPhase,
    operation: Operation,
    last: Instant,
}

impl<'a> StopWatch<'a> {
    fn new(attributes: &Attributes<'a>, half: AdmissionPhase) -> StopWatch<'a> {
        StopWatch {
            metrics: &attributes.registry.admitted,
            half,
            operation: attributes.operation,
            last: Instant::now(),
        }
    }

    fn record_plugin(&mut self, at: usize, plugin: &Plugin, rejected: bool) {
        let now = Instant::now();
        self.metrics.plugin((at, plugin), self.half, self.operation, rejected, now - self.last);
        self.last = now;
    }
}

/// Runs both phases, for objects that are never stored.
pub(crate) async fn admit(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    mutate(attributes, Some(object), None, warnings).await?;
    validate(attributes, Some(object), None, warnings).await
}

/// Waits until the plugin is ready; after the timeout the plugin itself rejects the request.
async fn wait_until(attributes: &Attributes<'_>, object: &Tree, is_ready: fn(&Attributes<'_>, &Tree) -> bool) {
    if is_ready(attributes, object) {
        return;
    }
    let deadline = tokio::time::Instant::now() + READY_WAIT;
    attributes.registry.storage.caches.until(deadline, || is_ready(attributes, object)).await;
}

/// The validating half.
pub(crate) async fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let began = Instant::now();
    let mut watch = StopWatch::new(attributes, AdmissionPhase::Validate);
    let mut result = Ok(());
    for (at, plugin) in attributes.registry.admission.plugins().enumerate() {
        if plugin.validate.is_none() && plugin.validate_async.is_none() {
            continue;
        }
        result = validate_by(plugin, attributes, object, old, warnings).await;
        watch.record_plugin(at, plugin, result.is_err());
        if result.is_err() {
            break;
        }
    }
    let result = attributes.deadline().check().and(result);
    attributes.registry.admitted.half(AdmissionPhase::Validate, attributes.operation, result.is_err(), began.elapsed());
    result
}

async fn validate_by(
    plugin: &Plugin,
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if let Some(validate) = plugin.validate {
        validate(attributes, object, old, warnings)?;
    }
    let asking = plugin.validate_async.and_then(|validate| validate(attributes, object, old, warnings));
    match asking {
        Some(asking) => asking.await,
        None => Ok(()),
    }
}
