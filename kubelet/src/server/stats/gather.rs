//! Reads statistics of the runtime and the kernel.

use std::path::Path;

use api::Tree;
use api::time;
use cri::{ImageFsInfoRequest, PodSandboxStats};

use super::{Filesystem, PodUsage, Rates, Usage, value};
use crate::resources::machine;
use crate::resources::usage::{self, Files};
use crate::server::Host;

pub(crate) async fn gather(host: &dyn Host, rates: &Rates) -> Usage {
    let sandboxes = usage::sandboxes(&*host.runtime()).await;
    let failed = sandboxes.is_err();
    if let Err(error) = &sandboxes {
        tracing::warn!(%error, "failed to get pod statistics from the runtime");
    }
    let known = host.pods();
    let mut files = host.files(&known).await;
    let root = host.root_dir();
    let mut machine = tokio::task::spawn_blocking(move || machine::read(&root)).await.unwrap_or_default();
    let at = host.clock().now();
    let mut now = rates.now();
    let nanoseconds = at.seconds * 1_000_000_000 + i64::from(at.nanos);
    machine.nano_cores = now.rate(String::new(), nanoseconds, machine.cpu_nanoseconds);
    let pod = |mut stats: PodSandboxStats| {
        let uid = stats.attributes.as_ref()?.metadata.as_ref()?.uid.clone();
        now.fill(&uid, &mut stats);
        of_pod(stats, &known, files.remove(&uid).unwrap_or_default())
    };
    let pods = sandboxes.unwrap_or_default().into_iter().filter_map(pod).collect();
    drop(now);
    Usage { node: host.node_name().to_string(), at, machine, images: images(host).await, pods, failed }
}

fn of_pod(stats: PodSandboxStats, known: &[Tree], files: Files) -> Option<PodUsage> {
    let metadata = stats.attributes.as_ref()?.metadata.clone()?;
    let pod = known.iter().find(|pod| crate::model::pod::uid(pod) == metadata.uid);
    let time = |text: &str| time::parse(text).ok();
    let lists = ["status.containerStatuses", "status.initContainerStatuses", "status.ephemeralContainerStatuses"];
    let statuses = pod.into_iter().flat_map(|pod| lists.iter().flat_map(|list| pod.list(list)));
    let started = |status: &Tree| Some((status.str("name").to_string(), time(status.str("state.running.startedAt"))?));
    Some(PodUsage {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        started: pod.and_then(|pod| time(pod.str("status.startTime"))),
        containers_started: statuses.filter_map(started).collect(),
        ephemeral: pod.map(ephemeral).unwrap_or_default(),
        files,
        stats,
    })
}

fn ephemeral(pod: &Tree) -> Vec<String> {
    let volumes = pod.list("spec.volumes").iter().filter(|volume| crate::model::pod::is_ephemeral(volume));
    volumes.map(|volume| volume.str("name").to_string()).collect()
}

/// The file system of images, and the space that images use.
async fn images(host: &dyn Host) -> Option<Filesystem> {
    let response = host.images().image_fs_info(ImageFsInfoRequest {}).await.ok()?;
    let usage = response.image_filesystems.into_iter().next()?;
    let of = machine::filesystem(Path::new(&usage.fs_id.unwrap_or_default().mountpoint)).unwrap_or_default();
    let used = value(&usage.used_bytes).unwrap_or(0);
    let inodes_used = value(&usage.inodes_used).unwrap_or(0);
    Some(Filesystem { used, inodes_used, ..of })
}
