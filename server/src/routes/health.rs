//! Health, readiness, metrics and the version: paths that are not resources.

mod checks;
mod slis;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use api::{Tree, tree};
use http::Method;
use stdx::cidr::IpNet;

use crate::call::{HttpResponse, build_response, json_response, text};
use crate::request::head::RequestHead;
use crate::routes::Routes;

pub use slis::Slis;

/// The state of startup and shutdown for the health checks.
pub struct Health {
    /// A bit for each [`Step`] of the start that is done.
    done: AtomicU8,
    leaving: AtomicBool,
    /// Seconds since the Unix epoch.
    started: i64,
    slis: Slis,
}

/// The steps in which a starting server creates its own objects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Cluster-scoped objects: namespaces, priority classes, levels and flows, groups, addresses.
    Cluster,
    /// The roles and bindings of a new cluster, as they should be.
    Roles,
    /// Objects that describe this server: its CA bundles, its lease.
    Identity,
    /// The `kubernetes` service and its endpoints.
    Service,
    /// The loops that repair the addresses and ports of services run.
    Repair,
}

impl Health {
    pub(crate) fn new(started: i64) -> Health {
        Health { done: AtomicU8::new(0), leaving: AtomicBool::new(false), started, slis: Slis::default() }
    }

    /// Marks a step of the start as done.
    pub fn set_done(&self, step: Step) {
        self.done.fetch_or(1 << step as u8, Ordering::Release);
    }

    fn is_done(&self, step: Step) -> bool {
        self.done.load(Ordering::Acquire) & (1 << step as u8) != 0
    }

    /// The server is about to shut down, and is not ready for new clients.
    pub fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }
}

pub(crate) async fn route(routes: &Routes, head: &RequestHead) -> Option<HttpResponse> {
    let path = head.path.as_str();
    if path == "/version" || path == "/version/" {
        return Some(version(head));
    }
    if path == "/" {
        return Some(json_response(200, &paths(routes)));
    }
    if path == "/statusz" || path == "/flagz" {
        return Some(text(200, &status_page(routes, path)));
    }
    if let Some(response) = crate::routes::openid::route(routes, head) {
        return Some(response);
    }
    if path == "/metrics" {
        routes.fairness.show();
        return Some(build_response(200, "text/plain; version=0.0.4; charset=utf-8", routes.metrics.text()));
    }
    checks::route(routes, head).await
}

/// The version of Kubernetes that this server implements.
fn version(head: &RequestHead) -> HttpResponse {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return crate::call::status_response(
            &api::status::Status::method_not_allowed(),
            crate::request::negotiate::Accepted::JSON,
        );
    }
    let minor = api::version::minor();
    json_response(
        200,
        &tree! {
            "major" => "1",
            "minor" => minor.to_string(),
            "emulationMajor" => "1",
            "emulationMinor" => minor.to_string(),
            "minCompatibilityMajor" => "1",
            "minCompatibilityMinor" => (minor - 1).to_string(),
            "gitVersion" => api::version::git_version(),
            "gitCommit" => option_env!("TIPHYS_COMMIT").unwrap_or("unknown"),
            "gitTreeState" => "clean",
            "buildDate" => "1970-01-01T00:00:00Z",
            "goVersion" => "none (rust)",
            "compiler" => "rustc",
            "platform" => format!("linux/{}", architecture()),
        },
    )
}

/// Paths other than groups and checks.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/flagz",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/statusz",
    "/version",
];

/// The machine's kind by Go's name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The served paths, for requests of the root.
fn paths(routes: &Routes) -> Tree {
    let mut paths: Vec<String> = PATHS.iter().map(|path| path.to_string()).collect();
    paths.extend(checks::paths());
    for resource in routes.registry.storage.resources.built_in() {
        let kind = &resource.kind;
        if !kind.group().is_empty() {
            paths.push(format!("/apis/{}", kind.group()));
            paths.push(format!("/apis/{}/{}", kind.group(), kind.version()));
        }
    }
    paths.sort();
    paths.dedup();
    tree! { "paths" => Tree::List(paths.into_iter().map(Tree::from).collect()) }
}

/// The /statusz and /flagz pages: version, start time and settings of the component.
fn status_page(routes: &Routes, path: &str) -> String {
    let name = path.trim_start_matches('/');
    let head = format!(
        "\napiserver {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n"
    );
    if name == "flagz" {
        let config = &routes.registry.config;
        let cidrs: Vec<String> = config.service_cidrs.iter().map(IpNet::to_string).collect();
        return format!(
            "{head}advertise-address={}\nevent-ttl={}s\nsecure-port={}\nservice-cluster-ip-range={}\nservice-node-port-range={}-{}\n",
            config.advertise_address,
            config.event_ttl.as_secs(),
            config.port,
            cidrs.join(","),
            config.node_ports.start(),
            config.node_ports.end(),
        );
    }
    let up = routes.registry.now() - routes.health.started;
    format!(
        "{head}Started:  {}\nUp:  {}\nBinary version:  {}\nEmulation version:  1.{}\nPaths:  /flagz /healthz /livez /metrics /readyz /statusz /version\n",
        api::time::format_seconds(routes.health.started),
        api::time::human_duration(up),
        api::version::git_version().trim_start_matches('v'),
        api::version::minor(),
    )
}
