//! The kubelet's server: logs, exec, attach, port-forward, statistics, its pods. Authentication and authorization come
//! before it; [`access`] maps a path to its authorization attributes.

pub mod access;
mod body;
mod health;
mod host;
mod logs;
mod route;
mod running;
mod stats;
mod streams;
mod system_logs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::query::Query;
use cri::{DynImageService, DynRuntimeService};
use http::{Method, Request, Response, StatusCode, header};
use stdx::clock::Clock;

pub(crate) use body::Body;
use body::{json, text};
pub use host::KubeletHost;
use route::Route;

pub use crate::liveness::SyncLoopError;
use crate::resources::usage::Files;

/// The data of responses.
pub trait Host: Send + Sync + 'static {
    /// The name of the Node object.
    fn node_name(&self) -> &str;

    /// The pods of this node, including static ones, each with its newest status.
    fn pods(&self) -> Vec<Tree>;

    /// A pod of this node by its name.
    fn pod(&self, namespace: &str, name: &str) -> Option<Tree>;

    /// The runtime service of CRI.
    fn runtime(&self) -> Arc<dyn DynRuntimeService>;

    /// The image service of CRI.
    fn images(&self) -> Arc<dyn DynImageService>;

    /// The KubeletConfiguration in effect.
    fn configuration(&self) -> Tree;

    /// The kubelet's metrics, in Prometheus' text format.
    fn metrics(&self) -> String;

    /// The same of probes alone.
    fn probe_metrics(&self) -> String;

    /// Whether pods are still synced.
    fn sync_loop(&self) -> Result<(), SyncLoopError>;

    /// The time of statistics.
    fn clock(&self) -> Arc<dyn Clock>;

    /// The directory with pods' directories.
    fn root_dir(&self) -> PathBuf;

    /// The disk usage of pods, by UID.
    fn files<'a>(&'a self, _: &'a [Tree]) -> UsageFuture<'a> {
        Box::pin(async { BTreeMap::new() })
    }
}

pub(crate) type UsageFuture<'a> = Pin<Box<dyn Future<Output = BTreeMap<String, Files>> + Send + 'a>>;

/// Which handlers are enabled, and their timeouts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// exec, attach, logs and the like.
    pub(crate) debugging_handlers: bool,
    /// `/logs/`.
    pub(crate) system_log_handler: bool,
    /// Lines of services by `/logs/?query=NAME`.
    pub(crate) system_log_query: bool,
    pub(crate) streaming_idle: Duration,
    /// The machine's log directory.
    pub(crate) log_dir: PathBuf,
}

impl Settings {
    /// The settings of a configuration.
    pub fn of(config: &crate::Config) -> Settings {
        Settings {
            debugging_handlers: config.serving.debugging_handlers,
            system_log_handler: config.serving.system_log_handler,
            system_log_query: config.serving.system_log_query,
            streaming_idle: config.streaming_connection_idle_timeout,
            ..Settings::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            debugging_handlers: true,
            system_log_handler: true,
            system_log_query: false,
            streaming_idle: Duration::from_secs(4 * 3600),
            log_dir: "/var/log".into(),
        }
    }
}

pub(crate) type ServerResponse = Response<Body>;

/// The kubelet's server.
pub struct KubeletServer {
    host: Arc<dyn Host>,
    settings: Settings,
    rates: stats::Rates,
}

impl KubeletServer {
    /// A server for a node.
    pub fn new(host: Arc<dyn Host>, settings: Settings) -> KubeletServer {
        KubeletServer { host, settings, rates: stats::Rates::default() }
    }

    /// The name of the Node object.
    pub fn node_name(&self) -> &str {
        self.host.node_name()
    }

    /// Responds to an authorized request. An upgrade request still has hyper's upgrade extension.
    pub async fn respond(&self, request: Request<()>) -> ServerResponse {
        let path = request.uri().path().to_string();
        let route = Route::of(&path);
        if let Some(refusal) = self.rejection(&route, request.method()) {
            return refusal;
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match route {
            Route::Health(name) => health::respond(&self.host.sync_loop(), name, query.has("verbose")),
            Route::Pods => json(&pod_list(self.host.pods())),
            Route::Configuration => json(&api::tree! { "kubeletconfig" => self.host.configuration() }),
            Route::Metrics => body::metrics(self.host.metrics()),
            Route::ProbeMetrics => body::metrics(self.host.probe_metrics()),
            Route::ResourceMetrics => body::metrics(stats::resource(&self.usage().await)),
            Route::CadvisorMetrics => body::metrics(stats::cadvisor(&self.usage().await)),
            Route::Summary => json(&stats::summary(&self.usage().await, query.flag("only_cpu_and_memory"))),
            Route::RunningPods => running::respond(&*self.host).await,
            Route::SystemLogs(place) => system_logs::respond(&self.settings, place, &query).await,
            Route::Logs(place) => logs::respond(&*self.host, place, &query).await,
            Route::Exec(place) => self.streams().exec(request, place, &query).await,
            Route::Attach(place) => self.streams().attach(request, place, &query).await,
            Route::PortForward(place) => self.streams().port_forward(request, place, &query).await,
            Route::Run(place) => self.streams().run(place, &query).await,
            Route::Disabled(why) => text(StatusCode::METHOD_NOT_ALLOWED, why),
            Route::Unknown => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn usage(&self) -> stats::Usage {
        stats::gather(&*self.host, &self.rates).await
    }

    fn streams(&self) -> streams::Streams<'_> {
        streams::Streams { host: &*self.host, idle: self.settings.streaming_idle }
    }

    fn rejection(&self, route: &Route<'_>, method: &Method) -> Option<ServerResponse> {
        if route.is_debugging() && !self.settings.debugging_handlers {
            return Some(text(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.\n"));
        }
        if matches!(route, Route::SystemLogs(_)) && !self.settings.system_log_handler {
            return Some(text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.\n"));
        }
        let allowed = route.methods();
        if allowed.is_empty() || allowed.contains(&method.as_str()) {
            return None;
        }
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        if let Ok(value) = allowed.join(", ").parse() {
            refusal.headers_mut().insert(header::ALLOW, value);
        }
        Some(refusal)
    }
}

fn pod_list(pods: Vec<Tree>) -> Tree {
    api::tree! { "kind" => "PodList", "apiVersion" => "v1", "metadata" => api::tree! {}, "items" => pods }
}
