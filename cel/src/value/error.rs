//! Errors of an evaluation, and the tracker of its cost.

use std::cell::Cell;

use crate::limits::MAX_STEPS;

/// Why an evaluation has no value. `&&`, `||`, `all` and `exists` can absorb errors, except those that cancel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A function or operator does not accept arguments of these types.
    #[error("no such overload{}", detail(.0))]
    NoSuchOverload(Box<str>),
    /// A function accepts the type of an argument but not its value; upstream does not name the function.
    #[error("no such overload")]
    UnsupportedArgument,
    #[error("no such key: {0}")]
    NoSuchKey(Box<str>),
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// A variable has no value.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(Box<str>),
    /// A function failed, with its message.
    #[error("{0}")]
    Failed(Box<str>),
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    #[error("operation interrupted")]
    Interrupted,
}

fn detail(function: &str) -> String {
    if function.is_empty() { String::new() } else { format!(": {function}") }
}

impl EvalError {
    pub(crate) fn failed(message: impl Into<String>) -> EvalError {
        EvalError::Failed(message.into().into_boxed_str())
    }

    pub(crate) fn overload() -> EvalError {
        EvalError::NoSuchOverload("".into())
    }

    /// Whether the whole evaluation ends, whatever the expression does with errors.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, EvalError::CostLimitExceeded | EvalError::Interrupted)
    }
}

/// An interruption is looked for after as many steps.
const CHECK_STEPS: u64 = 1 << 14;

/// Counts what an evaluation costs.
pub(crate) struct CostTracker<'m> {
    cost: Cell<u64>,
    limit: u64,
    max_steps: u64,
    steps: Cell<u64>,
    checked: Cell<u64>,
    interrupt: Option<&'m dyn Fn() -> bool>,
}

impl<'m> CostTracker<'m> {
    pub(crate) fn new(limit: u64, max_steps: u64, interrupt: Option<&'m dyn Fn() -> bool>) -> CostTracker<'m> {
        CostTracker { cost: Cell::new(0), limit, max_steps, steps: Cell::new(0), checked: Cell::new(0), interrupt }
    }

    /// For parts of an expression that are evaluated when it is compiled.
    pub(crate) fn without_cost_limit() -> CostTracker<'m> {
        CostTracker::new(u64::MAX, MAX_STEPS, None)
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost.get()
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(crate) fn charge(&self, cost: u64) -> Result<(), EvalError> {
        let total = self.cost.get().saturating_add(cost);
        self.cost.set(total);
        if total > self.limit { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    /// Takes back what was charged.
    pub(crate) fn refund(&self, cost: u64) {
        self.cost.set(self.cost.get().saturating_sub(cost));
    }

    /// Counts work that has no cost of its own.
    pub(crate) fn step(&self, steps: usize) -> Result<(), EvalError> {
        let total = self.steps.get().saturating_add(steps as u64);
        self.steps.set(total);
        if total > self.max_steps {
            return Err(EvalError::Interrupted);
        }
        if total - self.checked.get() >= CHECK_STEPS {
            self.checked.set(total);
            return self.check_interrupt();
        }
        Ok(())
    }

    pub(crate) fn check_interrupt(&self) -> Result<(), EvalError> {
        if self.interrupt.is_some_and(|interrupt| interrupt()) { Err(EvalError::Interrupted) } else { Ok(()) }
    }
}
