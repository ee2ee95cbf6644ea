//! Runs the controllers: their queues, their workers, and the order in which they stop.

use std::pin::pin;
use std::sync::Arc;

use client::{
    Cause, Client, Error, Events, Informer, Informers, Key, Metrics, Queue, Random, Result, WorkResult, writes,
};
use stdx::clock::Clock;
use stdx::panic::catch_unwind;
use stdx::sync::Mutex;
use tokio::task::JoinHandle;

use crate::barrier::Barrier;
use crate::choice::{self, UnknownController};
use crate::framework::{Context, Descriptor, Outcome, Reconcile, Setup};
use crate::list::{CONTROLLERS, OF_SERVER};
use crate::metadata_monitor::MetadataMonitor;
use crate::options::Options;

/// The dependencies of the controllers on the process that runs them.
pub struct Environment {
    /// The client of the shared informers, so that each resource is watched once.
    pub reader: Client,
    /// Returns a client that acts as a service account in kube-system.
    pub writer: Box<dyn Fn(&'static str) -> Client + Send + Sync>,
    pub options: Arc<Options>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    /// The seed of all randomness.
    pub seed: u64,
}

/// Handle of the running controllers.
pub struct Handle {
    loops: Vec<ControllerLoop>,
    informers: Arc<Informers>,
    metadata_monitor: Arc<MetadataMonitor>,
}

/// One running controller.
struct ControllerLoop {
    name: &'static str,
    queue: Arc<Queue>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Handle {
    /// Stops the controllers in reverse order; each finishes the reconciles in progress.
    pub async fn stop(&self) {
        for one in self.loops.iter().rev() {
            one.queue.close();
            for worker in one.take() {
                let _ = worker.await;
            }
        }
        self.metadata_monitor.stop();
        self.informers.stop();
    }

    /// Aborts all workers immediately.
    pub fn abort(&self) {
        self.loops.iter().flat_map(ControllerLoop::take).for_each(|worker| worker.abort());
        self.metadata_monitor.stop();
        self.informers.stop();
    }

    /// Returns a function that reports whether all workers are alive.
    pub fn watch_health(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let of = |one: &ControllerLoop| {
            let workers = one.workers.lock();
            workers.iter().map(JoinHandle::abort_handle).collect::<Vec<_>>()
        };
        let workers: Vec<_> = self.loops.iter().flat_map(of).collect();
        move || !workers.iter().any(tokio::task::AbortHandle::is_finished)
    }

    /// Whether all workers of each controller are alive.
    pub fn health(&self) -> Vec<(&'static str, bool)> {
        self.loops.iter().map(|one| (one.name, one.is_healthy())).collect()
    }
}

impl ControllerLoop {
    fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.workers.lock())
    }

    fn is_healthy(&self) -> bool {
        let workers = self.workers.lock();
        !workers.is_empty() && !workers.iter().any(JoinHandle::is_finished)
    }
}

/// Starts the selected controllers by upstream's rule: `*` for all, a name for one, `-name` to exclude one.
pub fn start(environment: Environment, chosen: &[String]) -> std::result::Result<Handle, UnknownController> {
    choice::check(chosen)?;
    Ok(run(environment, CONTROLLERS.iter().filter(|controller| choice::is_enabled(controller, chosen))))
}

/// Starts the controllers that belong to an API server, wherever other controllers run. The environment acts as the server.
pub fn start_of_server(environment: Environment) -> Handle {
    run(environment, OF_SERVER.iter())
}

fn run(environment: Environment, list: impl Iterator<Item = &'static Descriptor>) -> Handle {
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Informers::new(environment.reader.clone(), random.clone());
    let informers = Arc::new(informers.resyncing(environment.options.min_resync_period));
    let metadata_monitor =
        MetadataMonitor::new(environment.reader.clone(), random.clone(), environment.metrics.clone());
    let setup = Setup::new(informers.clone(), metadata_monitor.clone());
    let events = Events::start(environment.clock.clone(), environment.metrics.clone());
    let mut made = Vec::new();
    for controller in list {
        let client = (environment.writer)(controller.account);
        let context = Context {
            recorder: events.recorder(client.clone(), controller.name),
            client,
            clock: environment.clock.clone(),
            options: environment.options.clone(),
            queue: environment.metrics.queue(controller.name),
            metrics: environment.metrics.clone(),
            informers: informers.clone(),
        };
        match (controller.start)(&setup, &context) {
            Some(reconcile) => {
                let needs = setup.take_requested();
                made.push(Worker::new(controller, &context, reconcile, needs, environment.metrics.clone()));
            }
            None => {
                tracing::info!(controller = controller.name, "controller not started: its feature is not configured")
            }
        }
    }
    // All handlers are registered before the first list is requested.
    metadata_monitor.start(&informers);
    informers.start();
    let loops = made.into_iter().map(|(worker, count)| worker.spawn(count)).collect();
    Handle { loops, informers, metadata_monitor }
}

/// State shared by the workers of a controller.
struct Worker {
    name: &'static str,
    queue: Arc<Queue>,
    reconcile: Box<dyn Reconcile>,
    /// Nothing is reconciled before these informers have synced, since missing objects would look deleted. An
    /// informer that cannot list blocks only the controllers that need it.
    needs: Vec<Arc<Informer>>,
    /// The informer of the objects whose keys are reconciled, if they are those of one resource.
    objects: Option<Arc<Informer>>,
    informers: Arc<Informers>,
    barrier: Barrier,
    metrics: Metrics,
}

impl Worker {
    fn new(
        controller: &Descriptor,
        context: &Context,
        reconcile: Box<dyn Reconcile>,
        needs: Vec<Arc<Informer>>,
        metrics: Metrics,
    ) -> (Arc<Worker>, usize) {
        let worker = Worker {
            name: controller.name,
            queue: context.queue.clone(),
            reconcile,
            objects: controller.resource.and_then(|resource| find_informer(&needs, resource)),
            needs,
            informers: context.informers.clone(),
            barrier: Barrier::default(),
            metrics,
        };
        (Arc::new(worker), (controller.workers)(&context.options).max(1))
    }

    fn spawn(self: Arc<Worker>, count: usize) -> ControllerLoop {
        let workers = (0..count).map(|_| tokio::spawn(self.clone().work())).collect();
        ControllerLoop { name: self.name, queue: self.queue.clone(), workers: Mutex::new(workers) }
    }

    async fn work(self: Arc<Worker>) {
        let synced = async {
            for informer in &self.needs {
                let _ = informer.synced().wait_for(|synced| *synced).await;
            }
        };
        if !self.unless_closed(synced).await {
            return;
        }
        while let Some(key) = self.queue.next().await {
            let processed = catch_unwind(pin!(self.process(&key))).await;
            let is_open = processed.unwrap_or_else(|panic| {
                self.metrics.panic(self.name);
                tracing::error!(controller = self.name, key = &*key, %panic, "worker panicked, requeueing");
                self.queue.done(key, WorkResult::Failed);
                true
            });
            if !is_open {
                return;
            }
        }
    }

    /// Reconciles a key; returns false if the queue was closed first.
    async fn process(&self, key: &Key) -> bool {
        let pending = self.barrier.take(key);
        if !pending.is_empty() && !self.unless_closed(self.informers.wait_for(&pending)).await {
            return false;
        }
        let work = self.cause(key).scope(self.contained(key));
        let (result, written) = writes::record_writes(work).await;
        self.barrier.keep(key, written, &self.informers);
        let ended = self.work_result(key, result);
        self.queue.done(key.clone(), ended);
        true
    }

    /// What the writes of this reconcile are for: the object as it is now.
    fn cause(&self, key: &str) -> Cause {
        match self.objects.as_ref().and_then(|objects| Some((objects, objects.store().object(key)?))) {
            Some((objects, object)) => Cause::object(self.name, objects.selection().resource, key, object.revision),
            None => Cause::component(self.name),
        }
    }

    /// A panic fails only its key; other keys are not affected.
    async fn contained(&self, key: &str) -> Result<Outcome> {
        catch_unwind(self.reconcile.reconcile(key)).await.unwrap_or_else(|panic| {
            self.metrics.panic(self.name);
            Err(Error::failed(format!("reconcile panicked: {panic}")))
        })
    }

    /// Returns false if the queue was closed first.
    async fn unless_closed(&self, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.queue.closed() => false,
            () = wait => true,
        }
    }

    fn work_result(&self, key: &Key, result: Result<Outcome>) -> WorkResult {
        match result {
            Ok(Outcome::Done) => WorkResult::Done,
            Ok(Outcome::RequeueAfter(pause)) => WorkResult::RequeueAfter(pause),
            Err(error) => {
                // Conflicts are expected when two controllers write one object.
                if error.is_conflict() {
                    tracing::debug!(controller = self.name, key = &**key, %error, "reconcile conflicted, requeueing");
                } else {
                    tracing::warn!(controller = self.name, key = &**key, %error, "reconcile failed, requeueing");
                }
                WorkResult::Failed
            }
        }
    }
}

/// Versions of a resource have the same keys and revisions.
fn find_informer(informers: &[Arc<Informer>], resource: (&str, &str)) -> Option<Arc<Informer>> {
    let is_of = |informer: &&Arc<Informer>| {
        let other = informer.selection().resource;
        (other.group, other.plural) == resource
    };
    informers.iter().find(is_of).cloned()
}

#[cfg(test)]
mod tests;
