//! Health, readiness, metrics and the version: paths that are no resources.

use std::sync::atomic::{AtomicBool, Ordering};

use api::{Tree, tree};
use http::Method;

use crate::Server;
use crate::call::{Answer, Call, answer, json_answer, text};

pub struct Health {
    ready: AtomicBool,
    /// Seconds since the Unix epoch.
    started: i64,
}

impl Health {
    pub fn new(started: i64) -> Health {
        Health { ready: AtomicBool::new(false), started }
    }

    /// The bootstrap objects are there and requests are served.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The server is about to end: nobody new is to be sent here.
    pub fn set_unready(&self) {
        self.ready.store(false, Ordering::Release);
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

/// What is checked, by name.
const CHECKS: &[&str] = &[
    "ping",
    "log",
    "etcd",
    "informer-sync",
    "poststarthook/bootstrap-controller",
    "poststarthook/rbac/bootstrap-roles",
];

pub fn route(server: &Server, call: &Call) -> Option<Answer> {
    let path = call.path.as_str();
    if path == "/version" || path == "/version/" {
        return Some(version(call));
    }
    if path == "/" {
        return Some(json_answer(200, &paths(server)));
    }
    if path == "/statusz" || path == "/flagz" {
        return Some(text(200, &about(server, path)));
    }
    if let Some(answer) = crate::auth::discovery::route(server, call) {
        return Some(answer);
    }
    if path == "/metrics/slis" {
        let up = "# HELP kubernetes_healthcheck Whether the server is healthy.\n# TYPE kubernetes_healthcheck gauge\n";
        let ready = u8::from(server.health.is_ready());
        let lines = format!(
            "{up}kubernetes_healthcheck{{name=\"ping\",type=\"healthz\"}} 1\nkubernetes_healthcheck{{name=\"readyz\",type=\"readyz\"}} {ready}\n"
        );
        return Some(answer(200, "text/plain; version=0.0.4; charset=utf-8", lines.into_bytes()));
    }
    if path == "/metrics" {
        server.fairness.show();
        return Some(answer(200, "text/plain; version=0.0.4; charset=utf-8", server.metrics.text()));
    }
    let (probe, check) = match path.strip_prefix('/')?.split_once('/') {
        Some((probe, check)) => (probe, check),
        None => (&path[1..], ""),
    };
    matches!(probe, "healthz" | "livez" | "readyz").then(|| probe_answer(server, call, probe, check))
}

fn probe_answer(server: &Server, call: &Call, probe: &str, check: &str) -> Answer {
    let ready = probe != "readyz" || (server.health.is_ready() && !*server.closing.borrow());
    if !check.is_empty() && !CHECKS.contains(&check) {
        return text(404, "404 page not found\n");
    }
    if call.query.has("verbose") {
        return verbose(probe, ready);
    }
    if ready { text(200, "ok") } else { text(500, &format!("[-]{probe} failed: the server is not ready\n")) }
}

fn verbose(probe: &str, ready: bool) -> Answer {
    let mut body: String = CHECKS.iter().map(|check| format!("[+]{check} ok\n")).collect();
    body.push_str(&format!("{probe} check {}\n", if ready { "passed" } else { "failed" }));
    text(if ready { 200 } else { 500 }, &body)
}

/// What clients read as the version of Kubernetes that is spoken here.
fn version(call: &Call) -> Answer {
    if !matches!(call.method, Method::GET | Method::HEAD) {
        return crate::call::status_answer(
            &api::status::Status::method_not_allowed(),
            crate::negotiate::Accepted::JSON,
        );
    }
    json_answer(
        200,
        &tree! {
            "major" => "1",
            "minor" => "37",
            "emulationMajor" => "1",
            "emulationMinor" => "37",
            "minCompatibilityMajor" => "1",
            "minCompatibilityMinor" => "36",
            "gitVersion" => crate::openapi::VERSION,
            "gitCommit" => option_env!("TIPHYS_COMMIT").unwrap_or("unknown"),
            "gitTreeState" => "clean",
            "buildDate" => "1970-01-01T00:00:00Z",
            "goVersion" => "none (rust)",
            "compiler" => "rustc",
            "platform" => concat!("linux/", "amd64"),
        },
    )
}

/// What is there, for people who ask for the root.
fn paths(server: &Server) -> Tree {
    let mut paths: Vec<String> =
        vec!["/.well-known/openid-configuration".into(), "/api".into(), "/api/v1".into(), "/apis".into()];
    for resource in server.registry.all() {
        let kind = resource.kind;
        if !kind.group.is_empty() {
            paths.push(format!("/apis/{}", kind.group));
            paths.push(format!("/apis/{}/{}", kind.group, kind.version));
        }
    }
    for path in ["healthz", "livez", "metrics", "openapi/v2", "openapi/v3", "openid/v1/jwks", "readyz", "version"] {
        paths.push(format!("/{path}"));
    }
    paths.sort();
    paths.dedup();
    tree! { "paths" => Tree::List(paths.into_iter().map(Tree::from).collect()) }
}

/// A page for people who debug: what runs here, since when, and with which settings.
fn about(server: &Server, path: &str) -> String {
    let name = path.trim_start_matches('/');
    let head = format!(
        "\napiserver {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n"
    );
    if name == "flagz" {
        let config = &server.config;
        let cidrs: Vec<String> =
            config.service_cidrs.iter().map(|(network, bits)| format!("{network}/{bits}")).collect();
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
    let up = server.now() - server.health.started;
    format!(
        "{head}Started:  {}\nUp:  {}\nBinary version:  1.37.0+tiphys.{}\nEmulation version:  1.37\nPaths:  /flagz /healthz /livez /metrics /readyz /statusz /version\n",
        api::time::format_seconds(server.health.started),
        api::time::human_duration(up),
        env!("CARGO_PKG_VERSION"),
    )
}
