//! The total requests of a pod: main containers and sidecars together, init containers one after the other beside the
//! sidecars, pod-level requests, and the overhead of the runtime class.

use api::{Map, Tree};

use super::Resources;

/// What a container without a request is taken to need where pods are counted for a score.
pub(crate) const DEFAULT_MILLI_CPU: i64 = 100;
pub(crate) const DEFAULT_MEMORY: i64 = 200 << 20;

/// The requests of containers that declare none.
#[derive(Debug, Clone, Copy, Default)]
struct DefaultRequests {
    milli_cpu: Option<i64>,
    memory: Option<i64>,
}

/// Which side of what containers say is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Side {
    /// Of a container or a pod, and of their states.
    fn of(self, resources: &Tree) -> &Map {
        resources.map(match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        })
    }
}

/// The requests of a pod.
pub fn requests(pod: &Tree) -> Resources {
    total(pod, Side::Requests, DefaultRequests::default())
}

/// The limits of a pod; a resource without a limit is absent.
pub fn limits(pod: &Tree) -> Resources {
    total(pod, Side::Limits, DefaultRequests::default())
}

/// CPU and memory of a pod for scoring, with defaults for containers without requests.
pub(crate) fn nonzero(pod: &Tree, requests: &Resources) -> (i64, i64) {
    let whole = !pod.map("spec.resources.requests").is_empty();
    let defaults = DefaultRequests {
        milli_cpu: (!whole || requests.milli_cpu == 0).then_some(DEFAULT_MILLI_CPU),
        memory: (!whole || requests.memory == 0).then_some(DEFAULT_MEMORY),
    };
    let total = total(pod, Side::Requests, defaults);
    (total.milli_cpu, total.memory)
}

fn total(pod: &Tree, side: Side, defaults: DefaultRequests) -> Resources {
    let mut total = Resources::default();
    for container in pod.list("spec.containers") {
        total.add(&container_resources(pod, container, side, "status.containerStatuses", defaults));
    }
    let (mut sidecars, mut largest) = (Resources::default(), Resources::default());
    for container in pod.list("spec.initContainers") {
        let own = container_resources(pod, container, side, "status.initContainerStatuses", defaults);
        if container.str("restartPolicy") == "Always" {
            total.add(&own);
            sidecars.add(&own);
            largest.max_with(&sidecars);
        } else {
            let mut beside = own;
            beside.add(&sidecars);
            largest.max_with(&beside);
        }
    }
    total.max_with(&largest);
    // Pod-level requests replace the sum of the containers.
    let whole = side.of(pod.at("spec.resources"));
    let amounts = during_resize(pod, side, Resources::read(whole), pod.at("status"));
    for name in whole.keys().filter(|name| matches!(*name, "cpu" | "memory") || name.starts_with("hugepages-")) {
        total.set(name, amounts.get(name));
    }
    let mut overhead = Resources::read(pod.map("spec.overhead"));
    if side == Side::Limits {
        // What has no limit gets none by it.
        overhead.retain_resources_of(&total);
    }
    total.add(&overhead);
    total
}

/// While something is resized in place, the largest of what it had, has and is to have.
fn during_resize(pod: &Tree, side: Side, wanted: Resources, status: &Tree) -> Resources {
    if !status.has("resources") {
        return wanted;
    }
    let mut largest = if is_infeasible(pod) { Resources::default() } else { wanted };
    largest.max_with(&Resources::read(side.of(status.at("resources"))));
    if side == Side::Requests {
        largest.max_with(&Resources::read(status.map("allocatedResources")));
    }
    largest
}

fn container_resources(
    pod: &Tree,
    container: &Tree,
    side: Side,
    statuses: &str,
    defaults: DefaultRequests,
) -> Resources {
    let wanted = side.of(container.at("resources"));
    let mut requests = Resources::read(wanted);
    let name = container.str("name");
    if let Some(status) = pod.list(statuses).iter().find(|status| status.str("name") == name) {
        requests = during_resize(pod, side, requests, status);
    }
    if let Some(milli_cpu) = defaults.milli_cpu.filter(|_| !wanted.contains("cpu")) {
        requests.milli_cpu = requests.milli_cpu.max(milli_cpu);
    }
    if let Some(memory) = defaults.memory.filter(|_| !wanted.contains("memory")) {
        requests.memory = requests.memory.max(memory);
    }
    requests
}

/// Whether the resize is infeasible: the desired resources then do not count.
fn is_infeasible(pod: &Tree) -> bool {
    let conditions = pod.list("status.conditions").iter();
    conditions.into_iter().any(|one| one.str("type") == "PodResizePending" && one.str("reason") == "Infeasible")
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn check(what: &str, spec: &str, status: &str, want: (i64, i64), nonzero_want: (i64, i64)) {
        let pod = format!(r#"{{"spec":{spec},"status":{status}}}"#);
        let pod: Tree = json::decode(pod.as_bytes()).expect("JSON");
        let requests = requests(&pod);
        assert_eq!((requests.milli_cpu, requests.memory), want, "{what}");
        assert_eq!(nonzero(&pod, &requests), nonzero_want, "{what}");
    }

    fn container(name: &str, cpu: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","resources":{{"requests":{{"cpu":"{cpu}","memory":"1Gi"}}}}{more}}}"#)
    }

    const GI: i64 = 1 << 30;

    #[test]
    fn requests_are_counted_as_upstream_counts_them() {
        let always = r#","restartPolicy":"Always""#;
        let (a, b) = (container("a", "1", ""), container("b", "2", ""));
        check("two at once", &format!(r#"{{"containers":[{a},{b}]}}"#), "{}", (3000, 2 * GI), (3000, 2 * GI));
        let init = container("i", "5", "");
        let with_init = format!(r#"{{"containers":[{a}],"initContainers":[{init}]}}"#);
        check("a larger init container", &with_init, "{}", (5000, GI), (5000, GI));
        let sidecar = container("s", "2", always);
        let spec = format!(r#"{{"containers":[{a}],"initContainers":[{sidecar},{init}]}}"#);
        check("an init container beside a sidecar", &spec, "{}", (7000, 2 * GI), (7000, 2 * GI));
        let spec = format!(r#"{{"containers":[{a}],"initContainers":[{init},{sidecar}]}}"#);
        check("a sidecar that comes later", &spec, "{}", (5000, 2 * GI), (5000, 2 * GI));
        let spec = format!(r#"{{"containers":[{a}],"overhead":{{"cpu":"250m"}}}}"#);
        check("overhead", &spec, "{}", (1250, GI), (1250, GI));
        let silent = r#"{"containers":[{"name":"a"},{"name":"b"}]}"#;
        check("nothing is asked for", silent, "{}", (0, 0), (200, 400 << 20));
    }

    #[test]
    fn a_pod_as_a_whole_can_ask() {
        let spec = format!(
            r#"{{"containers":[{},{{"name":"b"}}],"resources":{{"requests":{{"cpu":"4"}}}}}}"#,
            container("a", "1", "")
        );
        check("cpu for all", &spec, "{}", (4000, GI), (4000, GI));
    }

    #[test]
    fn a_resize_under_way_counts_at_its_largest() {
        let spec = format!(r#"{{"containers":[{}]}}"#, container("a", "1", ""));
        let status = |more: &str| {
            format!(
                r#"{{"containerStatuses":[{{"name":"a","resources":{{"requests":{{"cpu":"3","memory":"1Gi"}}}},
                "allocatedResources":{{"cpu":"2","memory":"1Gi"}}}}]{more}}}"#
            )
        };
        check("shrinking", &spec, &status(""), (3000, GI), (3000, GI));
        let spec = format!(r#"{{"containers":[{}]}}"#, container("a", "9", ""));
        check("growing", &spec, &status(""), (9000, GI), (9000, GI));
        let refused = r#","conditions":[{"type":"PodResizePending","reason":"Infeasible"}]"#;
        check("refused", &spec, &status(refused), (3000, GI), (3000, GI));
    }
}
