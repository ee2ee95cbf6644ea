//! The limits of expressions, which the callers apply; upstream's, except for the steps.

/// The maximum cost of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The maximum cost of all rules of one custom resource in one request.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;
/// The maximum cost of the match conditions of one webhook or policy in one request.
pub const RUNTIME_COST_BUDGET_MATCH_CONDITIONS: u64 = 2_500_000;
/// The maximum estimated cost of one rule, with the number of its evaluations.
pub const STATIC_ESTIMATED_COST_LIMIT: u64 = 10_000_000;
/// The maximum estimated cost of all rules of one custom resource definition.
pub const STATIC_ESTIMATED_CRD_COST_LIMIT: u64 = 100_000_000;
/// The maximum number of elementary steps of one evaluation. Some functions cost less than they do, such as comparisons
/// of nested lists, and loops over lists that they compute; the steps bound the time where the cost does not.
pub const MAX_STEPS: u64 = 20_000_000;
/// A loop checks whether it is interrupted after as many iterations.
pub const CHECK_FREQUENCY: u64 = 100;
/// The maximum size of a request body, from which sizes of unbounded values are estimated.
pub const MAX_REQUEST_SIZE: i64 = 3 * 1024 * 1024;
/// The maximum length of the value of an audit annotation in bytes.
pub const MAX_EVALUATED_MESSAGE_LENGTH: usize = 5 * 1024;
