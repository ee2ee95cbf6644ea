//! The controller framework: descriptors, reconcilers, and the context that each controller receives.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Informer, Informers, Metrics, Queue, Recorder, Result, Selection};
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};

use crate::metadata_monitor::MetadataMonitor;
use crate::options::Options;

/// A row of the list of controllers.
pub(crate) struct Descriptor {
    /// Upstream's name, which `--controllers` uses.
    pub name: &'static str,
    /// The name before 1.28, which `--controllers` accepts too; empty if there was none.
    pub alias: &'static str,
    /// The service account in kube-system that the controller acts as; empty for the manager itself.
    pub account: &'static str,
    /// Group and plural of the resource whose keys it reconciles, for the causes of its writes; None if its keys are not
    /// those of one resource.
    pub resource: Option<(&'static str, &'static str)>,
    /// Whether `*` selects the controller.
    pub on_by_default: bool,
    /// The number of keys that are reconciled concurrently.
    pub workers: fn(&Options) -> usize,
    pub start: StartFn,
}

/// Creates a controller; None if it has nothing to do with these options.
pub(crate) type StartFn = fn(&Setup, &Context) -> Option<Box<dyn Reconcile>>;

/// The result of a successful reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Requeue the key after this duration, whether or not something changes.
    RequeueAfter(Duration),
}

pub(crate) type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;

/// Reconciles one key. A reconcile observes its own writes: a key is not reconciled again before the informers have
/// received the writes of the previous run.
pub(crate) trait Reconcile: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a>;
}

/// The inputs of controllers: the shared informers and the values derived from them.
pub(crate) struct Setup {
    pub informers: Arc<Informers>,
    /// Watches the metadata of all objects.
    pub(crate) metadata_monitor: Arc<MetadataMonitor>,
    derived: Mutex<Vec<SharedValue>>,
    /// The informers requested since `take_requested` was last called.
    requested: Mutex<Vec<Arc<Informer>>>,
}

/// A value shared by controllers, and the informers it depends on.
struct SharedValue {
    value: Arc<dyn Any + Send + Sync>,
    needs: Vec<Arc<Informer>>,
}

impl Setup {
    pub(crate) fn new(informers: Arc<Informers>, metadata_monitor: Arc<MetadataMonitor>) -> Setup {
        Setup { informers, metadata_monitor, derived: Mutex::default(), requested: Mutex::default() }
    }

    /// Returns the shared value of a type, building it from informers on first use.
    pub(crate) fn shared<T: Any + Send + Sync>(&self, build: impl FnOnce(&Setup) -> Arc<T>) -> Arc<T> {
        let mut derived = self.derived.lock();
        let known = derived.iter().find_map(|one| Some((one.value.clone().downcast::<T>().ok()?, &one.needs)));
        if let Some((known, needs)) = known {
            self.requested().extend(needs.iter().cloned());
            return known;
        }
        let before = self.requested().len();
        let built = build(self);
        let needs = self.requested()[before..].to_vec();
        derived.push(SharedValue { value: built.clone(), needs });
        built
    }

    /// The informers that the controller created last has requested; its workers wait until these have synced.
    pub(crate) fn take_requested(&self) -> Vec<Arc<Informer>> {
        std::mem::take(&mut *self.requested())
    }

    fn requested(&self) -> MutexGuard<'_, Vec<Arc<Informer>>> {
        self.requested.lock()
    }

    /// Returns the shared informer of a selection.
    pub(crate) fn informer(&self, selection: Selection) -> Arc<Informer> {
        let informer = self.informers.informer(selection);
        self.requested().push(informer.clone());
        informer
    }
}

/// The context of one controller.
#[derive(Clone)]
pub(crate) struct Context {
    /// Authenticated as the controller's service account.
    pub client: Client,
    pub recorder: Recorder,
    /// Wall-clock time; plans get it as a value.
    pub clock: Arc<dyn Clock>,
    pub options: Arc<Options>,
    pub queue: Arc<Queue>,
    /// For the metrics of `metrics.rs`, besides those of the queue.
    pub metrics: Metrics,
    /// For controllers that discover resources at run time.
    pub informers: Arc<Informers>,
}

impl Context {
    pub(crate) fn now_seconds(&self) -> i64 {
        self.clock.now().seconds
    }

    /// The current time with nanoseconds, since the Unix epoch.
    pub(crate) fn now(&self) -> Duration {
        let now = self.clock.now();
        Duration::new(u64::try_from(now.seconds).unwrap_or_default(), now.nanos)
    }
}
