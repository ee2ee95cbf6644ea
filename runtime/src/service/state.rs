//! The in-memory state of sandboxes and containers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cri::{ContainerState, LinuxContainerResources, PodSandboxConfig};
use stdx::sync::Mutex;
use tokio::sync::watch;

use super::client::ShimClient;
use super::records::{ContainerRecord, SandboxRecord, Stage};
use crate::container::user::User;
use crate::shim::protocol::Exit;

pub(crate) struct Sandbox {
    pub id: String,
    pub directory: PathBuf,
    pub record: Mutex<SandboxRecord>,
    pub shim: Mutex<Option<Arc<ShimClient>>>,
    /// Held while the sandbox is stopped or removed.
    pub changing: tokio::sync::Mutex<()>,
}

impl Sandbox {
    pub(crate) fn record(&self) -> SandboxRecord {
        self.record.lock().clone()
    }

    pub(crate) fn config(&self) -> PodSandboxConfig {
        self.record.lock().config()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.record.lock().stage()
    }

    pub(crate) fn shim(&self) -> Option<Arc<ShimClient>> {
        self.shim.lock().clone()
    }
}

/// The status of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub state: ContainerState,
    pub pid: i32,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub user: Option<User>,
    pub resources: Option<LinuxContainerResources>,
}

impl Status {
    pub(crate) fn created(resources: Option<LinuxContainerResources>) -> Status {
        Status {
            state: ContainerState::Created,
            pid: 0,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            user: None,
            resources,
        }
    }

    pub(crate) fn exited(&self, exit: &Exit) -> Status {
        let reason = match (exit.oom, exit.code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        Status {
            state: ContainerState::Exited,
            pid: 0,
            started_at: exit.started_at,
            finished_at: exit.finished_at,
            exit_code: exit.code,
            reason: reason.into(),
            ..self.clone()
        }
    }

    /// The container ran, but its exit was not recorded.
    pub(crate) fn lost(&self, at: i64) -> Status {
        Status {
            state: ContainerState::Exited,
            pid: 0,
            finished_at: at,
            exit_code: 255,
            reason: "Unknown".into(),
            message: "the pod's shim exited before the container".into(),
            ..self.clone()
        }
    }

    pub(crate) fn failed(&self, at: i64, message: &str) -> Status {
        Status {
            state: ContainerState::Exited,
            pid: 0,
            started_at: at,
            finished_at: at,
            exit_code: 128,
            reason: "StartError".into(),
            message: message.into(),
            ..self.clone()
        }
    }
}

pub(crate) struct Container {
    pub id: String,
    pub directory: PathBuf,
    pub sandbox: Arc<Sandbox>,
    pub record: Mutex<ContainerRecord>,
    pub status: watch::Sender<Status>,
    /// Held while the container is started or removed.
    pub changing: tokio::sync::Mutex<()>,
}

impl Container {
    pub(crate) fn record(&self) -> ContainerRecord {
        self.record.lock().clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.status.borrow().state == ContainerState::Running
    }
}

/// A table of objects by ID. A unique prefix of an ID is enough to find one.
pub(super) struct Table<T>(Mutex<BTreeMap<String, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Mutex::default())
    }
}

impl<T> Table<T> {
    pub(super) fn insert(&self, id: &str, value: Arc<T>) {
        self.0.lock().insert(id.to_string(), value);
    }

    pub(super) fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().values().cloned().collect()
    }

    /// Finds an object by its ID, or by a unique prefix of it.
    pub(super) fn find(&self, id: &str) -> Option<Arc<T>> {
        let table = self.0.lock();
        if id.is_empty() {
            return None;
        }
        if let Some(found) = table.get(id) {
            return Some(found.clone());
        }
        let mut matching = table.range(id.to_string()..).take_while(|(key, _)| key.starts_with(id));
        match (matching.next(), matching.next()) {
            (Some((_, one)), None) => Some(one.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_unique_prefix() {
        let table = Table::default();
        for id in ["abc1", "abd2", "x"] {
            table.insert(id, Arc::new(id));
        }
        for (id, expected) in
            [("abc1", Some("abc1")), ("abc", Some("abc1")), ("ab", None), ("x", Some("x")), ("", None), ("y", None)]
        {
            assert_eq!(table.find(id).map(|v| *v), expected, "{id:?}");
        }
    }

    #[test]
    fn exits_have_reasons() {
        let check = |code, oom, expected: &str| {
            let exit = Exit { code, oom, started_at: 1, finished_at: 2 };
            assert_eq!(Status::created(None).exited(&exit).reason, expected);
        };
        check(0, false, "Completed");
        check(1, false, "Error");
        check(137, true, "OOMKilled");
    }
}
