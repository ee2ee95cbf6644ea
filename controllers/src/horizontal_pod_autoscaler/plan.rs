//! The status and size of an autoscaler, once its metrics are known or missing.

use std::sync::Arc;

use api::quantity::{Format, Quantity};
use api::time::{self, Timestamp};
use api::{Tree, tree};
use thiserror::Error;

use super::behavior::{Bounds, History};
use super::replicas::{Proposal, ReplicaCalculator, ReplicasError, Target, Tolerance};
use super::source::{Samples, SourceError};
use crate::Options;
use crate::support::conditions;

/// The condition that records that the autoscaler scaled its target to zero.
const SCALED_TO_ZERO: &str = "ScaledToZero";

/// The values of one metric of the spec.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MetricValues {
    Samples(Samples),
    Value(i64),
}

/// Why a metric yields no replica count.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum MetricError {
    #[error(transparent)]
    Selector(#[from] api::selector::Error),
    #[error("failed to get {metric} utilization: unable to get metrics for resource {metric}: {source}")]
    Resource { metric: String, source: SourceError },
    #[error("unable to get metric {metric}: {source}")]
    Pods { metric: String, source: SourceError },
    #[error("unable to get metric {metric}: {target}/{source}")]
    Object { metric: String, target: String, source: SourceError },
    #[error("unable to get external metric {metric}: {source}")]
    External { metric: String, source: SourceError },
    #[error("unknown metric source type {0:?}")]
    UnknownType(String),
    #[error(
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
    )]
    NoTarget,
    #[error("failed to get {resource} utilization: {source}")]
    Utilization { resource: String, source: ReplicasError },
    #[error(transparent)]
    Replicas(#[from] ReplicasError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub warns: bool,
    pub reason: String,
    pub message: String,
}

impl Event {
    pub(super) fn warning(reason: &str, message: String) -> Event {
        Event { warns: true, reason: reason.to_string(), message }
    }
}

/// The result of a reconcile.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub status: Tree,
    pub events: Vec<Event>,
    /// The new size and the reason, if it changes.
    pub scale: Option<(i64, String)>,
}

/// An autoscaler, the scale of its target, and the target's pods.
pub(super) struct Inputs<'a> {
    pub autoscaler: &'a Tree,
    pub scale: &'a Tree,
    pub pods: &'a [Arc<Tree>],
    pub options: &'a Options,
    pub now: Timestamp,
}

/// The status to start from: the previous one with the current generation.
fn initial_status(autoscaler: &Tree) -> Tree {
    let mut status = autoscaler.at("status").clone();
    if let Some(generation) = autoscaler.int("metadata.generation") {
        status.set("observedGeneration", generation);
    }
    status
}

/// Sets a condition in the status.
pub(crate) fn set_condition(status: &mut Tree, ty: &str, holds: bool, (reason, message): (&str, &str), now: Timestamp) {
    let mut condition = tree! {
        "type" => ty,
        "status" => if holds { "True" } else { "False" },
        "lastTransitionTime" => time::format_seconds(now.seconds),
        "reason" => reason,
        "message" => message,
    };
    if let Some(generation) = status.get("observedGeneration") {
        condition.set("observedGeneration", generation.clone());
    }
    conditions::set_in_place(status, condition);
}

/// Only a target that this autoscaler scaled to zero is scaled up again; a target that a user scaled to zero stays
/// there.
fn scales_from_zero(autoscaler: &Tree) -> bool {
    let is_asleep = conditions::is_true(autoscaler, SCALED_TO_ZERO);
    is_asleep && (has_outside_metrics(autoscaler) || autoscaler.int("spec.minReplicas") != Some(0))
}

/// Metrics that do not depend on pods.
fn has_outside_metrics(autoscaler: &Tree) -> bool {
    autoscaler.list("spec.metrics").iter().any(|metric| matches!(metric.str("type"), "Object" | "External"))
}

/// Sets the conditions after the scale was written.
pub(crate) fn set_scaled_conditions(autoscaler: &Tree, status: &mut Tree, from: i64, to: i64, now: Timestamp) {
    let may_sleep = autoscaler.int("spec.minReplicas") == Some(0) && has_outside_metrics(autoscaler);
    let sleeps = from > 0 && to == 0 && may_sleep;
    let said = match sleeps {
        true => ("ScaledToZero", "the HPA controller scaled the workload to zero"),
        false => ("NotScaledToZero", "the HPA controller did not scale the workload to zero"),
    };
    set_condition(status, SCALED_TO_ZERO, sleeps, said, now);
}

/// The plan if the target's scale cannot be read.
pub(crate) fn without_scale(autoscaler: &Tree, why: &str, now: Timestamp) -> Plan {
    let mut status = initial_status(autoscaler);
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    set_condition(&mut status, "AbleToScale", false, ("FailedGetScale", &message), now);
    Plan { status, events: vec![Event::warning("FailedGetScale", why.to_string())], scale: None }
}

impl Inputs<'_> {
    fn current(&self) -> i64 {
        self.scale.int("spec.replicas").unwrap_or(0)
    }

    fn bounds(&self) -> Bounds {
        let spec = self.autoscaler.at("spec");
        let window = self.options.horizontal_pod_autoscaler_downscale_stabilization.as_secs();
        Bounds {
            min: spec.int("minReplicas").unwrap_or(1),
            max: spec.int("maxReplicas").unwrap_or(0),
            current: self.current(),
            down_window_seconds: i64::try_from(window).unwrap_or(i64::MAX),
        }
    }

    /// The conditions before any metric is read; a finished plan if no metric is needed.
    pub(super) fn begin(&self) -> (Tree, Option<Plan>) {
        let mut status = initial_status(self.autoscaler);
        let able = "the HPA controller was able to get the target's current scale";
        set_condition(&mut status, "AbleToScale", true, ("SucceededGetScale", able), self.now);
        let bounds = self.bounds();
        let decided = |size: i64, reason: &str| Some(self.finish(status.clone(), size, Some(reason), None));
        let plan = if bounds.current == 0 && scales_from_zero(self.autoscaler) {
            None
        } else if bounds.current == 0 {
            let disabled = "scaling is disabled since the replica count of the target is zero";
            let mut status = status.clone();
            set_condition(&mut status, "ScalingActive", false, ("ScalingDisabled", disabled), self.now);
            Some(self.finish(status, 0, None, None))
        } else if bounds.current > bounds.max {
            decided(bounds.max, "Current number of replicas above Spec.MaxReplicas")
        } else if bounds.current < bounds.min {
            decided(bounds.min, "Current number of replicas below Spec.MinReplicas")
        } else {
            None
        };
        (status, plan)
    }

    /// The plan if the target's pods cannot be selected.
    pub(crate) fn without_selector(&self, mut status: Tree, reason: (&str, &str), event: &str, said: &str) -> Plan {
        set_condition(&mut status, "ScalingActive", false, reason, self.now);
        let plan = self.failed(status, Vec::new(), said);
        Plan { events: [vec![Event::warning(event, said.to_string())], plan.events].concat(), ..plan }
    }

    /// Decides from the value of each metric, or the error that prevented reading it.
    pub(crate) fn by_metrics(
        &self,
        mut status: Tree,
        readings: &[Result<MetricValues, MetricError>],
        history: &mut History,
    ) -> Plan {
        let specs = self.autoscaler.list("spec.metrics");
        let mut best: Option<(i64, String)> = None;
        let mut current_metrics = Vec::new();
        let mut events = Vec::new();
        let mut first_failure: Option<(Event, String)> = None;
        let mut failures = 0;
        for (spec, reading) in specs.iter().zip(readings) {
            match reading.clone().and_then(|reading| self.propose(spec, reading)) {
                Ok((proposal, name)) => {
                    current_metrics.push(metric_status(spec, &proposal));
                    if best.as_ref().is_none_or(|(replicas, _)| proposal.replicas > *replicas) {
                        best = Some((proposal.replicas, name));
                    }
                }
                Err(why) => {
                    current_metrics.push(tree! { "type" => "" });
                    let (event, error) = failure(spec, &why.to_string());
                    events.push(event.clone());
                    failures += 1;
                    first_failure.get_or_insert((event, error));
                }
            }
        }
        let summary = first_failure.as_ref().map(|(_, error)| {
            format!("invalid metrics ({failures} invalid out of {}), first error is: {error}", specs.len())
        });
        let shrinks = best.as_ref().is_none_or(|(replicas, _)| *replicas < self.current());
        if let Some(((event, _), summary)) = first_failure.as_ref().zip(summary.as_ref()).filter(|_| shrinks) {
            let message = format!("the HPA was unable to compute the replica count: {}", event.message);
            set_condition(&mut status, "ScalingActive", false, (&event.reason, &message), self.now);
            let plan = self.failed(status, current_metrics, summary);
            return Plan { events: [events, plan.events].concat(), ..plan };
        }
        let (desired, name) = best.unwrap_or((self.current(), String::new()));
        let found = format!("the HPA was able to successfully calculate a replica count from {name}");
        set_condition(&mut status, "ScalingActive", true, ("ValidMetricFound", &found), self.now);
        let mut plan = self.scaled(status, desired, &name, current_metrics, history);
        plan.events.splice(0..0, events);
        plan
    }

    /// Applies the replica bounds and the scaling behavior to the desired count.
    fn scaled(&self, mut status: Tree, desired: i64, name: &str, metrics: Vec<Tree>, history: &mut History) -> Plan {
        let bounds = self.bounds();
        let reason = if desired > bounds.current {
            format!("{name} above target")
        } else {
            "All metrics below target".to_string()
        };
        let behavior = self.autoscaler.at("spec.behavior");
        let decision = history.normalize(desired, behavior, &bounds, self.now.seconds);
        set_condition(&mut status, "AbleToScale", true, decision.able, self.now);
        set_condition(&mut status, "ScalingLimited", decision.limited, decision.limit, self.now);
        let changes = decision.replicas != bounds.current;
        self.finish(status, decision.replicas, changes.then_some(&reason), Some(metrics))
    }

    /// Only the status changes.
    fn failed(&self, mut status: Tree, metrics: Vec<Tree>, why: &str) -> Plan {
        status.set("currentReplicas", self.current());
        status.set_default("desiredReplicas", 0);
        status.set("currentMetrics", metrics);
        let event = Event::warning("FailedComputeMetricsReplicas", why.to_string());
        Plan { status, events: vec![event], scale: None }
    }

    fn finish(&self, mut status: Tree, size: i64, reason: Option<&str>, metrics: Option<Vec<Tree>>) -> Plan {
        let desired = if reason.is_some() { size } else { self.current() };
        status.set("currentReplicas", self.current());
        status.set("desiredReplicas", desired);
        match metrics {
            Some(metrics) => status.set("currentMetrics", metrics),
            None => status.set("currentMetrics", Tree::Null),
        }
        Plan { status, events: Vec::new(), scale: reason.map(|reason| (size, reason.to_string())) }
    }

    /// The replica count of a metric, and its name for messages.
    fn propose(&self, spec: &Tree, reading: MetricValues) -> Result<(Proposal, String), MetricError> {
        let source = source(spec);
        let target = source.at("target");
        let measured = self.measured();
        let there = self.scale.int("status.replicas").unwrap_or(0);
        match (spec.str("type"), reading) {
            (ty @ ("Resource" | "ContainerResource"), MetricValues::Samples(samples)) => {
                let resource = source.str("name");
                let container = if ty == "Resource" { "" } else { source.str("container") };
                let wrap = |source| MetricError::Utilization { resource: resource.to_string(), source };
                if target.has("averageValue") {
                    let target = Target::Average { value: milli(target, "averageValue"), resource };
                    return Ok((measured.by_pods(samples, target).map_err(wrap)?, format!("{resource} resource")));
                }
                let percent = target.int("averageUtilization").ok_or(MetricError::NoTarget)?;
                let target = Target::Utilization { percent, resource, container };
                let proposal = measured.by_pods(samples, target).map_err(wrap)?;
                Ok((proposal, format!("{resource} resource utilization (percentage of request)")))
            }
            ("Pods", MetricValues::Samples(samples)) => {
                let target = Target::Average { value: milli(target, "averageValue"), resource: "" };
                Ok((measured.by_pods(samples, target)?, format!("pods metric {}", source.str("metric.name"))))
            }
            (ty, MetricValues::Value(value)) => {
                let name = source.str("metric.name");
                let selector = source.at("metric.selector");
                let external = || format!("external metric {name}({})", api_text(selector));
                if target.has("averageValue") {
                    return Ok((measured.by_share(value, milli(target, "averageValue"), there), external()));
                }
                let named = match ty {
                    "Object" => format!("{} metric {name}", source.str("describedObject.kind")),
                    _ => external(),
                };
                Ok((measured.by_value(value, milli(target, "value"))?, named))
            }
            (ty, _) => Err(MetricError::UnknownType(ty.to_string())),
        }
    }

    fn measured(&self) -> ReplicaCalculator<'_> {
        let behavior = self.autoscaler.at("spec.behavior");
        let own = |way: &str| {
            let text = behavior.at(way).at("tolerance").as_str()?;
            Quantity::parse(text).ok().map(|quantity| quantity.as_f64())
        };
        let common = self.options.horizontal_pod_autoscaler_tolerance;
        let seconds = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        ReplicaCalculator {
            pods: self.pods,
            replicas: self.current(),
            tolerance: Tolerance { down: own("scaleDown").unwrap_or(common), up: own("scaleUp").unwrap_or(common) },
            cpu_initialization_seconds: seconds(self.options.horizontal_pod_autoscaler_cpu_initialization_period),
            initial_readiness_seconds: seconds(self.options.horizontal_pod_autoscaler_initial_readiness_delay),
            now: self.now,
        }
    }
}

/// The source field of a metric spec for its type.
pub(super) fn source(spec: &Tree) -> &Tree {
    match spec.str("type") {
        "Resource" => spec.at("resource"),
        "ContainerResource" => spec.at("containerResource"),
        "Pods" => spec.at("pods"),
        "Object" => spec.at("object"),
        _ => spec.at("external"),
    }
}

fn milli(target: &Tree, field: &str) -> i64 {
    let text = target.at(field);
    let text = text.as_int().map_or_else(|| text.as_str().unwrap_or("").to_string(), |number| number.to_string());
    Quantity::parse(&text).map_or(0, |quantity| quantity.milli_value())
}

/// A selector as upstream prints it in names.
fn api_text(selector: &Tree) -> String {
    if selector.is_null() {
        return "nil".to_string();
    }
    let labels = selector.map("matchLabels").iter();
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{name}: {},", value.as_str().unwrap_or(""))).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}",
        labels.join("")
    )
}

/// The event for a metric that could not be read, and the same as part of the overall error.
fn failure(spec: &Tree, why: &str) -> (Event, String) {
    let source = source(spec);
    let (reason, whole) = match spec.str("type") {
        "Resource" => {
            ("FailedGetResourceMetric", format!("failed to get {} resource metric value: {why}", source.str("name")))
        }
        "ContainerResource" => (
            "FailedGetContainerResourceMetric",
            format!("failed to get {} container metric value: {why}", source.str("name")),
        ),
        "Pods" => ("FailedGetPodsMetric", format!("failed to get pods metric value: {why}")),
        "Object" => ("FailedGetObjectMetric", format!("failed to get object metric value: {why}")),
        "External" => {
            let name = source.str("metric.name");
            (
                "FailedGetExternalMetric",
                format!("failed to get {name} external metric value: failed to get {name} external metric: {why}"),
            )
        }
        _ => ("InvalidMetricSourceType", why.to_string()),
    };
    (Event::warning(reason, why.to_string()), whole)
}

/// The current value of a metric, for the status.
fn metric_status(spec: &Tree, proposal: &Proposal) -> Tree {
    let source = source(spec);
    let value = Quantity::milli(proposal.value, Format::DecimalSI).to_string();
    let averages = matches!(spec.str("type"), "Resource" | "ContainerResource" | "Pods")
        || source.at("target").has("averageValue");
    let mut current = tree! {};
    current.set(if averages { "averageValue" } else { "value" }, value);
    if let Some(utilization) = proposal.utilization {
        current.set("averageUtilization", utilization);
    }
    let mut inner = tree! { "current" => current };
    for field in ["name", "container", "metric", "describedObject"] {
        if source.has(field) {
            inner.set(field, source.at(field).clone());
        }
    }
    let place = match spec.str("type") {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    };
    let mut status = tree! { "type" => spec.str("type") };
    status.set(place, inner);
    status
}

#[cfg(test)]
mod tests;
