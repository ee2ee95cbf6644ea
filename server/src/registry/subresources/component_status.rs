//! ComponentStatus: the health of the components of the control plane, as far as this process can check it.

use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use api::{Tree, list, tree};

use crate::call::{Call, HttpResponse};
use crate::outbound::callout::{self, Client, Trust, Url, UrlError};
use crate::registry::Registry;
use crate::registry::{respond, shape};
use crate::storage::resource::Resource;

pub(crate) async fn read(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(&call.head)?;
    let shaping = respond::shaping(&call.head, accepted)?;
    if let Some(deprecation) = resource.kind.lifecycle.deprecation.map(str::to_string)
        && !call.warnings.contains(&deprecation)
    {
        call.warnings.push(deprecation);
    }
    let mut components = components(registry).await;
    if call.head.info.name.is_empty() {
        let tree = shape::list_of(&resource.kind, tree! {}, components, shaping)?;
        return Ok(respond::encoded(200, &tree, accepted));
    }
    let name = &call.head.info.name;
    let at = components.iter().position(|component| component.str("metadata.name") == name);
    let at = at.ok_or_else(|| resource.not_found(name))?;
    respond::tree(&call.head, resource, 200, components.swap_remove(at))
}

async fn components(registry: &Registry) -> Vec<Tree> {
    let store = registry.storage.store.revision().await;
    let store = store.map(|_| "ok".to_string()).map_err(HealthError::Store);
    let (scheduler, manager) =
        tokio::join!(health(registry, "scheduler", 10259), health(registry, "controller-manager", 10257));
    vec![component("scheduler", scheduler), component("controller-manager", manager), component("etcd-0", store)]
}

/// Whether a component of this process is healthy, by name; None if the component does not run here.
pub(crate) type LocalHealth = Box<dyn Fn(&str) -> Option<bool> + Send + Sync>;

/// Why a component is not healthy.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error("a worker has ended")]
    WorkerEnded,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error(transparent)]
    Store(store::Error),
    /// The body of a response other than `ok`.
    #[error("{0}")]
    Response(String),
}

async fn health(registry: &Registry, name: &str, port: u16) -> Result<String, HealthError> {
    match registry.local_health.get().and_then(|health| health(name)) {
        Some(true) => Ok("ok".to_string()),
        Some(false) => Err(HealthError::WorkerEnded),
        None => probe(port).await,
    }
}

/// The timeout of a health check.
const PATIENCE: Duration = Duration::from_secs(10);

/// Probes the health of a component on this machine, as upstream does: its certificate is not verified.
async fn probe(port: u16) -> Result<String, HealthError> {
    let client = Client::new(&Trust::InsecureSkipVerify, None)?;
    let url = Url::parse(&format!("https://127.0.0.1:{port}/healthz"))?;
    let response = client.get(&url, PATIENCE).await?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    if response.is_success() && text == "ok" { Ok(text) } else { Err(HealthError::Response(text)) }
}

fn component(name: &str, health: Result<String, HealthError>) -> Tree {
    let (status, message) = match health {
        Ok(message) => ("True", message),
        Err(error) => ("False", error.to_string()),
    };
    tree! {
        "kind" => "ComponentStatus",
        "apiVersion" => "v1",
        "metadata" => tree! { "name" => name },
        "conditions" => list![tree! { "type" => "Healthy", "status" => status, "message" => message }],
    }
}
