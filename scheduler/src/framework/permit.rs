//! Assumed pods that wait for permission to be bound: plugins have requested time, and allow or reject them later.
//! The pods stay assumed on their nodes meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use podmodel::Pod;

/// The maximum time of a plugin.
pub const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// All waiting pods, by uid.
#[derive(Default)]
pub struct WaitingPods(Mutex<BTreeMap<Str, Arc<WaitingPod>>>);

/// A pod that waits for Permit plugins.
pub struct WaitingPod {
    pub pod: Arc<Pod>,
    /// The assumed pod, with its node name.
    pub node: Str,
    state: watch::Sender<State>,
}

/// The plugins that have not allowed the pod yet with their deadlines, or the rejection.
#[derive(Debug, Default)]
struct State {
    pending: Vec<Pending>,
    rejected: Option<PermitRejection>,
}

#[derive(Debug)]
struct Pending {
    plugin: &'static str,
    requested: Duration,
    until: Instant,
}

/// The plugin that rejected a pod, and why; the plugin is empty for other reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitRejection {
    pub plugin: &'static str,
    pub why: String,
}

impl WaitingPods {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Str, Arc<WaitingPod>>> {
        self.0.lock()
    }

    pub(crate) fn add(&self, pod: Arc<Pod>, node: Str, requested: Vec<(&'static str, Duration)>, now: Instant) {
        let pending = requested.into_iter().map(|(plugin, requested)| {
            let requested = requested.min(LONGEST_WAIT);
            Pending { plugin, requested, until: now + requested }
        });
        let state = State { pending: pending.collect(), rejected: None };
        let waiting = WaitingPod { pod: pod.clone(), node, state: watch::Sender::new(state) };
        self.all().insert(pod.uid.clone(), Arc::new(waiting));
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.all().remove(uid);
    }

    /// The waiting pod of a uid.
    pub fn get(&self, uid: &str) -> Option<Arc<WaitingPod>> {
        self.all().get(uid).cloned()
    }

    /// All waiting pods, sorted by uid.
    pub fn list(&self) -> Vec<Arc<WaitingPod>> {
        self.all().values().cloned().collect()
    }

    /// Rejects a waiting pod; returns whether it was waiting.
    pub fn reject(&self, uid: &str, why: &str) -> bool {
        let waiting = self.get(uid);
        waiting.inspect(|waiting| waiting.reject("", why)).is_some()
    }
}

impl WaitingPod {
    /// The plugins that it waits for.
    pub fn pending(&self) -> Vec<&'static str> {
        self.state.borrow().pending.iter().map(|pending| pending.plugin).collect()
    }

    /// The last plugin that allows the pod lets it be bound.
    pub fn allow(&self, plugin: &str) {
        self.state.send_modify(|state| state.pending.retain(|pending| pending.plugin != plugin));
    }

    /// The first rejection counts.
    pub fn reject(&self, plugin: &'static str, why: &str) {
        self.state.send_modify(|state| {
            state.rejected.get_or_insert_with(|| PermitRejection { plugin, why: why.to_string() });
        });
    }

    /// Waits for all plugins, or for the first rejection or timeout.
    pub(crate) async fn outcome(&self) -> Result<(), PermitRejection> {
        let mut changes = self.state.subscribe();
        loop {
            let until = {
                let state = changes.borrow_and_update();
                if let Some(rejected) = &state.rejected {
                    return Err(rejected.clone());
                }
                let Some(next) = state.pending.iter().min_by_key(|pending| pending.until) else { return Ok(()) };
                next.until
            };
            if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                self.expire(until);
            }
        }
    }

    fn expire(&self, now: Instant) {
        self.state.send_modify(|state| {
            let Some(late) = state.pending.iter().find(|pending| pending.until <= now) else { return };
            let why = format!("rejected due to timeout after waiting {:?} at plugin {}", late.requested, late.plugin);
            let plugin = late.plugin;
            state.rejected.get_or_insert(PermitRejection { plugin, why });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn waiting(requested: &[(&'static str, u64)]) -> Arc<WaitingPod> {
        let waiting = WaitingPods::default();
        let requested = requested.iter().map(|(plugin, seconds)| (*plugin, Duration::from_secs(*seconds))).collect();
        waiting.add(Arc::new(Pod::read(&pod("p").0)), "n".into(), requested, Instant::now());
        waiting.get("p").expect("it waits")
    }

    #[tokio::test(start_paused = true)]
    async fn binds_after_all_plugins_allow() {
        let one = waiting(&[("A", 10), ("B", 20)]);
        assert_eq!(one.pending(), ["A", "B"]);
        let waits = tokio::spawn({
            let one = one.clone();
            async move { one.outcome().await }
        });
        tokio::time::sleep(Duration::from_secs(9)).await;
        one.allow("A");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!waits.is_finished());
        one.allow("B");
        assert_eq!(waits.await.expect("it ends"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn first_rejection_or_timeout_counts() {
        let one = waiting(&[("A", 10), ("B", 20)]);
        one.reject("B", "no");
        one.reject("A", "never");
        assert_eq!(one.outcome().await, Err(PermitRejection { plugin: "B", why: "no".to_string() }));
        let late = waiting(&[("A", 30), ("B", 20)]);
        let why = "rejected due to timeout after waiting 20s at plugin B".to_string();
        assert_eq!(late.outcome().await, Err(PermitRejection { plugin: "B", why }));
        let longest = waiting(&[("A", 100_000)]);
        let started = Instant::now();
        assert!(longest.outcome().await.is_err());
        assert_eq!(started.elapsed(), LONGEST_WAIT);
    }
}
