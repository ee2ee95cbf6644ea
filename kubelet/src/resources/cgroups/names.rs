//! Names of cgroups: for the runtime, and in the hierarchies.

use api::Tree;

use crate::config::{CgroupDriver, Config};
use crate::model::pod;
use crate::model::resources::{Class, class};

/// The group of all pods.
const ALL: &str = "kubepods";
/// All classes that a pod may be in.
pub(crate) const CLASSES: [Class; 3] = [Class::Guaranteed, Class::Burstable, Class::BestEffort];

/// The cgroup parent of a pod's containers, in the form of CRI.
pub(crate) fn parent(config: &Config, pod: &Tree) -> String {
    if !config.cgroups_per_qos {
        return config.cgroup_root.clone();
    }
    name_for_driver(config, class(pod), Some(pod::uid(pod)))
}

/// The path of a pod's cgroup.
pub(crate) fn of_pod(config: &Config, class: Class, uid: &str) -> String {
    path(config, class, Some(uid))
}

/// The path of a class's cgroup; Guaranteed pods are directly in the cgroup of all pods.
pub(crate) fn of_class(config: &Config, class: Class) -> String {
    path(config, class, None)
}

/// The name of a slice of systemd's, or a path.
pub(crate) fn name_for_driver(config: &Config, class: Class, uid: Option<&str>) -> String {
    let class = match class {
        Class::Guaranteed => None,
        Class::Burstable => Some("burstable"),
        Class::BestEffort => Some("besteffort"),
    };
    let root = config.cgroup_root.split('/').filter(|part| !part.is_empty());
    let pod = uid.map(|uid| format!("pod{uid}"));
    let parts = root.chain([ALL]).chain(class).map(str::to_string).chain(pod);
    match config.cgroup_driver {
        CgroupDriver::Cgroupfs => parts.map(|part| format!("/{part}")).collect(),
        // Dashes are levels.
        CgroupDriver::Systemd => {
            let parts: Vec<String> = parts.map(|part| part.replace('-', "_")).collect();
            format!("{}.slice", parts.join("-"))
        }
    }
}

fn path(config: &Config, class: Class, uid: Option<&str>) -> String {
    cgroup::parent_path(&name_for_driver(config, class, uid))
}

/// The UID of the pod whose cgroup has this name.
pub(crate) fn pod_of(config: &Config, class: Class, name: &str) -> Option<String> {
    match config.cgroup_driver {
        CgroupDriver::Cgroupfs => name.strip_prefix("pod").map(str::to_string),
        CgroupDriver::Systemd => {
            let class = name_for_driver(config, class, None);
            let rest = name.strip_suffix(".slice")?.strip_prefix(class.strip_suffix(".slice")?)?;
            rest.strip_prefix("-pod").map(|uid| uid.replace('_', "-"))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn names_cgroups_for_both_drivers() {
        let pod = tree! { "metadata" => tree! { "uid" => "1-2" }, "status" => tree! { "qosClass" => "Burstable" } };
        let config =
            |root: &str, cgroup_driver| Config { cgroup_root: root.to_string(), cgroup_driver, ..Config::default() };
        let cases = [
            ("/", CgroupDriver::Cgroupfs, "/kubepods/burstable/pod1-2", "/kubepods/burstable/pod1-2"),
            ("/a/b", CgroupDriver::Cgroupfs, "/a/b/kubepods/burstable/pod1-2", "/a/b/kubepods/burstable/pod1-2"),
            (
                "/",
                CgroupDriver::Systemd,
                "kubepods-burstable-pod1_2.slice",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
            ),
        ];
        for (root, driver, expected, stands) in cases {
            let config = config(root, driver);
            assert_eq!(parent(&config, &pod), expected);
            assert_eq!(of_pod(&config, Class::Burstable, "1-2"), stands);
            let name = stands.rsplit('/').next().unwrap_or_default();
            assert_eq!(pod_of(&config, Class::Burstable, name).as_deref(), Some("1-2"));
        }
        let one = Config { cgroups_per_qos: false, ..config("/x", CgroupDriver::Cgroupfs) };
        assert_eq!(parent(&one, &pod), "/x");
    }
}
