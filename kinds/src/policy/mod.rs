//! The kinds of the `policy` group, one file per kind.

pub mod pod_disruption_budget;
