//! The status of the runtime, as plain values.

use std::sync::Arc;
use std::time::Duration;

use cri::{
    DynImageService, DynRuntimeService, ListImagesRequest, StatusRequest, StatusResponse, UpdateRuntimeConfigRequest,
    VersionRequest,
};

use super::status_input::{Handler, Health, Image, Network, Runtime};

/// How long the runtime may be silent before it counts as down.
pub(crate) const SILENCE_SECONDS: i64 = 30;

pub(crate) struct RuntimeClient {
    pub(crate) runtime: Arc<dyn DynRuntimeService>,
    pub(crate) images: Arc<dyn DynImageService>,
    pub(crate) timeout: Duration,
}

impl RuntimeClient {
    /// None if the runtime does not respond.
    pub(crate) async fn version(&self) -> Option<String> {
        let response = self.in_time(self.runtime.version(VersionRequest { version: String::new() })).await?;
        Some(format!("{}://{}", response.runtime_name, response.runtime_version))
    }

    pub(crate) async fn status(&self) -> Option<StatusResponse> {
        self.in_time(self.runtime.status(StatusRequest { verbose: false })).await
    }

    pub(crate) async fn images(&self) -> Option<Vec<Image>> {
        let response = self.in_time(self.images.list_images(ListImagesRequest { filter: None })).await?;
        Some(images(response.images))
    }

    /// Sends a configuration to the runtime; None if the runtime does not accept it in time.
    pub(crate) async fn take(&self, config: UpdateRuntimeConfigRequest) -> Option<()> {
        self.in_time(self.runtime.update_runtime_config(config)).await.map(drop)
    }

    async fn in_time<T>(&self, call: cri::BoxFuture<'_, T>) -> Option<T> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => Some(response),
            Ok(Err(status)) => {
                tracing::debug!(error = status.message(), "failed to call the container runtime");
                None
            }
            Err(_) => None,
        }
    }
}

/// The largest image first; equal ones by name, which keeps the order stable.
fn images(found: Vec<cri::Image>) -> Vec<Image> {
    let image = |image: cri::Image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags).collect();
        Image { names, size_bytes: i64::try_from(image.size).unwrap_or(i64::MAX) }
    };
    let mut images: Vec<Image> = found.into_iter().map(image).filter(|image| !image.names.is_empty()).collect();
    images.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.names.cmp(&b.names)));
    images
}

/// The state after a response, or after so many seconds without one.
pub(crate) fn runtime(before: &Runtime, response: Option<StatusResponse>, silent_seconds: Option<i64>) -> Runtime {
    let Some(response) = response else {
        let health = match silent_seconds {
            None => Health::Unknown,
            Some(seconds) if seconds > SILENCE_SECONDS => Health::Down,
            Some(_) => before.health.clone(),
        };
        return Runtime { health, ..before.clone() };
    };
    let conditions = response.status.unwrap_or_default().conditions;
    let wrong = |kind: &str| match conditions.iter().find(|condition| condition.r#type == kind) {
        None => Some("<nil>".to_string()),
        Some(condition) if condition.status => None,
        Some(condition) => Some(format!("{kind}=false reason:{} message:{}", condition.reason, condition.message)),
    };
    let handler = |handler: cri::RuntimeHandler| {
        let features = handler.features.unwrap_or_default();
        Handler {
            name: handler.name,
            recursive_read_only_mounts: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        }
    };
    let mut handlers: Vec<Handler> = response.runtime_handlers.into_iter().map(handler).collect();
    handlers.sort();
    Runtime {
        version: before.version.clone(),
        health: wrong("RuntimeReady").map_or(Health::Ready, Health::NotReady),
        network: wrong("NetworkReady").map_or(Network::Ready, Network::NotReady),
        handlers,
        supplemental_groups_policy: response.features.map(|features| features.supplemental_groups_policy),
    }
}
