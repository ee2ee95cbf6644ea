//! Add-ons: the manifests of `DATA_DIR/manifests` are applied, kept applied, and pruned when they are removed. Of several
//! servers that share a store, one at a time does so.

mod apply;
mod document;
pub(crate) mod inventory;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::files::Files;
use client::{Events, Metrics};
use server::Server;
use stdx::backoff::Backoff;
use stdx::sync::Mutex;
use store::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::elected::{Candidate, Running, campaign};
use super::in_process::LocalClients;
use apply::{Applier, MANAGER, Pass};

/// The directory in a data directory.
const DIRECTORY: &str = "manifests";
const USER: &str = "tiphys";
const GROUPS: [&str; 1] = ["system:masters"];
/// How often objects that were changed or deleted are applied again.
const RESYNC: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Files are often written in several steps.
const SETTLING: Duration = Duration::from_millis(200);

/// What applies the manifests of a data directory.
pub(super) enum Manifests {
    Always(Arc<Loop>),
    Elected(Candidate),
}

impl Manifests {
    pub(super) fn start(server: &Arc<Server>, data_dir: &Path, metrics: &Metrics) -> Manifests {
        let dir = data_dir.join(DIRECTORY);
        let (clients, of_loop) = (LocalClients::new(server), metrics.clone());
        if !server.registry.storage.is_shared {
            return Manifests::Always(Arc::new(Loop::start(&clients, dir, of_loop)));
        }
        let start = move |clients: &LocalClients| Ok(Loop::start(clients, dir.clone(), of_loop.clone()));
        Manifests::Elected(campaign(&clients, MANAGER, &GROUPS, metrics.clone(), Box::new(start)).0)
    }

    pub(super) async fn stop(self) {
        match self {
            Manifests::Always(running) => running.stop().await,
            Manifests::Elected(candidate) => candidate.stop().await,
        }
    }
}

/// The running loop.
pub(super) struct Loop {
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Loop {
    fn start(clients: &LocalClients, dir: PathBuf, metrics: Metrics) -> Loop {
        let client = clients.client(USER, USER.to_string(), &GROUPS);
        let recorder = Events::start(clients.clock.clone(), metrics).recorder(client.clone(), MANAGER);
        let applier = Applier { client, recorder, host: clients.host.clone() };
        let (stop, stopped) = watch::channel(false);
        Loop { stop, task: Mutex::new(Some(tokio::spawn(run(applier, dir, stopped)))) }
    }
}

impl Running for Loop {
    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()> {
        self.stop.send_replace(true);
        let task = self.task.lock().take();
        Box::pin(async move {
            if let Some(task) = task {
                let _ = task.await;
            }
        })
    }

    fn abort(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

async fn run(applier: Applier, dir: PathBuf, mut stopped: watch::Receiver<bool>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        // Before the files are read, so that no change is missed.
        let files = Files::watch(std::slice::from_ref(&dir));
        let pass = applier.sync(&dir).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to apply manifests, retrying");
            Pass::Failed
        });
        let pause = match pass {
            Pass::Failed => Some(backoff.next_pause()),
            Pass::Applied => Some(RESYNC),
            Pass::Empty => None,
        };
        if pass != Pass::Failed {
            backoff.reset();
        }
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = changed(files) => {}
            () = elapsed(pause) => {}
        }
    }
}

/// Without a watch, for example because the limit of inotify is reached, files are read again after a while.
async fn changed(files: std::io::Result<Files>) {
    match files {
        Ok(files) => {
            files.changed().await;
            tokio::time::sleep(SETTLING).await;
        }
        Err(_) => tokio::time::sleep(RESYNC).await,
    }
}

async fn elapsed(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
