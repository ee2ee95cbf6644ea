//! What a controller is made of and what it is given.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Clock, Informer, Informers, Metrics, Queue, Random, Recorder, Result, Selection};
use stdx::sync::{Mutex, MutexGuard};

use crate::options::Options;
use crate::support::everything::Everything;

/// A controller on the list.
pub struct Descriptor {
    /// Upstream's name, by which it is turned on and off.
    pub name: &'static str,
    /// The name that it had before 1.28, which turns it on and off too; "" where it had none.
    pub alias: &'static str,
    /// The service account of kube-system that it acts as; "" for the manager itself.
    pub account: &'static str,
    /// Whether `*` means it.
    pub on_by_default: bool,
    /// How many keys are worked on at a time.
    pub workers: fn(&Options) -> usize,
    pub start: Start,
}

/// Makes a controller; None where there is nothing to do for it with these options.
pub type Start = fn(&Setup, &Context) -> Option<Box<dyn Reconcile>>;

/// How a reconcile ends that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The key comes back after this, whether something changes or not.
    Again(Duration),
}

pub type Reconciling<'a> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;

/// Brings one key from what is to what should be. It sees what it has written itself: a key does not
/// come again before the informers have shown that.
pub trait Reconcile: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a>;
}

/// What controllers are made with: informers that they share, and what some of them derive from these.
pub struct Setup {
    pub informers: Arc<Informers>,
    /// All objects that there are, by their metadata.
    pub(crate) everything: Arc<Everything>,
    derived: Mutex<Vec<Derived>>,
    /// The informers that were asked for since this was last taken.
    asked: Mutex<Vec<Arc<Informer>>>,
}

/// A value that controllers share, and the informers that it needs.
struct Derived {
    value: Arc<dyn Any + Send + Sync>,
    needs: Vec<Arc<Informer>>,
}

impl Setup {
    pub(crate) fn new(informers: Arc<Informers>, everything: Arc<Everything>) -> Setup {
        Setup { informers, everything, derived: Mutex::default(), asked: Mutex::default() }
    }

    /// The one value of a type that is made from informers, however many ask for it.
    pub fn shared<T: Any + Send + Sync>(&self, make: impl FnOnce(&Setup) -> Arc<T>) -> Arc<T> {
        let mut derived = self.derived.lock();
        let known = derived.iter().find_map(|one| Some((one.value.clone().downcast::<T>().ok()?, &one.needs)));
        if let Some((known, needs)) = known {
            self.asked().extend(needs.iter().cloned());
            return known;
        }
        let before = self.asked().len();
        let made = make(self);
        let needs = self.asked()[before..].to_vec();
        derived.push(Derived { value: made.clone(), needs });
        made
    }

    /// What the controller that was made last waits for: that its informers have listed once.
    pub(crate) fn take_asked(&self) -> Vec<Arc<Informer>> {
        std::mem::take(&mut *self.asked())
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Arc<Informer>>> {
        self.asked.lock()
    }

    /// The informer of a selection; there is one, however many ask for it.
    pub fn informer(&self, selection: Selection) -> Arc<Informer> {
        let informer = self.informers.informer(selection);
        self.asked().push(informer.clone());
        informer
    }
}

/// What one controller is given.
#[derive(Clone)]
pub struct Context {
    /// Acts as the controller's service account.
    pub client: Client,
    pub recorder: Recorder,
    /// Wall time; a plan takes it as a value.
    pub clock: Arc<dyn Clock>,
    pub options: Arc<Options>,
    pub queue: Arc<Queue>,
    pub random: Arc<Random>,
    /// What is counted beside the queue, by the meters of `meters.rs`.
    pub metrics: Metrics,
    /// For those that learn of resources at run time.
    pub informers: Arc<Informers>,
}

impl Context {
    /// Seconds since the Unix epoch.
    pub fn now_seconds(&self) -> i64 {
        self.clock.now().seconds
    }

    /// The same to the nanosecond.
    pub(crate) fn now(&self) -> Duration {
        let now = self.clock.now();
        Duration::new(u64::try_from(now.seconds).unwrap_or_default(), now.nanos)
    }
}
