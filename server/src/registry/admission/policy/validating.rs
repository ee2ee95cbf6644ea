//! Validating policies at a request: which apply, and what their decisions lead to.

use std::collections::BTreeMap;

use api::Tree;
use api::status::{Cause, Details, Status};
use kinds::{ExpressionKind, PolicyCompiler};

use super::compiled::{Action, Binding, Evaluator, Hook, Policy};
use super::decision::{AnnotationOutcome, ErrorType, Outcome, decide};
use super::{View, params};
use crate::registry::admission::Attributes;
use crate::registry::admission::expressions::{Checks, Expression};
use crate::registry::admission::metrics::{ConditionOwner, Enforcement};

/// The fields of a validating policy.
pub(crate) struct Validating {
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Annotation>,
}

pub(super) struct Validation {
    pub expression: Expression,
    pub message_expression: Option<Expression>,
    pub message: String,
    pub reason: String,
}

pub(super) struct Annotation {
    pub key: String,
    pub expression: Expression,
}

impl Evaluator for Validating {
    const POLICIES: &'static str = "validatingadmissionpolicies";
    const BINDINGS: &'static str = "validatingadmissionpolicybindings";

    fn compile(spec: &Tree, compiler: &PolicyCompiler) -> Validating {
        let validation = |validation: &Tree| {
            let message = Some(validation.str("messageExpression")).filter(|text| !text.is_empty());
            let reason = validation.str("reason");
            Validation {
                expression: Expression::new(compiler, ExpressionKind::Validation, validation.str("expression")),
                message_expression: message.map(|text| Expression::new(compiler, ExpressionKind::Message, text)),
                message: validation.str("message").to_string(),
                reason: if reason.is_empty() { "Invalid".to_string() } else { reason.to_string() },
            }
        };
        let annotation = |annotation: &Tree| Annotation {
            key: annotation.str("key").to_string(),
            expression: Expression::new(compiler, ExpressionKind::AuditAnnotation, annotation.str("valueExpression")),
        };
        Validating {
            validations: spec.list("validations").iter().map(validation).collect(),
            annotations: spec.list("auditAnnotations").iter().map(annotation).collect(),
        }
    }
}

/// The longest value of an audit annotation in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// The failures that the audit event lists.
const MAX_FAILURES: usize = 50;

pub(super) async fn validate(
    attributes: &Attributes<'_>,
    hooks: &[Hook<Validating>],
    objects: (Option<&Tree>, Option<&Tree>),
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut report = Report { attributes, warnings, denial: None, failures: Vec::new() };
    let checks = Checks::new(attributes);
    for hook in hooks {
        let mut annotations = Annotations::default();
        evaluate_hook(hook, objects, &checks, &mut report, &mut annotations).await?;
        annotations.publish(attributes, &hook.policy.name);
    }
    report.finish()
}

/// Evaluates a policy for each of its bindings and their params.
async fn evaluate_hook(
    hook: &Hook<Validating>,
    (object, old): (Option<&Tree>, Option<&Tree>),
    checks: &Checks<'_>,
    report: &mut Report<'_>,
    annotations: &mut Annotations,
) -> Result<(), Status> {
    let (attributes, policy) = (report.attributes, &*hook.policy);
    let found = match policy.criteria.find(attributes, object, old) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        Err(error) => {
            report.misconfigured(policy, None, &error);
            return Ok(());
        }
    };
    let resource = match params::find_resource(attributes, policy) {
        Ok(resource) => resource,
        Err(error) => {
            report.misconfigured(policy, None, &error);
            return Ok(());
        }
    };
    let mut view = None;
    for binding in &hook.bindings {
        match binding.criteria.as_ref().map(|criteria| criteria.find(attributes, object, old)) {
            Some(Ok(None)) => continue,
            Some(Err(error)) => {
                report.misconfigured(policy, Some(binding), &error);
                continue;
            }
            None | Some(Ok(Some(_))) => {}
        }
        let params = match params::collect(attributes, resource.as_deref(), binding).await {
            Ok(params) => params,
            Err(error) => {
                report.misconfigured(policy, Some(binding), &error);
                continue;
            }
        };
        for param in &params {
            let view = match &view {
                Some(view) => view,
                None => view.insert(View::new(attributes, found.other.as_deref(), object, old)?),
            };
            let evaluate = || decide(policy, view.condition_input(param, checks), view.input(param, checks));
            let (outcome, met) = checks.evaluate(evaluate).await;
            if let Some(met) = met {
                let owner = ConditionOwner::Policy(&policy.name);
                attributes.registry.admitted.conditions(owner, attributes.operation, &met);
            }
            report.add(policy, binding, outcome, annotations);
        }
    }
    Ok(())
}

/// The consequences of all decisions about a request.
struct Report<'a> {
    attributes: &'a Attributes<'a>,
    warnings: &'a mut Vec<String>,
    /// The first denial is returned.
    denial: Option<Denial>,
    /// The failures for the audit event.
    failures: Vec<String>,
}

struct Denial {
    message: String,
    reason: String,
}

impl Report<'_> {
    /// A policy or binding that cannot be evaluated.
    fn misconfigured(&mut self, policy: &Policy<Validating>, binding: Option<&Binding>, error: &dyn std::error::Error) {
        if policy.fails_open {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.deny(policy, binding, &format!("failed to configure {what}: {error}"), "");
    }

    fn deny(&mut self, policy: &Policy<Validating>, binding: Option<&Binding>, why: &str, reason: &str) {
        let name = &policy.name;
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{name}'{with} denied request: {why}");
        self.denial.get_or_insert(Denial { message, reason: reason.to_string() });
    }

    fn add(&mut self, policy: &Policy<Validating>, binding: &Binding, outcome: Outcome, annotations: &mut Annotations) {
        let metrics = &self.attributes.registry.admitted;
        let observe = |enforcement, error, took| {
            metrics.validating_policy((&policy.name, &binding.name), error, enforcement, took);
        };
        for (index, decision) in outcome.decisions.iter().enumerate() {
            if !decision.is_denied {
                if decision.error != ErrorType::None {
                    observe(Enforcement::Allow, decision.error, decision.took);
                }
                continue;
            }
            for action in &binding.actions {
                let enforcement = match action {
                    Action::Deny => {
                        self.deny(policy, Some(binding), &decision.message, &decision.reason);
                        Enforcement::Deny
                    }
                    Action::Warn => {
                        let (policy, binding) = (&policy.name, &binding.name);
                        let message = &decision.message;
                        self.warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                        ));
                        Enforcement::Warn
                    }
                    Action::Audit => {
                        self.failures.push(describe_failure(policy, binding, index, &decision.message));
                        Enforcement::Audit
                    }
                };
                observe(enforcement, decision.error, decision.took);
            }
        }
        for annotation in outcome.annotations {
            match annotation {
                AnnotationOutcome::Publish { key, value } => annotations.add(key, value),
                AnnotationOutcome::Error { message, error, took } => {
                    self.deny(policy, Some(binding), &message, "");
                    observe(Enforcement::Deny, error, took);
                }
            }
        }
    }

    fn finish(self) -> Result<(), Status> {
        if !self.failures.is_empty() {
            let shown = &self.failures[..self.failures.len().min(MAX_FAILURES)];
            let key = "validation.policy.admission.k8s.io/validation_failure";
            self.attributes.annotate(key, format!("[{}]", shown.join(",")));
        }
        match self.denial {
            None => Ok(()),
            Some(denial) => Err(refuse(self.attributes, denial)),
        }
    }
}

/// The fields in upstream's order.
fn describe_failure(policy: &Policy<Validating>, binding: &Binding, index: usize, message: &str) -> String {
    let quote = |text: &str| String::from_utf8_lossy(&api::json::encode(&Tree::from(text), None)).into_owned();
    let actions: Vec<String> = binding.actions.iter().map(|action| quote(action.name())).collect();
    format!(
        r#"{{"message":{},"policy":{},"binding":{},"expressionIndex":{index},"validationActions":[{}]}}"#,
        quote(message),
        quote(&policy.name),
        quote(&binding.name),
        actions.join(",")
    )
}

fn refuse(attributes: &Attributes<'_>, denial: Denial) -> Status {
    let mut status = attributes.forbidden(&denial.message);
    let reason = if denial.reason.is_empty() { "Invalid".to_string() } else { denial.reason };
    status.code = match reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = reason.into();
    let cause = Cause { reason: String::new(), message: denial.message, field: String::new() };
    status.details.get_or_insert_with(Details::default).causes.push(cause);
    status
}

/// The audit annotations of a policy: different values of bindings and params are joined.
#[derive(Default)]
struct Annotations(BTreeMap<String, Vec<String>>);

impl Annotations {
    fn add(&mut self, key: String, mut value: String) {
        let mut end = value.len().min(MAX_ANNOTATION_BYTES);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }

    fn publish(self, attributes: &Attributes<'_>, policy: &str) {
        for (key, values) in self.0 {
            attributes.annotate(format!("{policy}/{key}"), values.join(", "));
        }
    }
}
