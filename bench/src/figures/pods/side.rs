//! A cluster of one node, and what is seen of its pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Tree, list, tree};
use client::{Change, Client, DeleteOptions, Informers, Key, Propagation, Random, Resource, Selection};
use stdx::sync::Mutex;
use tokio::sync::watch;

use crate::Result;
use crate::child::Server;
use crate::inside::CGROUP;

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const NAMESPACE: &str = "default";
const BURST: &str = "burst";
/// A longer time is a failure.
const PATIENCE: Duration = Duration::from_secs(180);
/// The pause between polls of state without a watch.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Side {
    pub server: Server,
    client: Client,
    counts: watch::Receiver<Counts>,
    informers: Informers,
    image: String,
    dir: PathBuf,
    flags: Vec<String>,
}

type Keys = BTreeSet<Key>;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    there: usize,
    ready: usize,
}

impl Side {
    /// A cluster whose node is ready and has the image.
    pub(super) async fn start(dir: &Path, image: &str, flags: &[&str]) -> Result<Side> {
        let mut side = Side::begin(dir.to_path_buf(), image.to_string(), flags.iter().map(ToString::to_string)).await?;
        side.create_pod("first").await?;
        side.delete_pod("first").await?;
        Ok(side)
    }

    /// The same cluster in a new process.
    pub(super) async fn start_again(self) -> Result<Side> {
        let Side { server, informers, image, dir, flags, .. } = self;
        informers.stop();
        server.stop().await?;
        Side::begin(dir, image, flags.into_iter()).await
    }

    async fn begin(dir: PathBuf, image: String, flags: impl Iterator<Item = String>) -> Result<Side> {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or("node").to_string();
        let flags: Vec<String> = flags.collect();
        let cgroup = format!("{CGROUP}/{name}");
        let mut given = vec!["--node-name", &name, "--cgroup-root", &cgroup, "--log-level", "error"];
        given.extend(flags.iter().map(String::as_str));
        let server = Server::up(&dir, &given).await?;
        let client = server.client()?;
        until_ready(&client, &name).await?;
        let informers = Informers::new(client.clone(), Arc::new(Random::seeded(1)));
        let counts = count(&informers);
        informers.start();
        informers.synced().await;
        Ok(Side { server, client, counts, informers, image, dir, flags })
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.informers.stop();
        self.server.stop().await
    }

    /// How long it takes until it is ready.
    pub(crate) async fn create_pod(&mut self, name: &str) -> Result<Duration> {
        let mut pod = self.pod();
        pod.set("apiVersion", "v1");
        pod.set("kind", "Pod");
        pod.child("metadata").set("name", name);
        let began = Instant::now();
        self.client.create(PODS, NAMESPACE, &pod).await?;
        self.until("a pod does not become ready", |counts| counts.ready == 1).await?;
        Ok(began.elapsed())
    }

    pub(crate) async fn delete_pod(&mut self, name: &str) -> Result<Duration> {
        let began = Instant::now();
        self.client.delete(PODS, NAMESPACE, name, DeleteOptions::default()).await?;
        self.until("a pod does not go", |counts| counts.there == 0).await?;
        Ok(began.elapsed())
    }

    /// Replicas of a Deployment, from its creation until all are ready.
    pub(crate) async fn create_replicas(&mut self, replicas: usize) -> Result<Duration> {
        let deployment = tree! {
            "apiVersion" => "apps/v1",
            "kind" => "Deployment",
            "metadata" => tree! { "name" => BURST },
            "spec" => tree! {
                "replicas" => i64::try_from(replicas)?,
                "selector" => tree! { "matchLabels" => tree! { "app" => BURST } },
                "template" => self.pod(),
            },
        };
        let began = Instant::now();
        self.client.create(DEPLOYMENTS, NAMESPACE, &deployment).await?;
        self.until("replicas do not become ready", |counts| counts.ready == replicas).await?;
        Ok(began.elapsed())
    }

    pub(crate) async fn delete_replicas(&mut self) -> Result<Duration> {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let began = Instant::now();
        self.client.delete(DEPLOYMENTS, NAMESPACE, BURST, options).await?;
        self.until("replicas do not go", |counts| counts.there == 0).await?;
        Ok(began.elapsed())
    }

    fn pod(&self) -> Tree {
        let container = tree! { "name" => "main", "image" => self.image.as_str(), "imagePullPolicy" => "IfNotPresent" };
        tree! {
            "metadata" => tree! { "labels" => tree! { "app" => BURST } },
            "spec" => tree! { "containers" => list![container] },
        }
    }

    async fn until(&mut self, otherwise: &str, holds: impl Fn(&Counts) -> bool) -> Result<()> {
        let seen = tokio::time::timeout(PATIENCE, self.counts.wait_for(holds)).await.map(|seen| seen.map(drop));
        let counts = *self.counts.borrow();
        Ok(seen.map_err(|_| format!("{otherwise}: {counts:?}"))??)
    }
}

async fn until_ready(client: &Client, node: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let is_ready = client.get(NODES, "", node).await.is_ok_and(|node| is_true(&node, "Ready"));
        let account = client.get(Resource::core("serviceaccounts"), NAMESPACE, "default").await;
        if is_ready && account.is_ok() {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("the node {node} does not become ready").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_true(object: &Tree, kind: &str) -> bool {
    let condition = object.list("status.conditions").iter().find(|condition| condition.str("type") == kind);
    condition.is_some_and(|condition| condition.str("status") == "True")
}

/// How many pods there are and how many of them are ready, with each change of one.
fn count(informers: &Informers) -> watch::Receiver<Counts> {
    let (sender, receiver) = watch::channel(Counts::default());
    let seen: Mutex<(Keys, Keys)> = Mutex::default();
    informers.informer(Selection::all(PODS)).on_change(move |change: &Change| {
        let (there, ready) = &mut *seen.lock();
        let is_ready = |pod: &Tree| pod.str("status.phase") == "Running" && is_true(pod, "Ready");
        mark(there, &change.key, change.new.is_some());
        mark(ready, &change.key, change.new.as_ref().is_some_and(|pod| is_ready(pod)));
        sender.send_replace(Counts { there: there.len(), ready: ready.len() });
    });
    receiver
}

fn mark(set: &mut Keys, key: &Key, is_in: bool) {
    if is_in {
        set.insert(key.clone());
    } else {
        set.remove(key);
    }
}
