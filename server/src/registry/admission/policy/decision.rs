//! The decision of a validating policy about a request, as a pure function of the input of its expressions.

use std::time::Duration;

use cel::Value;
use cel::limits::{MAX_EVALUATED_MESSAGE_LENGTH, RUNTIME_COST_BUDGET};

use super::compiled::Policy;
use super::validating::{Annotation, Validating, Validation};
use crate::registry::admission::expressions::{
    ConditionError, ConditionOutcome, EvaluationError, Input, OutOfBudget, Session, evaluate_conditions,
};

/// The error type of an evaluation, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorType {
    None,
    Compile,
    Invalid,
    Budget,
}

impl ErrorType {
    /// The label of the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ErrorType::None => "no_error",
            ErrorType::Compile => "compile_error",
            ErrorType::Invalid => "invalid_error",
            ErrorType::Budget => "out_of_budget",
        }
    }

    fn of(error: &EvaluationError) -> ErrorType {
        match error {
            EvaluationError::Compile(_) => ErrorType::Compile,
            EvaluationError::Failed { .. } => ErrorType::Invalid,
        }
    }
}

/// The verdict about one validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub is_denied: bool,
    /// A failed validation counts as invalid in the metrics too.
    pub error: ErrorType,
    pub message: String,
    /// Empty unless the validation itself failed.
    pub reason: String,
    pub took: Duration,
}

/// An audit annotation that has a value, or could not be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnnotationOutcome {
    Publish { key: String, value: String },
    Error { message: String, error: ErrorType, took: Duration },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub decisions: Vec<Decision>,
    pub annotations: Vec<AnnotationOutcome>,
}

/// The result of an expression, and its duration.
type TimedResult<'a> = (Result<Value<'a>, EvaluationError>, Duration);

/// Decides about a request. `conditions` is the input of the match conditions; their outcome is returned with the
/// decision, if the policy has any.
pub(super) fn decide(
    policy: &Policy<Validating>,
    conditions: Input<'_>,
    input: Input<'_>,
) -> (Outcome, Option<ConditionOutcome>) {
    if policy.conditions.is_empty() {
        return (validate(policy, input), None);
    }
    let session = Session::new(conditions, &policy.variables);
    let met = evaluate_conditions(&policy.conditions, &session);
    let outcome = match &met.result {
        Ok(true) => validate(policy, input),
        Ok(false) => Outcome::default(),
        Err(_) if policy.fails_open => Outcome::default(),
        Err(error) => policy.fail(error.to_string(), condition_error_type(error)),
    };
    (outcome, Some(met))
}

fn validate(policy: &Policy<Validating>, input: Input<'_>) -> Outcome {
    match evaluate_all(policy, input) {
        Ok(outcome) => outcome,
        Err(error) => policy.fail(error.to_string(), ErrorType::Budget),
    }
}

fn condition_error_type(error: &ConditionError) -> ErrorType {
    match error {
        ConditionError::Budget(_) => ErrorType::Budget,
        ConditionError::Failed(errors) => errors.first().map_or(ErrorType::Invalid, ErrorType::of),
    }
}

impl Policy<Validating> {
    /// One error for the whole policy.
    fn fail(&self, message: String, error: ErrorType) -> Outcome {
        Outcome { decisions: vec![self.error(message, error, Duration::ZERO)], annotations: Vec::new() }
    }

    /// Turns an error into a decision, as the failure policy requires.
    fn error(&self, message: String, error: ErrorType, took: Duration) -> Decision {
        Decision { is_denied: !self.fails_open, error, message, reason: String::new(), took }
    }
}

fn evaluate_all(policy: &Policy<Validating>, input: Input<'_>) -> Result<Outcome, OutOfBudget> {
    let evaluator = &policy.evaluator;
    let mut budget = RUNTIME_COST_BUDGET;
    let session = Session::new(input, &policy.variables);
    let mut results = Vec::with_capacity(evaluator.validations.len());
    for validation in &evaluator.validations {
        let result = session.evaluate(&validation.expression, &mut budget)?;
        results.push((result, session.elapsed()));
    }
    // Neither messages nor annotations depend on permissions.
    let input = Input { authorizer: None, ..input };
    let messages = evaluate_messages(policy, input, budget);
    let mut decisions = Vec::with_capacity(results.len());
    for (index, (validation, result)) in evaluator.validations.iter().zip(results).enumerate() {
        let message = messages.as_ref().map(|messages| messages.get(index).and_then(Option::as_deref));
        decisions.push(decide_one(policy, validation, result, message));
    }
    Ok(Outcome { decisions, annotations: evaluate_annotations(policy, input)? })
}

/// The messages that can be used; all are evaluated, because all count against the budget.
fn evaluate_messages(
    policy: &Policy<Validating>,
    input: Input<'_>,
    mut budget: u64,
) -> Result<Vec<Option<String>>, OutOfBudget> {
    let session = Session::new(input, &policy.variables);
    let evaluate = |validation: &Validation| {
        let Some(expression) = &validation.message_expression else { return Ok(None) };
        let value = session.evaluate(expression, &mut budget)?;
        Ok(value.ok().and_then(|value| usable_message(value.as_str()?)))
    };
    policy.evaluator.validations.iter().map(evaluate).collect()
}

fn usable_message(text: &str) -> Option<String> {
    let text = text.trim();
    let is_usable = !text.is_empty() && text.len() <= MAX_EVALUATED_MESSAGE_LENGTH && !text.contains('\n');
    is_usable.then(|| text.to_string())
}

fn decide_one(
    policy: &Policy<Validating>,
    validation: &Validation,
    (result, took): TimedResult<'_>,
    message: Result<Option<&str>, &OutOfBudget>,
) -> Decision {
    let value = match (result, message) {
        (Err(error), _) => return policy.error(error.to_string(), ErrorType::of(&error), took),
        (Ok(_), Err(error)) => {
            let message = format!("failed messageExpression: {error}");
            return policy.error(message, ErrorType::Invalid, took);
        }
        (Ok(value), Ok(message)) => (value, message),
    };
    match value {
        (Value::Bool(true), _) => {
            Decision { is_denied: false, error: ErrorType::None, message: String::new(), reason: String::new(), took }
        }
        (_, message) => Decision {
            is_denied: true,
            error: ErrorType::Invalid,
            message: failure_message(validation, message),
            reason: validation.reason.clone(),
            took,
        },
    }
}

/// The message of the message expression, else the fixed message, else the expression itself.
fn failure_message(validation: &Validation, evaluated: Option<&str>) -> String {
    match (evaluated, validation.message.trim()) {
        (Some(message), _) => message.to_string(),
        (None, "") => format!("failed expression: {}", validation.expression.text.trim()),
        (None, message) => message.to_string(),
    }
}

fn evaluate_annotations(policy: &Policy<Validating>, input: Input<'_>) -> Result<Vec<AnnotationOutcome>, OutOfBudget> {
    let session = Session::new(input, &policy.variables);
    let mut budget = RUNTIME_COST_BUDGET;
    let mut outcomes = Vec::new();
    for annotation in &policy.evaluator.annotations {
        let result = session.evaluate(&annotation.expression, &mut budget)?;
        outcomes.extend(annotate(policy, annotation, (result, session.elapsed())));
    }
    Ok(outcomes)
}

/// Null and empty values are not published.
fn annotate(
    policy: &Policy<Validating>,
    annotation: &Annotation,
    (result, took): TimedResult<'_>,
) -> Option<AnnotationOutcome> {
    match result {
        Err(_) if policy.fails_open => None,
        Err(error) => Some(AnnotationOutcome::Error { message: error.to_string(), error: ErrorType::of(&error), took }),
        Ok(Value::Null) => None,
        Ok(Value::String(text)) => {
            let value = text.trim();
            (!value.is_empty())
                .then(|| AnnotationOutcome::Publish { key: annotation.key.clone(), value: value.to_string() })
        }
        Ok(other) => {
            let message = format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.expression.text,
                other.type_of().name()
            );
            Some(AnnotationOutcome::Error { message, error: ErrorType::Invalid, took })
        }
    }
}
