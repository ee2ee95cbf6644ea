//! Puts the commands of a plan into their order.

use super::{Command, Plan, RestartBackoff, StartContainer, StopContainer};

/// The decisions for all containers.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) backoffs: Vec<RestartBackoff>,
    pub(super) stops: Vec<StopContainer>,
    pub(super) starts: Vec<StartContainer>,
}

/// The first commands of every sync of a running pod, before containers are changed.
const PREPARATIONS: [Command; 3] = [
    // The pod's cgroup is the parent of all that is created later.
    Command::EnsureCgroup,
    // A resize that is possible without a restart does not wait for volumes.
    Command::ResizeContainers,
    // Containers are created with their mounts.
    Command::PrepareVolumes,
];

impl Draft {
    /// Whether a container is started now or later.
    pub(super) fn continues(&self, name: &str) -> bool {
        self.starts.iter().any(|start| start.name == name) || self.backoffs.iter().any(|backoff| backoff.name == name)
    }

    /// The pod runs on.
    pub(super) fn run(self) -> Plan {
        let stops = self.stops.into_iter().map(Command::StopContainer);
        let starts = self.starts.into_iter().map(Command::StartContainer);
        let backoffs = self.backoffs.into_iter().map(Command::Backoff);
        Plan { commands: backoffs.chain(PREPARATIONS).chain(stops).chain(starts).collect() }
    }

    /// The pod runs in a new sandbox, after the old ones were stopped.
    pub(super) fn run_in_new_sandbox(self, attempt: u32, has_old: bool) -> Plan {
        let stop = has_old.then_some(Command::StopSandboxes);
        let starts = self.starts.into_iter().map(Command::StartContainer);
        let sandbox = stop.into_iter().chain([Command::CreateSandbox { attempt }]);
        Plan { commands: PREPARATIONS.into_iter().chain(sandbox).chain(starts).collect() }
    }

    /// The pod has completed. Containers with a reason of their own are stopped first, each with its event.
    pub(super) fn finish(self) -> Plan {
        let read = (!self.stops.is_empty()).then_some(Command::ReadState);
        let stops = self.stops.into_iter().map(Command::StopContainer);
        let backoffs = self.backoffs.into_iter().map(Command::Backoff);
        Plan { commands: backoffs.chain(stops).chain(read).chain([Command::FinishPod]).collect() }
    }
}
