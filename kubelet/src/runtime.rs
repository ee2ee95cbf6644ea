//! The runtime, as the kubelet uses it. No call blocks its caller forever, and no call with side effects is cancelled
//! halfway: see [`cri::TimeoutService`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri::{DynImageService, DynRuntimeService, Status, TimeoutService};

use crate::model::state::{self, PodState, keys};

/// The services of a container runtime.
#[derive(Clone)]
pub struct Runtime {
    /// Sandboxes and containers.
    pub service: Arc<dyn DynRuntimeService>,
    /// Images.
    pub images: Arc<dyn DynImageService>,
}

pub(crate) type Result<T> = std::result::Result<T, Status>;

macro_rules! calls {
    ($($name:ident: $of:ident.$call:ident($request:ident) -> $response:ident;)*) => { $(
        pub(crate) async fn $name(&self, request: cri::$request) -> Result<cri::$response> {
            self.$of.$call(request).await
        }
    )* };
}

impl Runtime {
    calls! {
        run_sandbox: service.run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
        create: service.create_container(CreateContainerRequest) -> CreateContainerResponse;
        update: service.update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
        exec: service.exec_sync(ExecSyncRequest) -> ExecSyncResponse;
        pull: images.pull_image(PullImageRequest) -> PullImageResponse;
    }

    /// The same services, with timeouts.
    pub(crate) fn limited(self, usual: Duration) -> Runtime {
        Runtime {
            service: Arc::new(TimeoutService::new(self.service, usual)),
            images: Arc::new(TimeoutService::new(self.images, usual)),
        }
    }

    pub(crate) async fn start(&self, container_id: &str) -> Result<()> {
        let container_id = container_id.to_string();
        self.service.start_container(cri::StartContainerRequest { container_id }).await.map(drop)
    }

    /// Stops a container; after so many seconds it is killed.
    pub(crate) async fn stop(&self, container_id: &str, timeout: i64) -> Result<()> {
        let container_id = container_id.to_string();
        ignore_not_found(self.service.stop_container(cri::StopContainerRequest { container_id, timeout }).await)
    }

    pub(crate) async fn remove(&self, container_id: &str) -> Result<()> {
        let container_id = container_id.to_string();
        ignore_not_found(self.service.remove_container(cri::RemoveContainerRequest { container_id }).await)
    }

    /// Stops a sandbox and its containers.
    pub async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let pod_sandbox_id = id.to_string();
        ignore_not_found(self.service.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id }).await)
    }

    /// Removes a stopped sandbox.
    pub async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let pod_sandbox_id = id.to_string();
        ignore_not_found(self.service.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id }).await)
    }

    /// The state of one pod.
    pub(crate) async fn pod(&self, uid: &str) -> Result<PodState> {
        let label_selector = BTreeMap::from([(keys::POD_UID.to_string(), uid.to_string())]);
        let filter = cri::PodSandboxFilter { label_selector: label_selector.clone(), ..Default::default() };
        let listed = self.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: Some(filter) }).await?;
        let filter = cri::ContainerFilter { label_selector, ..Default::default() };
        let containers = self.service.list_containers(cri::ListContainersRequest { filter: Some(filter) }).await?;
        let mut state = PodState::default();
        for sandbox in listed.items {
            state.sandboxes.extend(self.sandbox(sandbox.id).await?);
        }
        for container in containers.containers {
            state.containers.extend(self.container(&container.pod_sandbox_id, container.id).await?);
        }
        Ok(state.sorted())
    }

    /// None if the sandbox was removed meanwhile.
    async fn sandbox(&self, pod_sandbox_id: String) -> Result<Option<state::Sandbox>> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id, verbose: false };
        let response = optional(self.service.pod_sandbox_status(request).await)?;
        Ok(response.and_then(|response| response.status).map(|status| state::sandbox(&status)))
    }

    async fn container(&self, sandbox: &str, container_id: String) -> Result<Option<state::Container>> {
        let request = cri::ContainerStatusRequest { container_id, verbose: false };
        let response = optional(self.service.container_status(request).await)?;
        Ok(response.and_then(|response| response.status).map(|status| state::container(sandbox, status)))
    }

    /// The UIDs of all pods in the runtime, each with a mark of its newest change.
    pub(crate) async fn marks(&self) -> Result<BTreeMap<String, String>> {
        let sandboxes = self.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await?.items;
        let containers = self.service.list_containers(cri::ListContainersRequest { filter: None }).await?.containers;
        let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for sandbox in sandboxes {
            let uid = sandbox.labels.get(keys::POD_UID).cloned();
            let uid = uid.or(sandbox.metadata.map(|metadata| metadata.uid)).unwrap_or_default();
            parts.entry(uid).or_default().push(format!("{}={}", sandbox.id, sandbox.state));
        }
        for container in containers {
            let uid = container.labels.get(keys::POD_UID).cloned().unwrap_or_default();
            parts.entry(uid).or_default().push(format!("{}={}", container.id, container.state));
        }
        parts.remove("");
        let mark = |(uid, mut parts): (String, Vec<String>)| {
            parts.sort_unstable();
            (uid, parts.join(" "))
        };
        Ok(parts.into_iter().map(mark).collect())
    }

    /// The progress of a pull, if the runtime reports it.
    pub(crate) async fn progress(&self, image: cri::ImageSpec) -> Option<String> {
        let request = cri::ImageStatusRequest { image: Some(image), verbose: true };
        let info = self.images.image_status(request).await.ok()?.info;
        let progress = api::json::decode(info.get("progress")?.as_bytes()).ok()?;
        progress.as_str().map(str::to_string)
    }

    /// The image of a reference, if it is present.
    pub(crate) async fn image(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        Ok(self.images.image_status(cri::ImageStatusRequest { image: Some(image), verbose: false }).await?.image)
    }
}

/// Something that does not exist any more need not be stopped.
fn ignore_not_found<T>(response: Result<T>) -> Result<()> {
    optional(response).map(drop)
}

fn optional<T>(response: Result<T>) -> Result<Option<T>> {
    match response {
        Ok(response) => Ok(Some(response)),
        Err(status) if status.code() == cri::Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
