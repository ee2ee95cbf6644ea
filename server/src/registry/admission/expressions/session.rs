//! One evaluation of the expressions of a policy or webhook for one request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use api::Tree;
use cel::limits::PER_CALL_LIMIT;
use cel::{Activation, Authorizer, Budget, EvalError, Evaluation, Program, ResourceRequest, Value};
use tokio::time::Instant;

use super::{EvaluationError, Expression, OutOfBudget, Variable};
use crate::common::deadline::Deadline;
use crate::registry::admission::Attributes;

/// The values of the variables. A value that the request does not have is null.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub object: &'a Tree,
    pub old: &'a Tree,
    pub request: &'a Tree,
    pub namespace: &'a Tree,
    pub params: &'a Tree,
    /// Ends the evaluation.
    pub deadline: Deadline,
    /// Messages and audit annotations cannot use it.
    pub authorizer: Option<(&'a dyn Authorizer, &'a ResourceRequest)>,
}

/// The resource of a request, for `authorizer.requestResource`.
pub(crate) fn request_resource(attributes: &Attributes<'_>) -> ResourceRequest {
    ResourceRequest {
        group: attributes.resource.kind.group().to_string(),
        resource: attributes.resource.kind.plural().to_string(),
        subresource: attributes.subresource.to_string(),
        namespace: attributes.namespace.to_string(),
        name: attributes.name.to_string(),
        ..ResourceRequest::default()
    }
}

/// The values and the evaluated variables. A variable is evaluated at most once.
pub(crate) struct Session<'a> {
    input: Input<'a>,
    variables: &'a [Variable],
    known: RefCell<HashMap<&'a str, Result<Value<'a>, EvalError>>>,
    /// The cost of variables since the last expression.
    cost: Cell<u64>,
    /// The duration of the last expression.
    elapsed: Cell<Duration>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(input: Input<'a>, variables: &'a [Variable]) -> Session<'a> {
        Session { input, variables, known: RefCell::default(), cost: Cell::default(), elapsed: Cell::default() }
    }

    /// Evaluates an expression and subtracts its cost, with the cost of the variables that it reads, from a budget.
    pub(crate) fn evaluate(
        &self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Value<'a>, EvaluationError>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(EvaluationError::Compile(error.clone()))),
        };
        let began = Instant::now();
        let evaluation = self.run(program);
        self.elapsed.set(began.elapsed());
        let cost = self.cost.take().saturating_add(evaluation.cost);
        *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        let failed = |source| EvaluationError::Failed { text: expression.text.clone(), source };
        Ok(evaluation.result.map_err(failed))
    }

    fn run(&self, program: &Program) -> Evaluation<'a> {
        let interrupt = || self.input.deadline.is_over();
        program.evaluate(self, Budget::new(PER_CALL_LIMIT).interrupt(&interrupt))
    }

    /// The duration of the last expression.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed.get()
    }

    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let variable = self.variables.iter().rev().find(|variable| variable.name == name)?;
        if let Some(known) = self.known.borrow().get(name) {
            return Some(known.clone());
        }
        // The value for a variable that reads itself.
        let cycle = failed(format!("composited variable {name:?} fails to evaluate: it depends on itself"));
        self.known.borrow_mut().insert(&variable.name, Err(cycle));
        let value = self.evaluate_variable(variable);
        self.known.borrow_mut().insert(&variable.name, value.clone());
        Some(value)
    }

    fn evaluate_variable(&self, variable: &'a Variable) -> Result<Value<'a>, EvalError> {
        let name = &variable.name;
        let program = variable
            .program
            .as_ref()
            .map_err(|error| failed(format!("composited variable {name:?} fails to compile: {error}")))?;
        let evaluation = self.run(program);
        self.cost.set(self.cost.get().saturating_add(evaluation.cost));
        evaluation.result.map_err(|error| failed(format!("composited variable {name:?} fails to evaluate: {error}")))
    }
}

fn failed(message: String) -> EvalError {
    EvalError::Failed(message.into())
}

impl<'a> Activation<'a> for Session<'a> {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let input = &self.input;
        let tree = match name {
            "object" => input.object,
            "oldObject" => input.old,
            "request" => input.request,
            "namespaceObject" => input.namespace,
            "params" => input.params,
            "authorizer" => return input.authorizer.map(|(authorizer, _)| Ok(Value::authorizer(authorizer))),
            "authorizer.requestResource" => {
                let (authorizer, resource) = input.authorizer?;
                return Some(Ok(Value::resource_check(authorizer, resource.clone())));
            }
            _ => return None,
        };
        Some(Value::read(tree, None))
    }

    fn resolve_field(&self, variable: &str, field: &str) -> Option<Result<Value<'a>, EvalError>> {
        if variable == "variables" { self.variable(field) } else { None }
    }
}
