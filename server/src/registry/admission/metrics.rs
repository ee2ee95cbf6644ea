//! The metrics of admission and of webhook calls, under upstream's names. A plugin's series are looked up once, since
//! every write passes all plugins.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::expressions::ConditionOutcome;
use super::matching::operation_name;
use super::policy::ErrorType;
use super::{Operation, Plugin, Setup};
use crate::metrics::registered;

/// The half of admission, as upstream calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionPhase {
    Admit,
    Validate,
}

impl AdmissionPhase {
    fn name(self) -> &'static str {
        match self {
            AdmissionPhase::Admit => "admit",
            AdmissionPhase::Validate => "validate",
        }
    }

    /// Counters of validating webhooks use another label.
    fn of_webhooks(self) -> &'static str {
        match self {
            AdmissionPhase::Admit => "admit",
            AdmissionPhase::Validate => "validating",
        }
    }
}

/// The outcome of a webhook call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Refused(u16),
    /// The call failed; the second is true if the request continues without it.
    Failed(u16, bool),
    /// The patch of the webhook is invalid.
    Broken,
}

/// The effect of a validating policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enforcement {
    Allow,
    Deny,
    Warn,
    Audit,
}

impl Enforcement {
    fn name(self) -> &'static str {
        match self {
            Enforcement::Allow => "allow",
            Enforcement::Deny => "deny",
            Enforcement::Warn => "warn",
            Enforcement::Audit => "audit",
        }
    }
}

/// An owner of match conditions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConditionOwner<'a> {
    Webhook { name: &'a str, half: AdmissionPhase },
    Policy(&'a str),
}

impl<'a> ConditionOwner<'a> {
    /// The name, the kind and the type; that of all policies is `validate` upstream.
    fn labels(self, operation: Operation) -> [&'a str; 4] {
        let (name, kind, half) = match self {
            ConditionOwner::Webhook { name, half } => (name, "webhook", half),
            ConditionOwner::Policy(name) => (name, "policy", AdmissionPhase::Validate),
        };
        [name, kind, half.name(), operation_name(operation)]
    }
}

const CONDITION_LABELS: &[&str] = &["name", "kind", "type", "operation"];
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const POLICY_BUCKETS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const PLUGIN_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

pub(crate) struct AdmissionMetrics {
    step: HistogramVec,
    controller: HistogramVec,
    webhook: HistogramVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
    requests: IntCounterVec,
    condition_errors: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_evaluation: HistogramVec,
    validating_checks: (IntCounterVec, HistogramVec),
    mutating_checks: (IntCounterVec, HistogramVec),
    steps: Series,
    /// The series in the order of the enabled plugins.
    controllers: Vec<Series>,
}

/// One histogram for each half, operation and verdict; most of them are never needed.
#[derive(Default)]
struct Series([OnceLock<Histogram>; 16]);

impl Series {
    fn get(
        &self,
        half: AdmissionPhase,
        operation: Operation,
        rejected: bool,
        make: impl FnOnce() -> Histogram,
    ) -> &Histogram {
        let at = (half as usize * 4 + operation as usize) * 2 + usize::from(rejected);
        self.0[at].get_or_init(make)
    }
}

impl AdmissionMetrics {
    pub(crate) fn new(registry: &Registry, setup: &Setup) -> AdmissionMetrics {
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let options = HistogramOpts::new(format!("apiserver_admission_{name}"), help).buckets(buckets.to_vec());
            registered(registry, HistogramVec::new(options, labels))
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(format!("apiserver_admission_{name}"), help), labels))
        };
        let named = &["name", "type", "operation", "rejected"];
        let [validating_checks, mutating_checks] = check_metrics(registry);
        AdmissionMetrics {
            step: histogram(
                "step_admission_duration_seconds",
                "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
                PLUGIN_BUCKETS,
                &named[1..],
            ),
            controller: histogram(
                "controller_admission_duration_seconds",
                "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                PLUGIN_BUCKETS,
                named,
            ),
            webhook: histogram(
                "webhook_admission_duration_seconds",
                "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                WEBHOOK_BUCKETS,
                named,
            ),
            rejections: counter(
                "webhook_rejection_count",
                "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            ),
            fail_open: counter(
                "webhook_fail_open_count",
                "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
                &["name", "type"],
            ),
            requests: counter(
                "webhook_request_total",
                "Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "code", "rejected"],
            ),
            condition_errors: counter(
                "match_condition_evaluation_errors_total",
                "Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                CONDITION_LABELS,
            ),
            condition_exclusions: counter(
                "match_condition_exclusions_total",
                "Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                CONDITION_LABELS,
            ),
            condition_evaluation: histogram(
                "match_condition_evaluation_seconds",
                "Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
                CONDITION_BUCKETS,
                CONDITION_LABELS,
            ),
            validating_checks,
            mutating_checks,
            steps: Series::default(),
            controllers: setup.plugins().map(|_| Series::default()).collect(),
        }
    }

    /// Finds a plugin by its index among the enabled ones.
    pub(crate) fn plugin(
        &self,
        (at, plugin): (usize, &Plugin),
        half: AdmissionPhase,
        operation: Operation,
        rejected: bool,
        took: Duration,
    ) {
        let Some(series) = self.controllers.get(at) else { return };
        let labels = [plugin.name, half.name(), operation_name(operation), bool_name(rejected)];
        let make = || self.controller.with_label_values(&labels);
        series.get(half, operation, rejected, make).observe(took.as_secs_f64());
    }

    pub(crate) fn half(&self, half: AdmissionPhase, operation: Operation, rejected: bool, took: Duration) {
        let labels = [half.name(), operation_name(operation), bool_name(rejected)];
        let make = || self.step.with_label_values(&labels);
        self.steps.get(half, operation, rejected, make).observe(took.as_secs_f64());
    }

    /// An evaluation of match conditions.
    pub(crate) fn conditions(&self, owner: ConditionOwner<'_>, operation: Operation, outcome: &ConditionOutcome) {
        let labels = owner.labels(operation);
        self.condition_evaluation.with_label_values(&labels).observe(outcome.took.as_secs_f64());
        if outcome.failures > 0 {
            self.condition_errors.with_label_values(&labels).inc_by(outcome.failures as u64);
        }
    }

    /// A webhook that is not called because of its match conditions.
    pub(crate) fn exclusion(&self, owner: ConditionOwner<'_>, operation: Operation) {
        self.condition_exclusions.with_label_values(&owner.labels(operation)).inc();
    }

    /// An expression of a validating policy that did not simply succeed.
    pub(crate) fn validating_policy(
        &self,
        (policy, binding): (&str, &str),
        error: ErrorType,
        enforcement: Enforcement,
        took: Duration,
    ) {
        let labels = [policy, binding, error.name(), enforcement.name()];
        self.validating_checks.0.with_label_values(&labels).inc();
        self.validating_checks.1.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// A mutation of a mutating policy.
    pub(crate) fn mutating_policy(&self, (policy, binding): (&str, &str), error: ErrorType, took: Duration) {
        let labels = [policy, binding, error.name()];
        self.mutating_checks.0.with_label_values(&labels).inc();
        self.mutating_checks.1.with_label_values(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn webhook(
        &self,
        name: &str,
        half: AdmissionPhase,
        operation: Operation,
        outcome: Outcome,
        took: Duration,
    ) {
        let (code, error) = match outcome {
            Outcome::Allowed => (200, None),
            Outcome::Refused(code) => (code, Some("no_error")),
            Outcome::Failed(code, true) => (code, None),
            Outcome::Failed(code, false) => (code, Some("calling_webhook_error")),
            Outcome::Broken => (0, Some("apiserver_internal_error")),
        };
        // A webhook must not create a series for each code that it returns.
        let code = code.min(600).to_string();
        let (kind, operation) = (half.of_webhooks(), operation_name(operation));
        if let Some(error) = error {
            self.rejections.with_label_values(&[name, kind, operation, error, &code]).inc();
        }
        if matches!(outcome, Outcome::Failed(_, true)) {
            self.fail_open.with_label_values(&[name, kind]).inc();
        }
        let rejected = bool_name(error.is_some());
        self.requests.with_label_values(&[name, kind, operation, &code, rejected]).inc();
        self.webhook.with_label_values(&[name, kind, operation, rejected]).observe(took.as_secs_f64());
    }
}

/// The metrics of ValidatingAdmissionPolicies, and of MutatingAdmissionPolicies.
fn check_metrics(registry: &Registry) -> [(IntCounterVec, HistogramVec); 2] {
    let validating = policy_metrics(
        registry,
        "validating",
        [
            "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
            "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
        ],
        &["policy", "policy_binding", "error_type", "enforcement_action"],
    );
    let mutating = policy_metrics(
        registry,
        "mutating",
        [
            "Mutation admission policy check total, labeled by policy and further identified by binding.",
            "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
        ],
        &["policy", "policy_binding", "error_type"],
    );
    [validating, mutating]
}

fn policy_metrics(
    registry: &Registry,
    kind: &str,
    [total, duration]: [&str; 2],
    labels: &[&str],
) -> (IntCounterVec, HistogramVec) {
    let name = |metric: &str| format!("apiserver_{kind}_admission_policy_{metric}");
    let checks = IntCounterVec::new(Opts::new(name("check_total"), total), labels);
    let options = HistogramOpts::new(name("check_duration_seconds"), duration).buckets(POLICY_BUCKETS.to_vec());
    (registered(registry, checks), registered(registry, HistogramVec::new(options, labels)))
}

fn bool_name(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_call_has_its_series() {
        let registry = Registry::new();
        let setup = Setup::default();
        let metrics = AdmissionMetrics::new(&registry, &setup);
        let ends = [
            ("a", Outcome::Allowed),
            ("b", Outcome::Refused(418)),
            ("c", Outcome::Failed(503, false)),
            ("d", Outcome::Failed(503, true)),
            ("e", Outcome::Broken),
            ("f", Outcome::Refused(6000)),
        ];
        for (name, outcome) in ends {
            metrics.webhook(name, AdmissionPhase::Validate, Operation::Create, outcome, Duration::ZERO);
        }
        let first = setup.plugins().next().expect("a plugin");
        metrics.plugin((0, first), AdmissionPhase::Admit, Operation::Connect, true, Duration::ZERO);
        metrics.half(AdmissionPhase::Validate, Operation::Delete, false, Duration::ZERO);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let has = |line: String| assert!(text.contains(&line), "{line} is not in\n{text}");
        let rejected = |name: &str, error: &str, code: &str| {
            has(format!(
                "webhook_rejection_count{{error_type=\"{error}\",name=\"{name}\",operation=\"CREATE\",rejection_code=\"{code}\",type=\"validating\"}} 1"
            ));
        };
        rejected("b", "no_error", "418");
        rejected("c", "calling_webhook_error", "503");
        rejected("e", "apiserver_internal_error", "0");
        rejected("f", "no_error", "600");
        assert!(!text.contains("webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"d\""));
        has("webhook_fail_open_count{name=\"d\",type=\"validating\"} 1".to_string());
        has("webhook_request_total{code=\"200\",name=\"a\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 1".to_string());
        has(format!(
            "controller_admission_duration_seconds_count{{name=\"{}\",operation=\"CONNECT\",rejected=\"true\",type=\"admit\"}} 1",
            first.name
        ));
        has("step_admission_duration_seconds_count{operation=\"DELETE\",rejected=\"false\",type=\"validate\"} 1"
            .to_string());
    }

    #[test]
    fn match_conditions_are_counted_by_their_owner() {
        let registry = Registry::new();
        let metrics = AdmissionMetrics::new(&registry, &Setup::default());
        let outcome = |failures| ConditionOutcome { result: Ok(true), failures, took: Duration::ZERO };
        let webhook = ConditionOwner::Webhook { name: "w", half: AdmissionPhase::Admit };
        metrics.conditions(webhook, Operation::Create, &outcome(2));
        metrics.exclusion(webhook, Operation::Create);
        metrics.conditions(ConditionOwner::Policy("p"), Operation::Update, &outcome(0));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let has = |line: &str| {
            assert!(text.contains(&format!("apiserver_admission_match_condition_{line}\n")), "{line}: {text}")
        };
        let labels = "{kind=\"webhook\",name=\"w\",operation=\"CREATE\",type=\"admit\"}";
        has(&format!("evaluation_errors_total{labels} 2"));
        has(&format!("exclusions_total{labels} 1"));
        has(&format!("evaluation_seconds_count{labels} 1"));
        has("evaluation_seconds_count{kind=\"policy\",name=\"p\",operation=\"UPDATE\",type=\"validate\"} 1");
        assert!(!text.contains("errors_total{kind=\"policy\""), "{text}");
    }
}
