//! Checks whether extension API servers are available, and writes the Available condition of their APIServices: when
//! an APIService, its Service or its EndpointSlices change, and periodically.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use http::Method;
use stdx::backoff::Backoff;
use stdx::panic::catch_unwind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::services::{STORAGE, ServiceReference};
use super::target::TargetError;
use super::{Aggregator, ApiService, OWN_GROUP, aggregator_user, openapi};
use crate::outbound::callout::{self, Url, UrlError};
use crate::outbound::endpoints;
use crate::outbound::user_headers::{UserHeaderError, user_headers};
use crate::registry::Registry;
use crate::registry::edit::{Location, edit_object};
use crate::storage::Storage;
use plan::Condition;

/// How often an extension API server is checked without any change.
const PERIOD: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// A check sends up to this many requests and succeeds if one does: a single broken endpoint does not fail the service.
const ATTEMPTS: usize = 5;
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
const MANAGER: &str = "kube-apiserver";

/// Checks all extension API servers until the server drains.
pub(crate) async fn run(aggregator: Arc<Aggregator>, registry: Arc<Registry>) {
    let mut closing = registry.closing.subscribe();
    let mut changes = Changes::new(&registry.storage);
    let mut checks: HashMap<String, Check> = HashMap::new();
    let mut running: JoinSet<(String, Option<Condition>)> = JoinSet::new();
    loop {
        changes.mark_seen();
        let services = aggregator.all();
        let is_known = |name: &str| services.iter().any(|service| service.name == name);
        checks.retain(|name, _| is_known(name));
        aggregator.discovered.retain(is_known);
        aggregator.openapi.retain(is_known);
        aggregator.backends.retain(is_known);
        for service in &services {
            let check = checks.entry(service.name.clone()).or_default();
            if check.begin(Inputs::read(&registry.storage, service)) {
                running.spawn(run_check(aggregator.clone(), registry.clone(), service.clone()));
            }
        }
        let next = checks.values().filter_map(Check::due).min();
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            Some(done) = running.join_next(), if !running.is_empty() => finish(&mut checks, done),
            () = changes.next(!services.is_empty()) => {}
            () = sleep_until(next) => {}
        }
    }
}

fn finish(checks: &mut HashMap<String, Check>, done: Result<(String, Option<Condition>), tokio::task::JoinError>) {
    // Panics are caught inside the task: its name is still needed.
    let Ok((name, condition)) = done else { return };
    if let Some(check) = checks.get_mut(&name) {
        check.finish(condition.is_some_and(|condition| condition.is_available));
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The inputs of a check: a change of them triggers a new one.
#[derive(Debug, PartialEq)]
struct Inputs {
    /// The APIService without its status.
    service: [Tree; 3],
    revisions: Vec<String>,
}

impl Inputs {
    fn read(storage: &Storage, service: &ApiService) -> Inputs {
        let object = storage.object(STORAGE, &service.name).unwrap_or_default();
        let part = |path: &str| object.at(path).clone();
        let ServiceReference { namespace, name, .. } = &service.service;
        let revision = |object: &Tree| object.str("metadata.resourceVersion").to_string();
        let front = storage.object("services/specs", &format!("{namespace}/{name}"));
        let slices = endpoints::slices(storage, namespace, name);
        Inputs {
            service: [part("spec"), part("metadata.labels"), part("metadata.annotations")],
            revisions: front.iter().map(|object| revision(object)).chain(slices.iter().map(revision)).collect(),
        }
    }
}

/// The checks of one APIService.
struct Check {
    /// The inputs of the last or the running check.
    inputs: Option<Inputs>,
    is_running: bool,
    due: Option<Instant>,
    backoff: Backoff,
}

impl Default for Check {
    fn default() -> Check {
        Check { inputs: None, is_running: false, due: None, backoff: Backoff::new(FIRST_RETRY, PERIOD) }
    }
}

impl Check {
    /// Whether a check has to run now; it counts as running from then on.
    fn begin(&mut self, inputs: Inputs) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if self.is_running || (self.inputs.as_ref() == Some(&inputs) && !is_due) {
            return false;
        }
        if self.inputs.as_ref() != Some(&inputs) {
            self.backoff.reset();
        }
        (self.inputs, self.is_running, self.due) = (Some(inputs), true, None);
        true
    }

    fn finish(&mut self, is_available: bool) {
        let pause = if is_available { PERIOD } else { self.backoff.next_pause() };
        if is_available {
            self.backoff.reset();
        }
        (self.is_running, self.due) = (false, Some(Instant::now() + pause));
    }

    fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_running)
    }
}

/// Wakes up when a cache changes. Services and EndpointSlices matter only while there are extension API servers.
struct Changes {
    api_services: CacheChanges,
    services: CacheChanges,
    slices: CacheChanges,
}

impl Changes {
    fn new(storage: &Storage) -> Changes {
        let subscribe = |path: &str| CacheChanges(storage.caches.get(path).map(|cache| cache.subscribe()));
        Changes {
            api_services: subscribe(STORAGE),
            services: subscribe("services/specs"),
            slices: subscribe("endpointslices"),
        }
    }

    /// Marks the current state as seen: only later changes wake the loop up.
    fn mark_seen(&mut self) {
        for changes in [&mut self.api_services, &mut self.services, &mut self.slices] {
            if let Some(receiver) = &mut changes.0 {
                receiver.mark_unchanged();
            }
        }
    }

    async fn next(&mut self, has_backends: bool) {
        tokio::select! {
            biased;
            () = self.api_services.next() => {}
            () = self.services.next(), if has_backends => {}
            () = self.slices.next(), if has_backends => {}
        }
    }
}

/// A cache that may be missing, and then never changes.
struct CacheChanges(Option<watch::Receiver<u64>>);

impl CacheChanges {
    async fn next(&mut self) {
        let is_changed = match &mut self.0 {
            Some(receiver) => receiver.changed().await.is_ok(),
            None => false,
        };
        if !is_changed {
            std::future::pending().await
        }
    }
}

/// Checks and writes the condition; None if that failed.
async fn run_check(
    aggregator: Arc<Aggregator>,
    registry: Arc<Registry>,
    service: Arc<ApiService>,
) -> (String, Option<Condition>) {
    let checked = catch_unwind(Box::pin(async {
        let condition = check_service(&aggregator, &service).await;
        let written = write_condition(&registry, &service.name, &condition).await;
        if condition.is_available {
            openapi::refresh(&aggregator, &service).await;
        }
        match written {
            Ok(()) => Some(condition),
            Err(status) => {
                tracing::warn!(apiservice = service.name, message = %status.message, "failed to update APIService status");
                None
            }
        }
    }));
    let condition = checked.await.unwrap_or_else(|_| {
        tracing::error!(apiservice = service.name, "check of an APIService panicked");
        None
    });
    (service.name.clone(), condition)
}

async fn check_service(aggregator: &Aggregator, service: &ApiService) -> Condition {
    let ServiceReference { namespace, name, .. } = &service.service;
    let front = aggregator.storage.object("services/specs", &format!("{namespace}/{name}"));
    let slices = endpoints::slices(&aggregator.storage, namespace, name);
    if let Some(condition) = plan::judge_service(&service.service, front.as_deref(), &slices) {
        return condition;
    }
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match request_discovery(aggregator, service).await {
            Ok(()) => return Condition::passed(),
            Err(error) => last = error.to_string(),
        }
    }
    Condition::discovery_failed(last)
}

/// Why the discovery document of an extension API server cannot be had. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    User(#[from] UserHeaderError),
    #[error("failing or missing response from {url}: {source}")]
    NoResponse { url: String, source: callout::Error },
    #[error("failing or missing response from {url}: bad status from {url}: {code}")]
    Code { url: String, code: u16 },
}

async fn request_discovery(aggregator: &Aggregator, service: &ApiService) -> Result<(), DiscoveryError> {
    let address = aggregator.resolve(&service.service)?;
    let url = format!("https://{address}/apis/{}/{}", service.group, service.version);
    let client = aggregator.client(service)?;
    let headers = user_headers(&aggregator_user())?;
    let response = client.send_request(Method::GET, &Url::parse(&url)?, &headers, Vec::new(), TIMEOUT).await;
    match response {
        Ok(response) if (200..300).contains(&response.code) => {
            aggregator.discovered.record(&service.name, &response.body);
            Ok(())
        }
        Ok(response) => Err(DiscoveryError::Code { url, code: response.code }),
        Err(source) => Err(DiscoveryError::NoResponse { url, source }),
    }
}

async fn write_condition(registry: &Registry, name: &str, condition: &Condition) -> Result<(), api::status::Status> {
    let now = registry.now();
    let location = Location { group: OWN_GROUP, version: "v1", plural: "apiservices", namespace: "", name };
    let edited = edit_object(registry, location, "status", MANAGER, |object| {
        // The APIService may have become local meanwhile.
        if ApiService::new(object).is_some() {
            condition.set(object, now);
        }
    });
    match edited.await {
        Err(status) if status.code == 404 => Ok(()),
        result => result,
    }
}
