//! Garbage collection of images, dead containers and their logs, and dangling links to logs. [`images`] and
//! [`containers`] decide; this reads the state and removes.

pub(crate) mod containers;
pub(crate) mod images;
mod logs;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Metric, Metrics, Recorder};
use stdx::clock::Clock;
use tokio::sync::{Mutex, watch};

use crate::clock;
use crate::config::Config;
use crate::config::ImageGc;
use crate::images::spec;
use crate::model::pod;
use crate::model::state::keys;
use crate::node::Node;
use crate::pod::worker::{Workers, from_labels};
use crate::resources::machine;
use crate::runtime::{self, Runtime};
use containers::{DeadContainer, Sandbox};
use images::{Image, Records, UnusedImage};
pub(crate) use logs::remove_of_pods as remove_logs;

const IMAGES: Duration = Duration::from_secs(300);
const CONTAINERS: Duration = Duration::from_secs(60);

static REMOVED_IMAGES: Metric = Metric::counter(
    "kubelet_image_garbage_collected_total",
    "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    &["reason"],
);

/// The collector's dependencies.
pub(crate) struct Environment {
    pub config: Arc<Config>,
    pub runtime: Runtime,
    pub clock: Arc<dyn Clock>,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub(crate) workers: Arc<Workers>,
    pub node: Arc<Node>,
}

pub(crate) struct Collector {
    config: Arc<Config>,
    runtime: Runtime,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    metrics: Metrics,
    workers: Arc<Workers>,
    node: Arc<Node>,
    records: Mutex<Records>,
    /// Whether all pod sources have reported their pods.
    all_known: watch::Receiver<bool>,
    /// Seconds; an image can be too old only after it was watched for that long.
    began: i64,
    failures: stdx::sync::Mutex<Failures>,
}

/// A garbage collection that has failed.
#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error("{}", .0.message())]
    Runtime(#[from] cri::Status),
    #[error("the runtime did not report the image filesystem")]
    NoImageFilesystem,
    #[error("invalid capacity 0 on image filesystem")]
    NoCapacity,
    #[error(
        "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} \
         bytes eligible to free."
    )]
    NotEnough { wanted: u64, freed: u64 },
    #[error(
        "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {}",
        messages(.failures)
    )]
    Images { wanted: u64, freed: u64, failures: Vec<cri::Status> },
}

fn messages(failures: &[cri::Status]) -> String {
    failures.iter().map(cri::Status::message).collect::<Vec<_>>().join(", ")
}

/// A failure is reported only if it repeats.
#[derive(Default)]
struct Failures {
    images: bool,
    containers: bool,
}

impl Collector {
    pub(crate) fn new(environment: Environment, all_known: watch::Receiver<bool>) -> Arc<Collector> {
        let Environment { config, runtime, clock, recorder, metrics, workers, node } = environment;
        let began = clock.now().seconds;
        let (records, failures) = (Mutex::default(), Default::default());
        Arc::new(Collector {
            config,
            runtime,
            clock,
            recorder,
            metrics,
            workers,
            node,
            records,
            all_known,
            began,
            failures,
        })
    }

    /// Collects garbage forever, once all sources have reported their pods.
    pub(crate) async fn run(self: Arc<Collector>) {
        if self.all_known.clone().wait_for(|known| *known).await.is_err() {
            return;
        }
        let mut rounds = 0;
        loop {
            if rounds % (IMAGES.as_secs() / CONTAINERS.as_secs()) == 0 {
                self.images_when_full().await;
            }
            rounds += 1;
            self.containers(false).await;
            tokio::time::sleep(CONTAINERS).await;
        }
    }

    fn warn(&self, reason: &str, message: impl Into<String>) {
        self.recorder.warning(&self.node.reference(), reason, message);
    }

    /// Records the result of a collection, and reports a repeated failure.
    fn outcome(&self, reason: &str, of: fn(&mut Failures) -> &mut bool, result: Result<(), GcError>) {
        let mut failures = self.failures.lock();
        let before = std::mem::replace(of(&mut failures), result.is_err());
        drop(failures);
        if let Err(error) = result {
            tracing::warn!(why = %error, reason, "garbage collection failed");
            if before {
                self.warn(reason, error.to_string());
            }
        }
    }
}

/// Images.
impl Collector {
    /// Removes images that are too old, and as many as needed if the disk is too full.
    async fn images_when_full(&self) {
        let result = self.try_images().await;
        self.outcome("ImageGCFailed", |failures| &mut failures.images, result);
    }

    async fn try_images(&self) -> Result<(), GcError> {
        let gc = self.config.image_gc;
        let now = self.refresh_images().await?;
        let watched = now - self.began;
        if gc.maximum_age.is_some_and(|most| watched > i64::try_from(most.as_secs()).unwrap_or(i64::MAX)) {
            let old = self.records.lock().await.old(now, &gc);
            self.remove_images(old, u64::MAX, "age").await?;
        }
        if gc.high_threshold >= 100 {
            return Ok(());
        }
        let (capacity, available) = self.disk().await?;
        if capacity == 0 {
            self.warn("InvalidDiskCapacity", GcError::NoCapacity.to_string());
            return Err(GcError::NoCapacity);
        }
        let Some(wanted) = images::to_free(capacity, available, &gc) else { return Ok(()) };
        let unused = self.records.lock().await.unused(now, &gc);
        let freed = self.remove_images(unused, wanted, "space").await?;
        if freed >= wanted {
            return Ok(());
        }
        let error = GcError::NotEnough { wanted, freed };
        self.warn("FreeDiskSpaceFailed", error.to_string());
        Err(error)
    }

    /// Removes all unused images, because the disk is full.
    pub(crate) async fn unused_images(&self) {
        let removed = async {
            let now = self.refresh_images().await?;
            let gc: ImageGc = self.config.image_gc;
            let unused = self.records.lock().await.unused(now, &gc);
            self.remove_images(unused, u64::MAX, "space").await
        };
        let removed: Result<u64, GcError> = removed.await;
        if let Err(error) = removed {
            tracing::warn!(why = %error, "failed to remove all unused images");
        }
    }

    /// Lists the images. Returns the time.
    async fn refresh_images(&self) -> Result<i64, GcError> {
        let listed = self.runtime.images.list_images(cri::ListImagesRequest { filter: None });
        let there: Vec<Image> = listed.await?.images.into_iter().map(image).collect();
        let used = self.used_images().await?;
        let now = self.clock.now().seconds;
        self.records.lock().await.update(&there, &used, now);
        Ok(now)
    }

    /// The images of all containers, including exited ones, and of mounted volumes.
    async fn used_images(&self) -> runtime::Result<BTreeSet<String>> {
        let listed = self.runtime.service.list_containers(cri::ListContainersRequest { filter: None }).await?;
        let mut used = BTreeSet::new();
        for container in listed.containers {
            used.extend([container.image_ref, container.image_id]);
            used.extend(container.image.map(|image| image.image));
        }
        let mut named: BTreeSet<String> = self.config.pod_infra_image.iter().cloned().collect();
        let mounted = |pod: &Arc<Tree>| -> Vec<String> {
            let images = pod.list("spec.volumes").iter().filter_map(|volume| volume.get("image"));
            images.map(|image| image.str("reference").to_string()).collect()
        };
        let pods = self.workers.pods();
        named.extend(pods.iter().filter(|pod| !pod::is_over(pod)).flat_map(mounted));
        for name in named {
            let found = self.runtime.image(spec(&name)).await?;
            used.extend(found.map(|image| image.id));
        }
        Ok(used)
    }

    /// Capacity and available bytes of the image file system.
    async fn disk(&self) -> Result<(u64, u64), GcError> {
        let response = self.runtime.images.image_fs_info(cri::ImageFsInfoRequest {}).await?;
        let first = response.image_filesystems.into_iter().next().and_then(|usage| usage.fs_id);
        let place = first.map(|id| id.mountpoint).ok_or(GcError::NoImageFilesystem)?;
        let looked = tokio::task::spawn_blocking(move || machine::filesystem(Path::new(&place)));
        let found = looked.await.ok().flatten().unwrap_or_default();
        Ok((found.capacity, found.available))
    }

    /// Removes until enough is freed; how much that was.
    async fn remove_images(&self, spare: Vec<UnusedImage>, wanted: u64, reason: &str) -> Result<u64, GcError> {
        let (mut freed, mut failures) = (0, Vec::new());
        for image in spare {
            if freed >= wanted {
                break;
            }
            let request = cri::RemoveImageRequest { image: Some(spec(&image.id)) };
            match self.runtime.images.remove_image(request).await {
                Ok(_) => {
                    tracing::info!(image = image.id, bytes = image.size, "removed unused image");
                    self.metrics.count(&REMOVED_IMAGES, &[reason]);
                    freed += image.size;
                }
                Err(status) => failures.push(status),
            }
        }
        if failures.is_empty() {
            return Ok(freed);
        }
        Err(GcError::Images { wanted, freed, failures })
    }
}

fn image(image: cri::Image) -> Image {
    let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
    Image { id: image.id, names, size: image.size, is_pinned: image.pinned }
}

/// Containers.
impl Collector {
    /// Removes dead containers and sandboxes; under disk pressure, also those of ended pods.
    pub(crate) async fn containers(&self, with_ended_pods: bool) {
        let result = self.try_containers(with_ended_pods).await.map_err(GcError::from);
        self.outcome("ContainerGCFailed", |failures| &mut failures.containers, result);
        let links = logs::find_dead_links(&self.config, &self.runtime).await;
        for link in links {
            let _ = std::fs::remove_file(link);
        }
    }

    async fn try_containers(&self, with_ended_pods: bool) -> runtime::Result<()> {
        let service = &self.runtime.service;
        let sandboxes = service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await?.items;
        let containers = service.list_containers(cri::ListContainersRequest { filter: None }).await?.containers;
        self.clean_up_unknown(&sandboxes);
        let is_over = |uid: &str| with_ended_pods && self.has_ended(uid);
        let known = |uid: Option<&String>| uid.is_some_and(|uid| self.workers.contains(uid));
        let ended = containers.iter().filter(|one| known(one.labels.get(keys::POD_UID)) && has_ended(one));
        let going = containers::dead(
            ended.map(dead).collect(),
            is_over,
            &self.config.container_gc,
            clock::unix_nanos(&*self.clock),
        );
        for id in &going {
            self.remove_container(id).await?;
        }
        let left = containers.iter().filter(|one| !going.contains(&one.id));
        let used: BTreeSet<String> = left.map(|one| one.pod_sandbox_id.clone()).collect();
        let own = sandboxes.iter().filter(|one| known(one.labels.get(keys::POD_UID)));
        for id in containers::sandboxes(own.map(sandbox).collect(), &used, is_over) {
            self.runtime.remove_sandbox(&id).await?;
        }
        Ok(())
    }

    /// A pod that has completed.
    fn has_ended(&self, uid: &str) -> bool {
        let found = self.workers.find(uid);
        found.is_some_and(|(pod, state)| pod::is_over(&pod) && state.is_stopped())
    }

    /// A separate worker removes each unknown pod.
    fn clean_up_unknown(&self, sandboxes: &[cri::PodSandbox]) {
        // The disk may be needed before that.
        if !*self.all_known.borrow() {
            return;
        }
        for sandbox in sandboxes {
            let Some(metadata) = &sandbox.metadata else { continue };
            // Other clients may use the runtime too.
            if sandbox.labels.get(keys::POD_UID) == Some(&metadata.uid) && !self.workers.contains(&metadata.uid) {
                let pod = from_labels(&metadata.uid, &metadata.name, &metadata.namespace);
                self.workers.clean_up(Arc::new(pod));
            }
        }
    }

    /// Removes a container with its log and the symbolic link to it.
    async fn remove_container(&self, id: &str) -> runtime::Result<()> {
        let request = cri::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
        let status = self.runtime.service.container_status(request).await;
        self.runtime.remove(id).await?;
        let Some(status) = status.ok().and_then(|response| response.status) else { return Ok(()) };
        logs::remove(Path::new(&status.log_path));
        logs::remove_link(&self.config, id);
        Ok(())
    }
}

fn has_ended(container: &cri::Container) -> bool {
    container.state() == cri::ContainerState::Exited
}

fn dead(container: &cri::Container) -> DeadContainer {
    let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
    DeadContainer {
        id: container.id.clone(),
        pod: label(keys::POD_UID),
        name: label(keys::CONTAINER_NAME),
        created_at: container.created_at,
    }
}

fn sandbox(sandbox: &cri::PodSandbox) -> Sandbox {
    Sandbox {
        id: sandbox.id.clone(),
        pod: sandbox.labels.get(keys::POD_UID).cloned().unwrap_or_default(),
        created_at: sandbox.created_at,
        is_ready: sandbox.state() == cri::PodSandboxState::Ready,
    }
}
