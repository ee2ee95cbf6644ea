//! Keeps the status of disruption budgets true.

mod plan;
