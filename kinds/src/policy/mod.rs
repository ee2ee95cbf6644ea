//! The kinds of the `policy` group, a file a kind.

pub mod pod_disruption_budget;
