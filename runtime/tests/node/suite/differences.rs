//! The cases in which containerd 1.6 behaves differently, and why this runtime does not follow it.

pub struct Difference {
    pub case: &'static str,
    pub says: &'static str,
    pub why: &'static str,
}

pub fn of(case: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|difference| difference.case == case)
}

/// Whether this is a result of a race in containerd. This runtime must be right every time.
pub fn is_race(case: &str, said: &str) -> bool {
    RACES.contains(&(case, said))
}

/// containerd receives the OOM event and the exit separately, and may miss the first on a busy machine.
const RACES: &[(&str, &str)] = &[("ContainerStatus: OOM killed", "137 Error")];

/// For calls and fields that are newer.
const LATER: &str = "CRI has it only since a later version than containerd 1.6";

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "StopPodSandbox: unknown ID",
        says: "NotFound",
        why: "the protocol says that a repeated call succeeds; later versions do that",
    },
    Difference {
        case: "StopContainer: unknown ID",
        says: "NotFound",
        why: "as with sandboxes: a repeated call must not fail",
    },
    Difference { case: "StreamPodSandboxes: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "StreamContainers: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "StreamContainerStats: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "StreamPodSandboxStats: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "StreamImages: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "UpdatePodSandboxResources: accepts new resources", says: "Unimplemented", why: LATER },
    Difference { case: "UpdatePodSandboxResources: unknown ID", says: "Unimplemented", why: LATER },
    Difference { case: "ListMetricDescriptors: all metrics", says: "Unimplemented", why: LATER },
    Difference { case: "ListPodSandboxMetrics: all pods", says: "Unimplemented", why: LATER },
    Difference { case: "StreamPodSandboxMetrics: streams the list", says: "Unimplemented", why: LATER },
    Difference { case: "RuntimeConfig: cgroup driver", says: "Unimplemented", why: LATER },
    Difference { case: "GetContainerEvents: lifecycle of a container", says: "Unimplemented", why: LATER },
    Difference { case: "Status: features", says: "", why: LATER },
    Difference { case: "ImageFsInfo: mount point and usage", says: "images 1 some, containers 0", why: LATER },
    Difference {
        case: "CreateContainer: in a sandbox that was stopped",
        says: "NotFound",
        why: "it misses the sandbox's task; the sandbox still exists, and a client must not take it for deleted",
    },
    Difference {
        case: "UpdateContainerResources: exited",
        says: "ok",
        why: "it updates a record although the container never runs again; this runtime returns an error",
    },
    Difference {
        case: "ListImages: one, all and none",
        says: "one: others too, another: some, all: some",
        why: "it ignores the filter",
    },
    Difference {
        case: "ListContainerStats: running ones, by pod",
        says: "ended layer, main cpu memory layer",
        why: "the protocol asks for running containers; it also lists the layers of others",
    },
];
