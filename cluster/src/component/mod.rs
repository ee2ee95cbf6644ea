//! The common parts of the components besides the API server: flags, a client for the API server, a port for health and
//! metrics, and leader election. Each component implements [`ComponentWork`].

mod accounts;
pub(crate) mod delegated;
pub mod flags;
pub mod follow;
pub(crate) mod port;
pub mod remote;
pub(crate) mod skew;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::election::{Election, Lock, Timing};
use client::{Client, Events, Fence, Metrics, Random};
use server::http::component::{ComponentRequest, Reply};
use stdx::clock::{Clock, SystemClock};
use store::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use flags::Common;
use follow::FileFollower;
pub use port::Port;
use remote::Remote;

/// The work of a component, and what its port serves.
pub trait ComponentWork: Send + Sync + 'static {
    /// Starts: this process leads, or there is no election.
    fn start(&self) -> Result<()>;

    /// Finishes its current work, whether or not it has started.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Stops immediately: another process leads by now.
    fn abort(&self);

    /// The checks of `healthz`, `livez` or `readyz`, by name, and whether each passes.
    fn checks(&self, probe: &str) -> Vec<(&'static str, bool)>;

    /// The metrics of the component, in the text format of Prometheus.
    fn metrics(&self) -> String;

    /// The attributes of a request for a resource, for authorization; None for a plain path.
    fn attributes(&self, _question: &ComponentRequest) -> Option<Tree> {
        None
    }

    /// Responses for further paths; None for unknown ones.
    fn show(&self, _question: &ComponentRequest) -> Option<Reply> {
        None
    }

    /// Whether the component accepts methods besides GET and HEAD.
    fn takes(&self, _question: &ComponentRequest) -> bool {
        false
    }

    /// Annotations of the leader's lease.
    fn announces(&self, _port: &Port) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The dependencies of a component.
#[derive(Clone)]
pub struct ComponentContext {
    pub remote: Remote,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    /// None without an election.
    fence: Option<Fence>,
}

impl ComponentContext {
    /// A client of the component itself, whose writes require the lease.
    pub fn client(&self) -> Client {
        self.fenced(self.remote.client())
    }

    /// The same of a service account of kube-system.
    pub fn client_as(&self, account: &'static str) -> Client {
        self.fenced(self.remote.client_as(account))
    }

    fn fenced(&self, client: Client) -> Client {
        match &self.fence {
            Some(fence) => client.fenced(fence.clone()),
            None => client,
        }
    }
}

/// A component at work.
pub struct ComponentHandle {
    /// The address at which health and metrics are served.
    pub address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    work: JoinHandle<Result<()>>,
}

impl ComponentHandle {
    /// Waits until the component ends without a stop, which happens when it has lost its lease.
    pub async fn ended(&mut self) -> Result<()> {
        (&mut self.work).await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }

    /// Lets the component finish its current work, and releases the lease.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.work.await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }
}

/// Runs a component whose flags are checked.
pub async fn run<W: ComponentWork>(
    common: Common,
    make: impl FnOnce(&ComponentContext) -> Result<W>,
) -> Result<ComponentHandle> {
    let limit = common.kube_api_qps.map(|per_second| (per_second, common.kube_api_burst));
    let mut follow = FileFollower::default();
    let remote = Remote::open(common.name, common.kubeconfig.as_deref(), &mut follow)?.limited(limit);
    skew::check_server(&remote.client(), common.name, skew::CONTROL_PLANE_VERSIONS).await?;
    let (stop, stopped) = watch::channel(false);
    let tools = ComponentContext {
        remote,
        metrics: Metrics::default(),
        clock: Arc::new(SystemClock),
        fence: common.leader_elect.then(Fence::default),
    };
    let work = Arc::new(make(&tools)?);
    let port = port::serve(&common, work.clone(), stopped.clone(), &mut follow).await?;
    let address = port.as_ref().map(|port| port.address);
    tokio::spawn(follow.run(stopped.clone()));
    let leads = LeaderWork { common, tools, work, port: port.map(Arc::new) };
    Ok(ComponentHandle { address, stop, work: tokio::spawn(leads.run(stopped)) })
}

/// Runs the component while it holds the lease.
struct LeaderWork<W> {
    common: Common,
    tools: ComponentContext,
    work: Arc<W>,
    port: Option<Arc<Port>>,
}

/// Upstream's timing, for API servers that do not fence writes: there a leader must stop before another can lead.
const UNFENCED: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
    stops_at_deadline: true,
};
/// How often the version of a server that does not respond yet is requested.
const VERSION_RETRY: Duration = Duration::from_millis(500);

/// The flags' timing; a leader that may write without a lease stops at its deadline.
fn election_timing(common: &Common, is_fenced: bool) -> Timing {
    let durations = |timing: Timing| (timing.lease_duration, timing.renew_deadline, timing.retry_period);
    if !is_fenced && durations(common.timing) == durations(Timing::default()) {
        return UNFENCED;
    }
    Timing { stops_at_deadline: !is_fenced || common.stops_at_deadline(), ..common.timing }
}

/// Whether the API server rejects writes of a component that leads no more. Waits for its version.
async fn serves_fences(client: &Client) -> bool {
    loop {
        match client.get_path("/version", "").await {
            Ok(version) => return version.str("gitVersion").contains("+tiphys"),
            Err(_) => tokio::time::sleep(VERSION_RETRY).await,
        }
    }
}

impl<W: ComponentWork> LeaderWork<W> {
    async fn run(self, mut stopped: watch::Receiver<bool>) -> Result<()> {
        let Some(fence) = self.tools.fence.clone() else {
            self.work.start()?;
            let _ = stopped.wait_for(|stopped| *stopped).await;
            self.work.stop().await;
            return Ok(());
        };
        let elected = async {
            let timing = election_timing(&self.common, serves_fences(&self.tools.remote.client()).await);
            let mut election = self.election(fence, timing);
            election.acquire().await;
            election
        };
        let election = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => None,
            election = Box::pin(elected) => Some(election),
        };
        let Some(mut election) = election else {
            self.work.stop().await;
            return Ok(());
        };
        self.work.start()?;
        let lost = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => false,
            () = election.renew_until_lost() => true,
        };
        if lost {
            // Another process leads by now: stop without finishing.
            self.work.abort();
            return Err(Error::Ended("leader election lost".to_string()));
        }
        self.work.stop().await;
        election.release().await;
        Ok(())
    }

    fn election(&self, fence: Fence, timing: Timing) -> Election {
        let (common, tools) = (&self.common, &self.tools);
        let random = Random::seeded(Random::fresh_seed());
        let identity = format!("{}_{:016x}{:016x}", server::hostname(), random.next(), random.next());
        let client = tools.remote.client();
        let events = Events::start(tools.clock.clone(), tools.metrics.clone());
        let (work, port) = (self.work.clone(), self.port.clone());
        Election {
            lock: Lock { namespace: common.lease_namespace.clone(), name: common.lease_name.clone(), identity },
            timing,
            clock: tools.clock.clone(),
            random: Arc::new(random),
            recorder: events.recorder(client.clone(), common.name),
            client,
            metrics: tools.metrics.clone(),
            fence,
            announces: Box::new(move || port.as_ref().map(|port| work.announces(port)).unwrap_or_default()),
            observed: Default::default(),
        }
    }
}
