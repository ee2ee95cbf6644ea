//! The last reported status of a container that the runtime does not have any more. Containers of the built-in runtime
//! do not outlive a reboot, but the pod's status in the API records which were started, how often, and how they ended.

use api::Tree;

/// The exit code to assume for a container whose end was not observed.
pub(crate) const UNSEEN_CODE: i32 = 137;
const LISTS: [&str; 3] = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastStatus {
    /// The container had not started yet; its restart count.
    Waiting { restarts: i64 },
    /// The container was running when it was last observed.
    Lost { restarts: i64 },
    /// The container has exited, and may have waited for its restart.
    Ended { restarts: i64, code: i32 },
}

impl LastStatus {
    /// None where the status does not name the container.
    pub(crate) fn of(pod: &Tree, name: &str) -> Option<LastStatus> {
        let status = status(pod, name)?;
        let restarts = status.int("restartCount").unwrap_or(0);
        if status.at("state").has("running") {
            return Some(LastStatus::Lost { restarts });
        }
        let last = status.at("lastState.terminated");
        // A crashed container has its own exit as `lastState`; one that was only created has that of its predecessor.
        let waits_after_end =
            !status.str("containerID").is_empty() && last.str("containerID") == status.str("containerID");
        let ended = if waits_after_end { last } else { status.at("state.terminated") };
        if ended.is_null() {
            return Some(LastStatus::Waiting { restarts });
        }
        let code = ended.int("exitCode").and_then(|code| i32::try_from(code).ok()).unwrap_or(UNSEEN_CODE);
        Some(LastStatus::Ended { restarts, code })
    }

    /// The exit code to assume; None if it was never started.
    pub(crate) fn code(self) -> Option<i32> {
        match self {
            LastStatus::Waiting { .. } => None,
            LastStatus::Lost { .. } => Some(UNSEEN_CODE),
            LastStatus::Ended { code, .. } => Some(code),
        }
    }

    /// The restart count of the next container.
    pub(crate) fn next(self) -> i64 {
        match self {
            LastStatus::Waiting { restarts } => restarts,
            LastStatus::Lost { restarts } | LastStatus::Ended { restarts, .. } => restarts.saturating_add(1),
        }
    }
}

/// The last reported status of a container.
pub(crate) fn status<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    let all = LISTS.iter().flat_map(|list| pod.at("status").list(list));
    all.into_iter().find(|status| status.str("name") == name)
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    #[test]
    fn reads_the_last_status_of_a_container() {
        let crashed = "lastState: {terminated: {exitCode: 3, containerID: x}}";
        let cases = [
            ("", None, None),
            ("{name: a, restartCount: 2, state: {waiting: {}}}", None, Some(2)),
            ("{name: a, restartCount: 2, containerID: x, state: {running: {}}}", Some(137), Some(3)),
            ("{name: a, restartCount: 2, state: {terminated: {exitCode: 0}}}", Some(0), Some(3)),
            (
                &format!("{{name: a, restartCount: 2, containerID: x, state: {{waiting: {{}}}}, {crashed}}}"),
                Some(3),
                Some(3),
            ),
            // Created and never started, after a crashed one.
            (
                &format!("{{name: a, restartCount: 2, containerID: y, state: {{waiting: {{}}}}, {crashed}}}"),
                None,
                Some(2),
            ),
            // Missing in the runtime, and counted already.
            (&format!("{{name: a, restartCount: 3, state: {{waiting: {{}}}}, {crashed}}}"), None, Some(3)),
        ];
        for (status, code, next) in cases {
            for list in LISTS {
                let pod = yaml::decode(format!("{{status: {{{list}: [{status}]}}}}").as_bytes()).expect("a pod");
                let past = LastStatus::of(&pod, "a");
                assert_eq!((past.and_then(LastStatus::code), past.map(LastStatus::next)), (code, next), "{status}");
            }
        }
    }
}
