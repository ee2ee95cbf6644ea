//! What the components besides the API server have in common: flags, a client for the API server, a port for health and
//! metrics, and leader election. Each implements [`Work`].

mod accounts;
pub(crate) mod delegated;
pub mod flags;
pub mod follow;
pub(crate) mod port;
pub mod remote;

use std::net::SocketAddr;
use std::sync::Arc;

use api::Tree;
use client::election::{Election, Lock};
use client::{Client, Events, Fence, Metrics, Random};
use server::http::component::{Question, Reply};
use stdx::clock::{Clock, SystemClock};
use store::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use flags::Common;
use follow::Follow;
pub use port::Port;
use remote::Remote;

/// The work of a component, and what its port serves.
pub trait Work: Send + Sync + 'static {
    /// Starts: this process leads, or there is no election.
    fn start(&self) -> Result<()>;

    /// Finishes what it is at, whether or not it has begun.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Stops immediately: another process leads by now.
    fn abort(&self);

    /// The checks of `healthz`, `livez` or `readyz`, each by its name and whether it holds.
    fn checks(&self, probe: &str) -> Vec<(&'static str, bool)>;

    fn metrics(&self) -> String;

    /// What a question is about, where it is more than a path: the attributes of a resource.
    fn attributes(&self, _question: &Question) -> Option<Tree> {
        None
    }

    /// Answers to further paths; none where there is nothing.
    fn show(&self, _question: &Question) -> Option<Reply> {
        None
    }

    /// Whether it handles methods besides GET and HEAD.
    fn takes(&self, _question: &Question) -> bool {
        false
    }

    /// Annotations of the leader's lease.
    fn announces(&self, _port: &Port) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// What a component works with.
#[derive(Clone)]
pub struct Tools {
    pub remote: Remote,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    /// None without an election.
    fence: Option<Fence>,
}

impl Tools {
    /// A client of the component itself, whose writes go by its lease.
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
pub struct Running {
    /// Where health and metrics are served.
    pub address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    work: JoinHandle<Result<()>>,
}

impl Running {
    /// Waits until it ends by itself, which is when it has lost its lease.
    pub async fn ended(&mut self) -> Result<()> {
        (&mut self.work).await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }

    /// Lets it finish what it is at, and gives the lease back.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.work.await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }
}

/// Runs a component whose flags are checked.
pub async fn run<W: Work>(common: Common, make: impl FnOnce(&Tools) -> Result<W>) -> Result<Running> {
    let file = common.kubeconfig.clone().unwrap_or_default();
    let limit = common.kube_api_qps.map(|per_second| (per_second, common.kube_api_burst));
    let remote = Remote::read(common.name, "kubeconfig", &file)?.limited(limit);
    let mut follow = Follow::default();
    remote.follow("kubeconfig", &file, &mut follow);
    let (stop, stopped) = watch::channel(false);
    let tools = Tools {
        remote,
        metrics: Metrics::default(),
        clock: Arc::new(SystemClock),
        fence: common.leader_elect.then(Fence::default),
    };
    let work = Arc::new(make(&tools)?);
    let port = port::serve(&common, work.clone(), stopped.clone(), &mut follow).await?;
    let address = port.as_ref().map(|port| port.address);
    tokio::spawn(follow.run(stopped.clone()));
    let leads = Leads { common, tools, work, port: port.map(Arc::new) };
    Ok(Running { address, stop, work: tokio::spawn(leads.run(stopped)) })
}

/// One that works while it has the lease.
struct Leads<W> {
    common: Common,
    tools: Tools,
    work: Arc<W>,
    port: Option<Arc<Port>>,
}

impl<W: Work> Leads<W> {
    async fn run(self, mut stopped: watch::Receiver<bool>) -> Result<()> {
        let Some(fence) = self.tools.fence.clone() else {
            self.work.start()?;
            let _ = stopped.wait_for(|stopped| *stopped).await;
            self.work.stop().await;
            return Ok(());
        };
        let mut election = self.election(fence);
        let leads = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => false,
            () = election.acquire() => true,
        };
        if !leads {
            self.work.stop().await;
            return Ok(());
        }
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

    fn election(&self, fence: Fence) -> Election {
        let (common, tools) = (&self.common, &self.tools);
        let random = Random::seeded(Random::fresh_seed());
        let identity = format!("{}_{:016x}{:016x}", server::hostname(), random.next(), random.next());
        let client = tools.remote.client();
        let events = Events::start(tools.clock.clone(), tools.metrics.clone());
        let (work, port) = (self.work.clone(), self.port.clone());
        Election {
            lock: Lock { namespace: common.lease_namespace.clone(), name: common.lease_name.clone(), identity },
            timing: common.timing,
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
