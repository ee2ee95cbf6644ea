//! The limits of a cgroup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits of a cgroup; None means unlimited or unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub cpu_shares: Option<u64>,
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub cpuset_cpus: Option<String>,
    pub cpuset_mems: Option<String>,
    pub memory: Option<i64>,
    /// Memory and swap together.
    pub memory_swap: Option<i64>,
    pub pids: Option<i64>,
    pub hugepages: BTreeMap<String, u64>,
    pub unified: BTreeMap<String, String>,
}
