//! The control groups of pods: one a class of service, below it one a pod.

use api::Tree;

use crate::config::{CgroupDriver, Config};
use crate::make::resources::{Class, class};
use crate::pod;

/// The control group that a pod's containers are in, as the runtime is told.
pub fn pod_parent(config: &Config, pod: &Tree) -> String {
    let uid = match pod::annotation(pod, pod::HASH) {
        "" => pod::uid(pod),
        hash => hash,
    };
    let class = match class(pod) {
        Class::Guaranteed => None,
        Class::Burstable => Some("burstable"),
        Class::BestEffort => Some("besteffort"),
    };
    match config.cgroup_driver {
        CgroupDriver::Cgroupfs => {
            let root = config.cgroup_root.trim_end_matches('/');
            let class = class.map_or(String::new(), |class| format!("/{class}"));
            format!("{root}/kubepods{class}/pod{uid}")
        }
        CgroupDriver::Systemd => {
            let class = class.map_or(String::new(), |class| format!("-{class}"));
            format!("kubepods{class}-pod{}.slice", uid.replace('-', "_"))
        }
    }
}
