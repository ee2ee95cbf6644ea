//! The total resources of a pod's containers: the sum of those that run together, or the maximum of an init container
//! if that is more.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use api::{Str, Tree};

pub(crate) type ResourceList = BTreeMap<Str, Quantity>;

pub(crate) fn requests(spec: &Tree) -> ResourceList {
    aggregate(spec, "resources.requests")
}

pub(crate) fn limits(spec: &Tree) -> ResourceList {
    aggregate(spec, "resources.limits")
}

/// Sidecars: init containers that keep running.
pub(crate) fn is_restartable(container: &Tree) -> bool {
    container.str("restartPolicy") == "Always"
}

/// Whether every container limits this resource.
pub(crate) fn all_containers_limit(spec: &Tree, name: &str) -> bool {
    let limits = |container: &Tree| container.map("resources.limits").contains(name);
    spec.list("containers").iter().all(limits)
        && spec.list("initContainers").iter().filter(|init| is_restartable(init)).all(limits)
}

fn aggregate(spec: &Tree, path: &str) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in spec.list("containers") {
        add(&mut sum, container, path);
    }
    let mut sidecars = ResourceList::new();
    let mut most = ResourceList::new();
    for init in spec.list("initContainers") {
        let mut together = sidecars.clone();
        add(&mut together, init, path);
        if is_restartable(init) {
            add(&mut sum, init, path);
            sidecars.clone_from(&together);
        }
        raise(&mut most, together);
    }
    raise(&mut sum, most);
    sum
}

fn add(sum: &mut ResourceList, container: &Tree, path: &str) {
    for (name, value) in container.map(path).iter() {
        let quantity = super::read(value);
        match sum.get_mut(name) {
            Some(entry) => *entry += &quantity,
            None => {
                sum.insert(Str::new(name), quantity);
            }
        }
    }
}

fn raise(list: &mut ResourceList, other: ResourceList) {
    for (name, quantity) in other {
        match list.get_mut(&name) {
            Some(entry) if *entry >= quantity => {}
            _ => {
                list.insert(name, quantity);
            }
        }
    }
}
