//! The control loops: a folder a controller, each an ordinary client of the API that acts as its own
//! service account. A loop decides by pure functions on what informers hold; nothing polls.

mod cluster_role_aggregation;
#[allow(dead_code)]
mod cron_job;
#[allow(dead_code)]
mod disruption;
#[allow(dead_code)]
mod job;
#[allow(dead_code)]
mod pod_garbage_collector;
mod root_ca;
mod service_account;
mod support;
#[allow(dead_code)]
mod ttl_after_finished;

use std::pin::Pin;
use std::sync::Arc;

use client::{Client, Informer, Key, Queue, Result, Selection, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the controllers are given.
pub struct Environment {
    /// Reads for all of them, so that each resource is watched once.
    pub reader: Client,
    /// The client that acts as a service account of kube-system.
    pub writer: Box<dyn Fn(&'static str) -> Client + Send + Sync>,
    /// What verifies the API server inside the cluster, in PEM.
    pub root_ca: String,
}

struct Controller {
    /// Upstream's name, by which it is turned on and off.
    name: &'static str,
    /// The service account that it acts as.
    account: &'static str,
    start: fn(&mut Setup<'_>, Client, &Arc<Queue>) -> Box<dyn Reconcile>,
}

/// They start in this order and end in the reverse one.
static CONTROLLERS: &[Controller] = &[
    // Roles first: the others may need what is gathered.
    Controller {
        name: "clusterrole-aggregation-controller",
        account: "clusterrole-aggregation-controller",
        start: cluster_role_aggregation::start,
    },
    Controller {
        name: "serviceaccount-controller",
        account: "service-account-controller",
        start: service_account::start,
    },
    Controller {
        name: "root-ca-certificate-publisher-controller",
        account: "root-ca-cert-publisher",
        start: root_ca::start,
    },
];

pub type Reconciling<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Brings one key from what is to what should be.
trait Reconcile: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a>;
}

/// What controllers are made with: informers that they share.
struct Setup<'a> {
    environment: &'a Environment,
    informers: Vec<Informer>,
}

impl Setup<'_> {
    /// The informer of a selection; there is one, however many ask for it.
    fn informer(&mut self, selection: Selection) -> &mut Informer {
        let known = self.informers.iter().position(|informer| informer.selection() == selection);
        let at = known.unwrap_or_else(|| {
            self.informers.push(Informer::new(self.environment.reader.clone(), selection, Arc::new(Store::default())));
            self.informers.len() - 1
        });
        &mut self.informers[at]
    }
}

/// Controllers at work.
pub struct Running {
    loops: Vec<(Arc<Queue>, JoinHandle<()>)>,
    informers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Lets each finish what it is at, the last one first.
    pub async fn stop(self) {
        for (queue, task) in self.loops.into_iter().rev() {
            queue.close();
            let _ = task.await;
        }
        self.informers.iter().for_each(JoinHandle::abort);
    }
}

/// Starts those that are chosen, by upstream's rule: `*` for all, a name for one, `-name` for all but it.
pub fn start(environment: &Environment, chosen: &[String]) -> std::result::Result<Running, String> {
    check(chosen)?;
    let mut setup = Setup { environment, informers: Vec::new() };
    let mut made = Vec::new();
    for controller in CONTROLLERS.iter().filter(|controller| is_on(controller.name, chosen)) {
        let queue = Arc::new(Queue::default());
        let reconcile = (controller.start)(&mut setup, (environment.writer)(controller.account), &queue);
        made.push((controller.name, queue, reconcile));
    }
    let synced: Vec<watch::Receiver<bool>> = setup.informers.iter().map(Informer::synced).collect();
    let informers = setup.informers.into_iter().map(|informer| tokio::spawn(informer.run())).collect();
    let start = |(name, queue, reconcile): (_, Arc<Queue>, _)| {
        let task = tokio::spawn(work(name, queue.clone(), reconcile, synced.clone()));
        (queue, task)
    };
    Ok(Running { loops: made.into_iter().map(start).collect(), informers })
}

fn is_on(name: &str, chosen: &[String]) -> bool {
    let has = |text: &str| chosen.iter().any(|other| other == text);
    !has(&format!("-{name}")) && (has(name) || has("*"))
}

fn check(chosen: &[String]) -> std::result::Result<(), String> {
    // Nothing at all is a choice too: none of them.
    let known = |text: &&String| {
        let name = text.strip_prefix('-').unwrap_or(text);
        matches!(name, "" | "*") || CONTROLLERS.iter().any(|controller| controller.name == name)
    };
    match chosen.iter().find(|text| !known(text)) {
        None => Ok(()),
        Some(text) => Err(format!("{text:?} is no controller; there are {}", names().collect::<Vec<_>>().join(", "))),
    }
}

pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.name)
}

/// Nothing is decided before everything has been read once: what is missing would be taken for gone.
async fn work(name: &str, queue: Arc<Queue>, reconcile: Box<dyn Reconcile>, synced: Vec<watch::Receiver<bool>>) {
    let all_synced = async {
        for mut synced in synced {
            let _ = synced.wait_for(|synced| *synced).await;
        }
    };
    tokio::select! {
        () = all_synced => {}
        () = queue.closed() => return,
    }
    while let Some(key) = queue.next().await {
        let result = reconcile.reconcile(&key).await;
        if let Err(error) = &result {
            tracing::warn!(controller = name, key = &*key, %error, "it is tried again");
        }
        queue.done(key, result.is_err());
    }
}

/// The namespace that a key is of.
fn namespace_of(key: &Key) -> Key {
    key.split_once('/').map_or_else(|| key.clone(), |(namespace, _)| Key::from(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_upstreams_rule() {
        let check = |chosen: &str, want: usize| {
            let chosen: Vec<String> = chosen.split(',').map(str::to_string).collect();
            assert_eq!(names().filter(|name| is_on(name, &chosen)).count(), want, "{chosen:?}");
        };
        check("*", 3);
        check("*,-serviceaccount-controller", 2);
        check("serviceaccount-controller", 1);
        check("-*", 0);
        check("", 0);
        assert!(super::check(&["nonsense".to_string()]).is_err());
        assert!(super::check(&["-serviceaccount-controller".to_string(), "*".to_string()]).is_ok());
    }
}
