//! Compiled expressions: their type, their estimated cost, and their evaluation.

mod eval;
mod node;
mod plan;

use std::sync::Arc;

use crate::check::Checked;
use crate::estimate::{self, CostEstimate, SizeEstimator};
use crate::library::TimeZones;
use crate::limits::{MAX_STEPS, PER_CALL_LIMIT};
use crate::types::Type;
use crate::value::{CostTracker, EvalError, Value};

use node::Node;

/// The values of an expression's variables.
pub trait Activation<'a> {
    /// The value of a variable; none if it has none.
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;

    /// The value of a field of a variable whose fields are computed when they are read, such as `variables.x` of
    /// policies; none if the variable has a value of its own.
    fn resolve_field(&self, _variable: &str, _field: &str) -> Option<Result<Value<'a>, EvalError>> {
        None
    }
}

/// Names with their values.
impl<'a> Activation<'a> for [(&str, Value<'a>)] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.iter().find(|(variable, _)| *variable == name).map(|(_, value)| Ok(value.clone()))
    }
}

impl<'a> Activation<'a> for Vec<(&str, Value<'a>)> {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self[..].resolve(name)
    }
}

impl<'a, const N: usize> Activation<'a> for [(&str, Value<'a>); N] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self[..].resolve(name)
    }
}

/// The limits of an evaluation: its cost, and where the cost does not bound the time, its elementary steps.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    limit: u64,
    steps: u64,
    interrupt: Option<&'b dyn Fn() -> bool>,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget::new(PER_CALL_LIMIT)
    }
}

impl<'b> Budget<'b> {
    /// A limit of the cost.
    pub fn new(limit: u64) -> Budget<'b> {
        Budget { limit, steps: MAX_STEPS, interrupt: None }
    }

    /// Lowers the limit of the steps, for evaluations that share one. An evaluation that exceeds it is interrupted.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Budget<'b> {
        self.steps = steps.min(MAX_STEPS);
        self
    }

    /// Checks now and then whether the evaluation should stop, such as after a deadline.
    #[must_use]
    pub fn interrupt(mut self, interrupt: &'b dyn Fn() -> bool) -> Budget<'b> {
        self.interrupt = Some(interrupt);
        self
    }
}

/// The result of an evaluation.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub result: Result<Value<'a>, EvalError>,
    /// The cost, also of a failed evaluation.
    pub cost: u64,
    /// The number of elementary steps, which bound the time.
    pub steps: u64,
}

/// A compiled expression. It is shared between threads, and each evaluation has its own state.
pub struct Program {
    checked: Checked,
    root: Result<Node, EvalError>,
    slots: usize,
    zones: Option<Arc<dyn TimeZones>>,
    output: Type,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Program {
    pub(crate) fn new(checked: Checked, zones: Option<Arc<dyn TimeZones>>) -> Program {
        let (root, slots) = match plan::plan(&checked) {
            Ok((root, slots)) => (Ok(root), slots),
            Err(error) => (Err(error), 0),
        };
        let output = checked.ast.root.map_or(Type::Error, |root| checked.type_of(root).clone());
        Program { checked, root, slots, zones, output }
    }

    /// The type of the value.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Why the expression cannot be evaluated although its types are right: a constant that cannot be converted, or a
    /// pattern that is no regular expression. Upstream calls that `program instantiation failed`.
    pub fn instantiation_error(&self) -> Option<&EvalError> {
        self.root.as_ref().err()
    }

    /// Whether the expression reads a variable.
    pub fn uses_variable(&self, name: &str) -> bool {
        self.checked.uses(name)
    }

    /// Whether the expression reads or tests a field of a variable by its name: `claims.email`, `claims.?email`.
    pub fn selects_field(&self, variable: &str, field: &str) -> bool {
        self.checked.ast.selects_field(variable, field)
    }

    /// The least and the most that an evaluation can cost, from the sizes that variables can have.
    pub fn estimate_cost(&self, sizes: &dyn SizeEstimator) -> CostEstimate {
        estimate::estimate(&self.checked, sizes)
    }

    /// Evaluates the expression.
    pub fn evaluate<'a>(&self, activation: &dyn Activation<'a>, budget: Budget<'_>) -> Evaluation<'a> {
        let tracker = CostTracker::new(budget.limit, budget.steps, budget.interrupt);
        let result = match &self.root {
            Ok(root) => eval::Evaluator::new(self, activation, &tracker).eval(root),
            Err(error) => Err(error.clone()),
        };
        Evaluation { result, cost: tracker.cost(), steps: tracker.steps() }
    }
}
