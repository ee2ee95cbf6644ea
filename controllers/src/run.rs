//! Controllers at work: queues, workers, and the order in which they end.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use client::{Client, Clock, Ended, Error, Events, Informer, Informers, Key, Metrics, Queue, Random, Result, written};
use stdx::sync::Mutex;
use tokio::task::JoinHandle;

use crate::barrier::Barrier;
use crate::choice;
use crate::framework::{Context, Descriptor, Outcome, Reconcile, Reconciling, Setup};
use crate::list::{CONTROLLERS, OF_SERVER};
use crate::options::Options;
use crate::support::everything::Everything;

/// What the controllers are given.
pub struct Environment {
    /// Reads for all of them, so that each resource is watched once.
    pub reader: Client,
    /// The client that acts as a service account of kube-system.
    pub writer: Box<dyn Fn(&'static str) -> Client + Send + Sync>,
    pub options: Arc<Options>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    /// Where all that is left to chance starts from.
    pub seed: u64,
}

/// Controllers at work.
pub struct Running {
    loops: Vec<Loop>,
    informers: Arc<Informers>,
    everything: Arc<Everything>,
}

/// One controller at work.
struct Loop {
    name: &'static str,
    queue: Arc<Queue>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    /// Lets each finish what it is at, the last one first.
    pub async fn stop(&self) {
        for one in self.loops.iter().rev() {
            one.queue.close();
            for worker in one.take() {
                let _ = worker.await;
            }
        }
        self.everything.stop();
        self.informers.stop();
    }

    /// Ends all at once, in the middle of what they are at.
    pub fn abort(&self) {
        self.loops.iter().flat_map(Loop::take).for_each(|worker| worker.abort());
        self.everything.stop();
        self.informers.stop();
    }

    /// Says at any time whether all workers live.
    pub fn watch_health(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let of = |one: &Loop| {
            let workers = one.workers.lock();
            workers.iter().map(JoinHandle::abort_handle).collect::<Vec<_>>()
        };
        let workers: Vec<_> = self.loops.iter().flat_map(of).collect();
        move || !workers.iter().any(tokio::task::AbortHandle::is_finished)
    }

    /// Whether all workers of each controller live.
    pub fn health(&self) -> Vec<(&'static str, bool)> {
        self.loops.iter().map(|one| (one.name, one.is_well())).collect()
    }
}

impl Loop {
    fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.workers.lock())
    }

    fn is_well(&self) -> bool {
        let workers = self.workers.lock();
        !workers.is_empty() && !workers.iter().any(JoinHandle::is_finished)
    }
}

/// Starts those that are chosen, by upstream's rule: `*` for all, a name for one, `-name` for all but it.
pub fn start(environment: Environment, chosen: &[String]) -> std::result::Result<Running, String> {
    choice::check(chosen)?;
    Ok(run(environment, CONTROLLERS.iter().filter(|controller| choice::is_on(controller, chosen))))
}

/// Starts what belongs to an API server, whoever runs the controllers. The environment acts as the server.
pub fn start_of_server(environment: Environment) -> Running {
    run(environment, OF_SERVER.iter())
}

fn run(environment: Environment, list: impl Iterator<Item = &'static Descriptor>) -> Running {
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Informers::new(environment.reader.clone(), random.clone());
    let informers = Arc::new(informers.resyncing(environment.options.min_resync_period));
    let everything = Everything::new(environment.reader.clone(), random.clone(), environment.metrics.clone());
    let setup = Setup::new(informers.clone(), everything.clone());
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
            random: random.clone(),
            metrics: environment.metrics.clone(),
            informers: informers.clone(),
        };
        match (controller.start)(&setup, &context) {
            Some(reconcile) => {
                let needs = setup.take_asked();
                made.push(Worker::new(controller, &context, reconcile, needs, environment.metrics.clone()));
            }
            None => tracing::info!(controller = controller.name, "it has nothing to do and does not run"),
        }
    }
    // Only now: every listener is registered before the first list is asked for.
    everything.start(&informers);
    informers.start();
    let loops = made.into_iter().map(|(worker, count)| worker.spawn(count)).collect();
    Running { loops, informers, everything }
}

/// What the workers of a controller share.
struct Worker {
    name: &'static str,
    queue: Arc<Queue>,
    reconcile: Box<dyn Reconcile>,
    /// Nothing is decided before these have listed once: what is missing would be taken for gone. One that
    /// cannot list holds up only those who need it.
    needs: Vec<Arc<Informer>>,
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
            needs,
            informers: context.informers.clone(),
            barrier: Barrier::default(),
            metrics,
        };
        (Arc::new(worker), (controller.workers)(&context.options).max(1))
    }

    fn spawn(self: Arc<Worker>, count: usize) -> Loop {
        let workers = (0..count).map(|_| tokio::spawn(self.clone().work())).collect();
        Loop { name: self.name, queue: self.queue.clone(), workers: Mutex::new(workers) }
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
            let pending = self.barrier.take(&key);
            if !pending.is_empty() && !self.unless_closed(self.informers.wait_for(&pending)).await {
                return;
            }
            let (result, written) = written::noting(self.contained(&key)).await;
            self.barrier.keep(&key, written, &self.informers);
            let ended = self.judge(&key, result);
            self.queue.done(key, ended);
        }
    }

    /// A panic is the failure of its key: others go on.
    async fn contained(&self, key: &str) -> Result<Outcome> {
        Contained(self.reconcile.reconcile(key)).await.unwrap_or_else(|panic| {
            self.metrics.panic(self.name);
            Err(Error::Failed(format!("a panic: {panic}")))
        })
    }

    /// False where the queue was closed first.
    async fn unless_closed(&self, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.queue.closed() => false,
            () = wait => true,
        }
    }

    fn judge(&self, key: &Key, result: Result<Outcome>) -> Ended {
        match result {
            Ok(Outcome::Done) => Ended::Done,
            Ok(Outcome::Again(pause)) => Ended::Again(pause),
            Err(error) => {
                // Two who write to one object is everyday life.
                if error.is_conflict() {
                    tracing::debug!(controller = self.name, key = &**key, %error, "it is tried again");
                } else {
                    tracing::warn!(controller = self.name, key = &**key, %error, "it is tried again");
                }
                Ended::Failed
            }
        }
    }
}

/// A reconcile, or the text of its panic.
struct Contained<'a>(Reconciling<'a>);

impl Future for Contained<'_> {
    type Output = std::result::Result<Result<Outcome>, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        // What the panic left half done is in the reconcile itself, which is not polled again.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(text_of(&*panic).to_string())),
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

#[cfg(test)]
mod tests;
