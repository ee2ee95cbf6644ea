//! The shared informers of a process: one for each selection.

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use crate::informer::RESYNC;
use crate::object::TreeCache;
use crate::writes::WriteRecord;
use crate::{Client, Informer, Random, Resource, Selection, Store};

/// An informer that has not observed a write by then will not: the work continues, as upstream's does.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The informers of a process, one per selection.
pub struct Informers {
    client: Client,
    random: Arc<Random>,
    recent: Arc<TreeCache>,
    known: Mutex<InformerSet>,
    resync: Duration,
}

#[derive(Default)]
struct InformerSet {
    informers: Vec<(Arc<Informer>, Option<JoinHandle<()>>)>,
    runs: bool,
}

impl Informers {
    /// Informers that read through a client; none is started yet.
    pub fn new(client: Client, random: Arc<Random>) -> Informers {
        Informers { client, random, recent: Arc::default(), known: Mutex::default(), resync: RESYNC }
    }

    /// Sets the resync period of new informers.
    pub fn resyncing(mut self, period: Duration) -> Informers {
        self.resync = period;
        self
    }

    /// The informer of a selection; it is started with the other informers, or at once if they run.
    pub fn informer(&self, selection: Selection) -> Arc<Informer> {
        let mut known = self.state();
        if let Some((informer, _)) = known.informers.iter().find(|(informer, _)| informer.selection() == selection) {
            return informer.clone();
        }
        let store = Arc::new(Store::new(self.recent.clone()));
        let informer = Informer::new(self.client.clone(), selection, store, self.random.clone());
        let informer = Arc::new(informer.resyncing(self.resync));
        let task = known.runs.then(|| tokio::spawn(informer.clone().run()));
        known.informers.push((informer.clone(), task));
        informer
    }

    /// Starts the existing informers; later ones start at once.
    pub fn start(&self) {
        let mut known = self.state();
        known.runs = true;
        for (informer, task) in &mut known.informers {
            task.get_or_insert_with(|| tokio::spawn(informer.clone().run()));
        }
    }

    /// Stops the informer of a selection whose resource no longer exists. Its store may still be referenced.
    pub fn remove(&self, selection: Selection) {
        let mut known = self.state();
        let Some(at) = known.informers.iter().position(|(informer, _)| informer.selection() == selection) else {
            return;
        };
        let (_, task) = known.informers.remove(at);
        task.iter().for_each(JoinHandle::abort);
    }

    /// Stops all informers.
    pub fn stop(&self) {
        let mut known = self.state();
        known.runs = false;
        for (_, task) in &mut known.informers {
            task.take().iter().for_each(JoinHandle::abort);
        }
    }

    /// Waits until all current informers have synced.
    pub async fn synced(&self) {
        let waiting: Vec<_> = self.state().informers.iter().map(|(informer, _)| informer.synced()).collect();
        for mut synced in waiting {
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }

    /// Whether all matching informers have observed a write.
    pub fn have_observed(&self, writes: &WriteRecord) -> bool {
        self.of(writes.resource).iter().all(|informer| informer.has_observed(writes))
    }

    /// Waits until all matching informers have observed the writes.
    pub async fn wait_for(&self, writes: &[WriteRecord]) {
        let all = async {
            for writes in writes {
                for informer in self.of(writes.resource) {
                    informer.wait_for(writes).await;
                }
            }
        };
        if tokio::time::timeout(LONGEST_WAIT, all).await.is_err() {
            tracing::warn!("timed out waiting for informers to observe own writes, continuing");
        }
    }

    fn of(&self, resource: Resource) -> Vec<Arc<Informer>> {
        let known = self.state();
        let same = |informer: &&Arc<Informer>| {
            let other = informer.selection().resource;
            (other.group, other.plural) == (resource.group, resource.plural)
        };
        known.informers.iter().map(|(informer, _)| informer).filter(same).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, InformerSet> {
        self.known.lock()
    }
}

impl Drop for Informers {
    fn drop(&mut self) {
        self.stop();
    }
}
