//! Nodes and pods of the shapes that upstream's own performance tests have.

/// The requirements of pods besides CPU and memory.
pub(crate) struct Workload {
    pub name: &'static str,
    pub labels: &'static str,
    /// More fields of the spec, each behind a comma.
    pub more: &'static str,
    /// At most one on a node.
    pub is_alone: bool,
}

pub(crate) const BASIC: Workload = Workload { name: "basic", labels: r#"{"app":"basic"}"#, more: "", is_alone: false };

/// A pod without a grace period.
pub(crate) const SHORT: Workload =
    Workload { name: "preemption", labels: "{}", more: r#","terminationGracePeriodSeconds":0"#, is_alone: false };

/// A pod of a priority class that preempts others.
pub(crate) const URGENT: Workload = Workload {
    name: "preemption",
    labels: "{}",
    more: r#","terminationGracePeriodSeconds":0,"priorityClassName":"urgent""#,
    is_alone: false,
};
pub(crate) const URGENT_PRIORITY: i64 = 1000;
pub(crate) const URGENT_CLASS: &str =
    r#"{"kind":"PriorityClass","apiVersion":"scheduling.k8s.io/v1","metadata":{"name":"urgent"},"value":1000}"#;

pub(super) const OTHERS: [Workload; 5] = [
    Workload {
        name: "node affinity",
        labels: r#"{"app":"some-zones"}"#,
        more: r#","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-0","zone-1"]}]}]}}}"#,
        is_alone: false,
    },
    Workload {
        name: "topology spreading",
        labels: r#"{"app":"spread"}"#,
        more: r#","topologySpreadConstraints":[{"maxSkew":5,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"spread"}}}]"#,
        is_alone: false,
    },
    Workload {
        name: "preferred pod affinity",
        labels: r#"{"app":"liked"}"#,
        more: r#","affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"liked"}}}}]}}"#,
        is_alone: false,
    },
    Workload {
        name: "required pod affinity",
        labels: r#"{"app":"near"}"#,
        more: r#","affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"topology.kubernetes.io/zone","labelSelector":{"matchLabels":{"app":"near"}}}]}}"#,
        is_alone: false,
    },
    Workload {
        name: "pod anti-affinity",
        labels: r#"{"color":"green"}"#,
        more: r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"color":"green"}}}]}}"#,
        is_alone: true,
    },
];

const ZONES: u64 = 10;

/// A node of its own name; `turn` is what changes of one that churns.
pub(super) fn node(number: u64, turn: u64) -> String {
    let zone = number % ZONES;
    format!(
        r#"{{"kind":"Node","apiVersion":"v1","metadata":{{"name":"node-{number}","labels":{{"kubernetes.io/hostname":"node-{number}","topology.kubernetes.io/zone":"zone-{zone}","turn":"{turn}"}}}},"status":{{"capacity":{{"cpu":"4","memory":"32Gi","pods":"110"}},"allocatable":{{"cpu":"4","memory":"32Gi","pods":"110"}}}}}}"#
    )
}

impl Workload {
    pub(super) fn pod(&self, name: &str, cpu: &str, priority: i64) -> String {
        let (labels, more) = (self.labels, self.more);
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","labels":{labels}}},"spec":{{"priority":{priority},"schedulerName":"default-scheduler","containers":[{{"name":"c","image":"registry.example/pause:1","resources":{{"requests":{{"cpu":"{cpu}","memory":"500Mi"}}}}}}]{more}}}}}"#
        )
    }
}
