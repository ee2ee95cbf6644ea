//! The usage of containers, collected from the kubelets of all nodes while InitialResources is on, and shown at
//! `/tiphys/v1/usage`.

pub(crate) mod history;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use api::{Tree, json};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::call::{HttpResponse, json_response, text};
use crate::registry::Registry;
use crate::registry::subresources::node::{self, SendError};
use crate::request::head::RequestHead;
use history::Sample;

pub(crate) const PATH: &str = "/tiphys/v1/usage";
const PLUGIN: &str = "InitialResources";
const PERIOD: Duration = Duration::from_secs(60);
/// The timeout of a kubelet, and the maximum size of its response.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 16 << 20;

/// None for another path.
pub(crate) fn route(registry: &Registry, head: &RequestHead) -> Option<HttpResponse> {
    if head.path != PATH {
        return None;
    }
    Some(match head.method {
        Method::GET | Method::HEAD => json_response(200, &registry.admission.settings.estimates.history.shown()),
        _ => text(405, "Method Not Allowed\n"),
    })
}

/// Collects the usage of all nodes periodically, until it is dropped; returns at once if the plugin is off.
pub async fn collect(registry: Arc<Registry>) {
    if !registry.admission.is_on(PLUGIN) {
        return;
    }
    loop {
        for node in registry.storage.objects("minions", "") {
            match summary(&registry, node.str("metadata.name")).await {
                Ok(summary) => record_usage(&registry, &summary),
                Err(why) => {
                    tracing::debug!(node = node.str("metadata.name"), %why, "failed to read usage from kubelet")
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Why the usage of a node could not be read.
#[derive(Debug, thiserror::Error)]
enum SummaryError {
    #[error("{}", .0.message)]
    Kubelet(Status),
    #[error("invalid host")]
    Host,
    #[error(transparent)]
    Send(SendError),
    #[error("it returned {0}")]
    Code(http::StatusCode),
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error("the kubelet timed out")]
    Timeout,
}

async fn summary(registry: &Registry, name: &str) -> Result<Tree, SummaryError> {
    let kubelet = node::kubelet(registry, name, "nodes").await.map_err(SummaryError::Kubelet)?.target;
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = http::Uri::from_static("/stats/summary?only_cpu_and_memory=true");
    let host = kubelet.authority().parse().map_err(|_| SummaryError::Host)?;
    request.headers_mut().insert(header::HOST, host);
    let work = async {
        let response = node::send(&kubelet, request).await.map_err(SummaryError::Send)?;
        if response.status() != http::StatusCode::OK {
            return Err(SummaryError::Code(response.status()));
        }
        let body = Limited::new(response.into_body(), MOST).collect().await.map_err(SummaryError::Body)?;
        Ok(json::decode(&body.to_bytes())?)
    };
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(SummaryError::Timeout))
}

fn record_usage(registry: &Registry, summary: &Tree) {
    let images = |namespace: &str, name: &str| registry.storage.object("pods", &format!("{namespace}/{name}"));
    let samples = samples(summary, images);
    registry.admission.settings.estimates.history.add(&samples, registry.now());
}

/// The usage of the containers in a summary, by the images of their pods.
fn samples(summary: &Tree, pod: impl Fn(&str, &str) -> Option<Arc<Tree>>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for stats in summary.list("pods") {
        let (namespace, name) = (stats.str("podRef.namespace"), stats.str("podRef.name"));
        let Some(pod) = pod(namespace, name) else { continue };
        let containers = pod.list("spec.containers").iter();
        let images: BTreeMap<&str, &str> = containers.map(|spec| (spec.str("name"), spec.str("image"))).collect();
        for container in stats.list("containers") {
            let usage = (container.int("cpu.usageNanoCores"), container.int("memory.workingSetBytes"));
            let (Some(image), (Some(nano_cores), Some(memory))) = (images.get(container.str("name")), usage) else {
                continue;
            };
            let (image, namespace) = (image.to_string(), namespace.to_string());
            samples.push(Sample { image, namespace, milli_cpu: nano_cores / 1_000_000, memory });
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_becomes_samples_of_images() {
        let read = |text: &str| json::decode(text.as_bytes()).expect("JSON");
        let summary = read(
            r#"{"pods":[
            {"podRef":{"namespace":"a","name":"p"},"containers":[
              {"name":"c","cpu":{"usageNanoCores":250000000},"memory":{"workingSetBytes":1024}},
              {"name":"gone","cpu":{"usageNanoCores":1},"memory":{"workingSetBytes":1}},
              {"name":"new","memory":{"workingSetBytes":1}}]},
            {"podRef":{"namespace":"a","name":"other"},"containers":[{"name":"c"}]}]}"#,
        );
        let pod = Arc::new(read(r#"{"spec":{"containers":[{"name":"c","image":"i:1"},{"name":"new","image":"j"}]}}"#));
        let found = samples(&summary, |_, name| (name == "p").then(|| pod.clone()));
        let wanted = Sample { image: "i:1".to_string(), namespace: "a".to_string(), milli_cpu: 250, memory: 1024 };
        assert_eq!(found, [wanted]);
    }
}
