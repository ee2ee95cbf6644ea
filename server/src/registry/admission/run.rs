//! The plugins at work: the mutating half, then the validating one, each plugin timed.

use std::time::Duration;

use api::Tree;
use api::status::Status;
use tokio::time::Instant;

use super::metrics::{AdmissionMetrics, Half};
use super::{Attributes, Operation, Plugin};

/// How long a request waits for what a controller is about to make.
const READY_WAIT: Duration = Duration::from_secs(1);

/// The mutating phase, a second time if a webhook has changed what earlier plugins had seen. Requests that write no
/// object are shown only to webhooks.
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
    attributes.registry.admitted.half(Half::Admit, attributes.operation, result.is_err(), began.elapsed());
    result
}

async fn mutate_once(
    attributes: &Attributes<'_>,
    mut object: Option<&mut Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut watch = StopWatch::new(attributes, Half::Admit);
    for (at, plugin) in attributes.registry.admission.plugins().enumerate() {
        if plugin.mutate.is_none() && plugin.mutate_later.is_none() {
            continue;
        }
        let result = mutate_by(plugin, attributes, object.as_deref_mut(), old, warnings).await;
        watch.lap(at, plugin, result.is_err());
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
    let asking = plugin.mutate_later.and_then(|mutate| mutate(attributes, object, old, warnings));
    match asking {
        Some(asking) => asking.await,
        None => Ok(()),
    }
}

/// Times one plugin after the other; the end of one is the beginning of the next.
struct StopWatch<'a> {
    metrics: &'a AdmissionMetrics,
    half: Half,
    operation: Operation,
    last: Instant,
}

impl<'a> StopWatch<'a> {
    fn new(attributes: &Attributes<'a>, half: Half) -> StopWatch<'a> {
        StopWatch {
            metrics: &attributes.registry.admitted,
            half,
            operation: attributes.operation,
            last: Instant::now(),
        }
    }

    fn lap(&mut self, at: usize, plugin: &Plugin, rejected: bool) {
        let now = Instant::now();
        self.metrics.plugin((at, plugin), self.half, self.operation, rejected, now - self.last);
        self.last = now;
    }
}

/// Both phases, for objects that are never stored.
pub(crate) async fn admit(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    mutate(attributes, Some(object), None, warnings).await?;
    validate(attributes, Some(object), None, warnings).await
}

/// The plugin itself refuses what is still missing when the time is over.
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
    let mut watch = StopWatch::new(attributes, Half::Validate);
    let mut result = Ok(());
    for (at, plugin) in attributes.registry.admission.plugins().enumerate() {
        if plugin.validate.is_none() && plugin.validate_later.is_none() {
            continue;
        }
        result = validate_by(plugin, attributes, object, old, warnings).await;
        watch.lap(at, plugin, result.is_err());
        if result.is_err() {
            break;
        }
    }
    attributes.registry.admitted.half(Half::Validate, attributes.operation, result.is_err(), began.elapsed());
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
    let asking = plugin.validate_later.and_then(|validate| validate(attributes, object, old, warnings));
    match asking {
        Some(asking) => asking.await,
        None => Ok(()),
    }
}
