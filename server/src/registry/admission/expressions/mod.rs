//! The CEL expressions of webhooks and policies: their variables, their evaluation, and its cost.

mod checks;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use cel::limits::RUNTIME_COST_BUDGET_MATCH_CONDITIONS;
use cel::{EvalError, Program, Value};
use kinds::{ExpressionError, ExpressionKind, PolicyCompiler, compile_match_condition};

use super::join_errors;
pub(crate) use checks::Checks;
pub(crate) use session::{Input, Session, request_resource};

/// An expression, compiled.
pub(crate) struct Expression {
    pub text: String,
    pub program: Result<Arc<Program>, ExpressionError>,
}

impl Expression {
    pub(crate) fn new(compiler: &PolicyCompiler, kind: ExpressionKind, text: &str) -> Expression {
        Expression { program: compiler.compile(kind, text), text: text.to_string() }
    }
}

/// A variable of a policy, which is evaluated when it is first read.
pub(crate) struct Variable {
    pub name: String,
    pub program: Result<Arc<Program>, ExpressionError>,
}

/// The match conditions of a webhook.
pub(crate) fn compile_conditions(webhook: &Tree) -> Vec<Expression> {
    let condition = |condition: &Tree| {
        let text = condition.str("expression").trim().to_string();
        Expression { program: compile_match_condition(&text), text }
    };
    webhook.list("matchConditions").iter().map(condition).collect()
}

/// An expression without a value. The texts are upstream's.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum EvaluationError {
    #[error("compilation error: {0}")]
    Compile(ExpressionError),
    #[error("expression '{text}' resulted in error: {source}")]
    Failed { text: String, source: EvalError },
}

/// The expressions exceed their cost budget.
#[derive(Debug, Clone, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub(crate) struct OutOfBudget;

/// Match conditions that cannot be decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConditionError {
    #[error(transparent)]
    Budget(#[from] OutOfBudget),
    #[error("{}", join_errors(.0.iter().map(ToString::to_string).collect()))]
    Failed(Vec<EvaluationError>),
}

/// The result of match conditions, with the numbers for the metrics.
pub(crate) struct ConditionOutcome {
    pub result: Result<bool, ConditionError>,
    /// The number of conditions that failed before the first false one.
    pub failures: usize,
    pub took: Duration,
}

/// Evaluates match conditions: false if one condition is false, even if others fail.
pub(crate) fn evaluate_conditions(conditions: &[Expression], session: &Session<'_>) -> ConditionOutcome {
    let began = Instant::now();
    let mut failures = 0;
    let result = are_met(conditions, session, &mut failures);
    ConditionOutcome { result, failures, took: began.elapsed() }
}

fn are_met(conditions: &[Expression], session: &Session<'_>, failures: &mut usize) -> Result<bool, ConditionError> {
    let mut budget = RUNTIME_COST_BUDGET_MATCH_CONDITIONS;
    let results = conditions.iter().map(|condition| session.evaluate(condition, &mut budget));
    let mut errors = Vec::new();
    for result in results.collect::<Result<Vec<_>, _>>()? {
        match result {
            Ok(Value::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(error) => {
                *failures += 1;
                errors.push(error);
            }
        }
    }
    if errors.is_empty() { Ok(true) } else { Err(ConditionError::Failed(errors)) }
}
