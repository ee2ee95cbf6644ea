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

/// It receives the OOM event and the exit separately, and may miss the first on a busy machine.
const RACES: &[(&str, &str)] = &[("ContainerStatus: killed for its memory", "137 Error")];

/// For calls and fields that are newer.
const LATER: &str = "CRI has it only since a later version than containerd 1.6";

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "StopPodSandbox: one that is not there",
        says: "NotFound",
        why: "a client that repeats a call has to hear that all is well, as the protocol says; later versions do so",
    },
    Difference {
        case: "StopContainer: one that is not there",
        says: "NotFound",
        why: "as with sandboxes: a repeated call must not fail",
    },
    Difference { case: "StreamPodSandboxes: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "StreamContainers: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "StreamContainerStats: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "StreamPodSandboxStats: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "StreamImages: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "UpdatePodSandboxResources: news of a pod", says: "Unimplemented", why: LATER },
    Difference { case: "UpdatePodSandboxResources: one that is not there", says: "Unimplemented", why: LATER },
    Difference { case: "ListMetricDescriptors: what is counted", says: "Unimplemented", why: LATER },
    Difference { case: "ListPodSandboxMetrics: what was counted", says: "Unimplemented", why: LATER },
    Difference { case: "StreamPodSandboxMetrics: the list in pieces", says: "Unimplemented", why: LATER },
    Difference { case: "RuntimeConfig: who makes cgroups", says: "Unimplemented", why: LATER },
    Difference { case: "GetContainerEvents: a container's life", says: "Unimplemented", why: LATER },
    Difference { case: "Status: what it can do", says: "", why: LATER },
    Difference { case: "ImageFsInfo: where images are, and how much", says: "images 1 some, containers 0", why: LATER },
    Difference {
        case: "CreateContainer: in a sandbox that was stopped",
        says: "NotFound",
        why: "it misses the sandbox's task; the sandbox itself is there, and a client must not take it for gone",
    },
    Difference {
        case: "UpdateContainerResources: of one that ended",
        says: "ok",
        why: "it changes a record of what will never run again; ours says that nothing was done",
    },
    Difference {
        case: "ListImages: one, all and none",
        says: "one: others too, another: some, all: some",
        why: "it pays no heed to the filter",
    },
    Difference {
        case: "ListContainerStats: those that run, by pod",
        says: "ended layer, main cpu memory layer",
        why: "the protocol asks for those that run; it lists the layers of others as well",
    },
];
