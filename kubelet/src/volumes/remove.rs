//! Removes a pod's volumes. Nothing is ever deleted through a mount: mounts are unmounted first, and if that fails,
//! everything is kept.

use std::io;
use std::path::Path;

use stdx::backoff::Backoff;

use super::csi::CsiError;
use super::{FIRST_PAUSE, LONGEST_PAUSE, Volumes, mountinfo};

/// Volumes that could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error(transparent)]
    Csi(#[from] CsiError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

impl Volumes {
    /// Unmounts and removes all volumes of a pod, after its containers were removed. A failure can be retried.
    pub async fn remove(&self, uid: &str) -> Result<(), RemoveError> {
        let state = self.state(uid);
        let mut state = state.lock().await;
        state.done.clear();
        let _busy = state.busy.clone().lock_owned().await;
        self.host.tokens.remove_pod(uid);
        self.host.certificates.remove_pod(uid);
        self.host.objects.unregister(uid);
        let dir = self.host.config.pod_dir(uid);
        // CSI volumes are unmounted by their drivers.
        self.host.csi.unpublish_pod(&dir, uid).await?;
        tokio::task::spawn_blocking(move || clear(&dir)).await??;
        self.sole().retain(|_, by| by != uid);
        self.pods().remove(uid);
        Ok(())
    }

    /// Removes volumes of pods that are not known any more. It retries until their drivers are registered.
    pub(crate) async fn clean_up(&self, is_known: impl Fn(&str) -> bool) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while !self.clean_up_once(&is_known).await {
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn clean_up_once(&self, is_known: &impl Fn(&str) -> bool) -> bool {
        let found = self.reconstruct().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read pod directories");
            Vec::new()
        });
        let mut all = true;
        for uid in found.iter().filter(|uid| !is_known(uid)) {
            if let Err(error) = self.remove(uid).await {
                tracing::warn!(uid, %error, "failed to remove leftovers of pod");
                all = false;
            }
        }
        all
    }

    /// Pods with a directory on this node, including those from before the kubelet started. Unknown ones have to be
    /// removed.
    pub fn reconstruct(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.host.config.root_dir.join("pods")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut uids = Vec::new();
        for entry in entries {
            uids.push(entry?.file_name().to_string_lossy().into_owned());
        }
        uids.sort();
        Ok(uids)
    }
}

pub(super) fn clear(dir: &Path) -> io::Result<()> {
    for place in mountinfo::below(dir)? {
        mountinfo::unmount(&place).map_err(|error| with_path(&place, "cannot be unmounted", &error))?;
    }
    if let Some(place) = mountinfo::below(dir)?.first() {
        return Err(io::Error::other(format!("{} is still mounted", place.display())));
    }
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(with_path(dir, "cannot be removed", &error)),
        _ => Ok(()),
    }
}

fn with_path(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{} {what}: {error}", path.display()))
}
