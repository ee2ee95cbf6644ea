//! Clients of this process that call its own API server without a connection.

use std::sync::Arc;

use api::Map;
use bytes::Bytes;
use client::{Body, Client, DiscardBody, Fence, ObjectFrames, Random, ResponseFuture, Transport};
use http::{Method, Request, Response};
use scheduler::config::Configuration;
use server::Server;
use server::filters::local;
use server::request::in_process;
use stdx::clock::{Clock, SystemClock};

/// Carries requests as one user.
struct InProcess {
    server: Arc<Server>,
    user: Arc<kinds::User>,
    writes: WriteMode,
}

/// The task in which writes are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// Each write in its own task: the writes of one controller are spread over the cores, as with many connections.
    Spawned,
    /// In the task of the caller, which has one for each write already.
    Inline,
}

impl InProcess {
    /// Passes the stored bytes to clients that accept them.
    async fn exchange(&self, mut request: Request<Bytes>) -> client::Result<Response<Body>> {
        if request.extensions_mut().remove::<ObjectFrames>().is_some() {
            request.extensions_mut().insert(in_process::ObjectFrames);
        }
        if request.extensions_mut().remove::<DiscardBody>().is_some() {
            request.extensions_mut().insert(in_process::DiscardBody);
        }
        let answer = self.handle(request).await?;
        let pieces = answer.extensions().get::<in_process::ObjectFrames>().is_some();
        let answer = answer.map(Body::new);
        Ok(if pieces { answer.map(Body::with_object_frames) } else { answer })
    }
}

impl InProcess {
    /// A read takes less time than spawning a task.
    async fn handle(&self, request: Request<Bytes>) -> client::Result<Response<server::request::body::Body>> {
        let (server, user) = (self.server.clone(), self.user.clone());
        if request.method() == Method::GET || self.writes == WriteMode::Inline {
            return Ok(local::handle(&server, request, user).await);
        }
        let work = tokio::spawn(async move { local::handle(&server, request, user).await });
        work.await.map_err(|error| client::Error::Transport(error.to_string()))
    }
}

impl Transport for InProcess {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}

/// A client of this process that acts as a user.
pub fn client(server: &Arc<Server>, name: String, groups: &[&str]) -> Client {
    LocalClients::new(server).client(MANAGER, name, groups)
}

/// The client for objects that a cluster creates when it starts.
pub fn administrator(server: &Arc<Server>) -> Client {
    LocalClients::new(server).client("tiphys", "tiphys".to_string(), &["system:masters"])
}

/// Wraps the transport: the identity, or faults of a test.
pub type TransportWrapper = Arc<dyn Fn(Arc<dyn Transport>) -> Arc<dyn Transport> + Send + Sync>;

/// Builds clients of this process.
#[derive(Clone)]
pub struct LocalClients {
    pub server: Arc<Server>,
    pub around: TransportWrapper,
    pub clock: Arc<dyn Clock>,
    /// The reporting instance of events.
    pub host: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The lease that writes of controllers and scheduler require.
    pub fence: Option<Fence>,
}

/// The field managers and user agents of components.
const MANAGER: &str = "kube-controller-manager";
const SERVER: &str = "kube-apiserver";
const SCHEDULER: &str = "kube-scheduler";
const KUBELET: &str = "kubelet";

impl LocalClients {
    /// Clients of a server in this process.
    pub fn new(server: &Arc<Server>) -> LocalClients {
        LocalClients {
            server: server.clone(),
            around: Arc::new(|transport| transport),
            clock: Arc::new(SystemClock),
            host: server::hostname(),
            seed: Random::fresh_seed(),
            fence: None,
        }
    }

    /// A client that acts as a user.
    pub fn client(&self, agent: &'static str, name: String, groups: &[&str]) -> Client {
        self.client_with(WriteMode::Spawned, agent, name, groups)
    }

    fn client_with(&self, writes: WriteMode, agent: &'static str, name: String, groups: &[&str]) -> Client {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_string).collect();
        let user = Arc::new(kinds::User { name, uid: String::new(), groups, extra: Map::new() });
        let client =
            Client::new((self.around)(Arc::new(InProcess { server: self.server.clone(), user, writes })), agent);
        match &self.fence {
            Some(fence) => client.fenced(fence.clone()),
            None => client,
        }
    }

    /// The controllers: they read as their manager and write as their own accounts.
    pub fn controllers(&self, options: Arc<controllers::Options>) -> controllers::Environment {
        let local = self.clone();
        let reader = self.client(MANAGER, "system:kube-controller-manager".to_string(), &[]);
        let manager = reader.clone();
        // One without an account acts as the manager itself.
        let writer = move |account: &'static str| match account {
            "" => manager.clone(),
            account => {
                let name = format!("system:serviceaccount:kube-system:{account}");
                local.client(MANAGER, name, &["system:serviceaccounts", "system:serviceaccounts:kube-system"])
            }
        };
        controllers::Environment {
            reader,
            writer: Box::new(writer),
            options,
            clock: self.clock.clone(),
            metrics: client::Metrics::default(),
            seed: self.seed,
        }
    }

    /// The control loops of the API server itself.
    pub(crate) fn api_server_loops(&self) -> controllers::Environment {
        let client = self.client(SERVER, "system:apiserver".to_string(), &["system:masters"]);
        let service_node_ports = self.server.config.node_ports.clone();
        controllers::Environment {
            reader: client.clone(),
            writer: Box::new(move |_| client.clone()),
            options: Arc::new(controllers::Options { service_node_ports, ..controllers::Options::default() }),
            clock: self.clock.clone(),
            metrics: client::Metrics::default(),
            seed: self.seed,
        }
    }

    /// The environment of the scheduler.
    pub fn scheduler(&self, configuration: Configuration) -> scheduler::Environment {
        scheduler::Environment {
            client: self.client_with(WriteMode::Inline, SCHEDULER, "system:kube-scheduler".to_string(), &[]),
            configuration,
            extender_transport: None,
            host: self.host.clone(),
            clock: self.clock.clone(),
            metrics: scheduler::Metrics::default(),
            client_metrics: client::Metrics::default(),
            seed: self.seed,
        }
    }

    /// The client of a kubelet, as its node.
    pub fn node(&self, name: &str) -> Client {
        self.client(KUBELET, format!("system:node:{name}"), &["system:nodes"])
    }

    /// The fake nodes: each writes as itself; the reader for all of them has the permissions of a scheduler.
    pub fn fake_nodes(&self) -> fakenode::Environment {
        let local = self.clone();
        let node = move |name: &str| local.node(name);
        fakenode::Environment {
            reader: self.client(SCHEDULER, "system:kube-scheduler".to_string(), &[]),
            node: Box::new(node),
            clock: self.clock.clone(),
            seed: self.seed,
        }
    }
}
