//! Reloads configuration files while the server runs. An invalid file changes nothing, and is reported in the log and
//! the metrics.

use std::path::PathBuf;
use std::sync::Arc;

use server::Server;
use server::common::reload::Reloads;

use crate::error::{Error, Result};
use crate::pki::credentials::settled;
use client::files::Files;

/// Puts new data in force.
pub(super) type ApplyFile = Box<dyn Fn(&Server, &[u8]) -> Result<()> + Send + Sync>;

/// A file, and its parsed content at the start.
pub struct ReloadedFile {
    /// The name in metrics.
    pub what: &'static str,
    pub path: PathBuf,
    pub data: Vec<u8>,
    pub apply: ApplyFile,
}

impl ReloadedFile {
    /// Reads the file a first time.
    pub fn new(what: &'static str, path: PathBuf, apply: ApplyFile) -> Result<ReloadedFile> {
        let data = std::fs::read(&path).map_err(Error::file(&path))?;
        Ok(ReloadedFile { what, path, data, apply })
    }

    /// Until the server drains.
    pub async fn run(mut self, server: Arc<Server>) {
        let reloads = match Reloads::new(server.metrics.registry(), self.what, &self.data) {
            Ok(reloads) => reloads,
            Err(error) => return tracing::error!(%error, "failed to register reload metrics"),
        };
        let files = Files::watch(std::slice::from_ref(&self.path)).inspect_err(|error| {
            tracing::warn!(%error, path = %self.path.display(), "failed to watch configuration file; changes take effect at the next start");
        });
        let mut closing = server.closing.subscribe();
        // Changes between the first read and the watch count too.
        loop {
            self.look(&server, &reloads);
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                () = settled(files.as_ref().ok()) => {}
            }
        }
    }

    fn look(&mut self, server: &Server, reloads: &Reloads) {
        let read = std::fs::read(&self.path).map_err(Error::file(&self.path));
        let applied = match read {
            Ok(data) if data == self.data => return,
            Ok(data) => {
                self.data = data;
                (self.apply)(server, &self.data)
            }
            Err(error) => Err(error),
        };
        let path = self.path.display();
        match applied {
            Ok(()) => {
                tracing::info!(%path, "{} configuration reloaded", self.what);
                reloads.succeeded(server.now(), &self.data);
            }
            Err(error) => {
                tracing::error!(%path, error = error.describe(), "failed to reload {} configuration, keeping the old one", self.what);
                reloads.failed(server.now());
            }
        }
    }
}
