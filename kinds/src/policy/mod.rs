//! The kinds of the `policy` group, one file per kind.

pub(crate) mod pod_disruption_budget;
