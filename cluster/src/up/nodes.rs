//! The further nodes of a running `up --nodes`: they are listed, added, removed, stopped and started through a socket in
//! the data directory, which only its owner can reach.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::hosts::Host;
use api::{Tree, tree};
use client::{Client, DeleteOptions, Resource};
use stdx::clock::{Clock, SystemClock};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::host_id::{HostId, MAX_NODES};
use super::hosts::{HostOptions, NodeLink, failed, prepare_start, spec, wait_until_ready};
use super::servers;
use crate::error::{Error, Result};

const NODES: Resource = Resource::core("nodes");
/// Below the data directory: a directory that only its owner enters, so that the socket is never open to others.
const DIRECTORY: &str = "nodes/control";
const SOCKET: &str = "socket";
/// The longest request or response.
const MAX_LINE: u64 = 1 << 20;
/// How long a response may take: nodes have to become ready, and pods to stop.
const TIMEOUT: Duration = Duration::from_secs(180);

/// What the user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeCommand {
    List,
    Add(u32),
    Remove(String),
    /// `true` switches the node off at once.
    Stop(String, bool),
    Start(String),
}

impl NodeCommand {
    fn to_tree(&self) -> Tree {
        let named = |command: &str, name: &str| tree! { "command" => command, "name" => name };
        match self {
            NodeCommand::List => named("list", ""),
            NodeCommand::Add(count) => tree! { "command" => "add", "count" => i64::from(*count) },
            NodeCommand::Remove(name) => named("remove", name),
            NodeCommand::Start(name) => named("start", name),
            NodeCommand::Stop(name, false) => named("stop", name),
            NodeCommand::Stop(name, true) => named("switch-off", name),
        }
    }

    fn of_tree(object: &Tree) -> Option<NodeCommand> {
        let name = object.str("name").to_string();
        Some(match object.str("command") {
            "list" => NodeCommand::List,
            "add" => NodeCommand::Add(object.int("count").and_then(|count| u32::try_from(count).ok())?),
            "remove" => NodeCommand::Remove(name),
            "start" => NodeCommand::Start(name),
            "stop" => NodeCommand::Stop(name, false),
            "switch-off" => NodeCommand::Stop(name, true),
            _ => return None,
        })
    }
}

/// The simulated hosts of a cluster while they run.
pub struct RunningHosts {
    manager: Arc<NodeManager>,
    socket: JoinHandle<()>,
}

/// Starts the hosts, waits until their nodes are ready, and serves the socket for `tiphys node`.
pub(super) async fn start(client: Client, options: HostOptions, link: NodeLink) -> Result<RunningHosts> {
    let ids: Vec<HostId> = (2..=options.nodes).map(HostId::Node).collect();
    let starting = Starting::new(client, options, link);
    let started = starting.start(&ids).await;
    starting.finish(started).await
}

/// The hosts while some of them start.
pub(super) struct Starting(Arc<NodeManager>);

impl Starting {
    pub(super) fn new(client: Client, options: HostOptions, link: NodeLink) -> Starting {
        Starting(Arc::new(NodeManager { client, options, link, nodes: Mutex::default() }))
    }

    /// Starts hosts, and waits until their nodes are ready.
    pub(super) async fn start(&self, ids: &[HostId]) -> Result<()> {
        self.0.start(ids).await
    }

    /// Serves the socket; after a failure, stops what was started.
    pub(super) async fn finish(self, started: Result<()>) -> Result<RunningHosts> {
        let manager = self.0;
        match started.and_then(|()| serve(&manager.options.data_dir, manager.clone())) {
            Ok(socket) => Ok(RunningHosts { manager, socket }),
            Err(error) => {
                manager.stop_all().await;
                Err(error)
            }
        }
    }
}

impl RunningHosts {
    /// The link of the hosts.
    pub(crate) fn link(&self) -> &NodeLink {
        self.manager.link()
    }

    /// Stops all hosts at the same time; returns what could not be removed.
    pub async fn stop(self) -> Vec<String> {
        self.socket.abort();
        self.manager.stop_all().await
    }
}

/// The nodes of this machine.
struct NodeManager {
    client: Client,
    options: HostOptions,
    link: NodeLink,
    nodes: Mutex<BTreeMap<HostId, Option<Host>>>,
}

impl NodeManager {
    fn link(&self) -> &NodeLink {
        &self.link
    }

    /// The URL of a server that runs.
    fn server(&self, nodes: &mut BTreeMap<HostId, Option<Host>>) -> String {
        let running = nodes.iter_mut().find_map(|(id, host)| match id {
            HostId::Server(number) if host.as_mut().is_some_and(Host::is_running) => Some(*number),
            _ => None,
        });
        match (&self.options.servers, running) {
            (None, _) => self.options.server.clone(),
            (Some(_), running) => servers::url(&self.link, running.unwrap_or(1)),
        }
    }

    /// Starts hosts, and waits until their nodes are ready. Hosts that fail are stopped again.
    async fn start(&self, ids: &[HostId]) -> Result<()> {
        let mut nodes = self.nodes.lock().await;
        let server = self.server(&mut nodes);
        let files = prepare_start(&self.client, &self.options, ids, server).await?;
        let since = SystemClock.now().seconds;
        let mut started = BTreeMap::new();
        let outcome = async {
            for &id in ids {
                let spec = spec(&self.options, &self.link, id, &files)?;
                started.insert(id, Host::start(&spec, self.link.router()).await.map_err(failed)?);
            }
            let mut hosts: Vec<&mut Host> = started.values_mut().collect();
            wait_until_ready(&self.client, &self.options, ids, &mut hosts, since).await
        };
        let outcome = outcome.await;
        files.remove();
        match outcome {
            Ok(()) => {
                nodes.extend(started.into_iter().map(|(id, host)| (id, Some(host))));
                Ok(())
            }
            Err(error) => {
                for host in started.into_values() {
                    let _ = host.stop().await;
                }
                Err(error)
            }
        }
    }

    /// Stops all hosts, those of one role at the same time: nodes before servers, whose store is the last. Returns what
    /// could not be removed.
    async fn stop_all(&self) -> Vec<String> {
        let mut nodes = std::mem::take(&mut *self.nodes.lock().await);
        let mut left = Vec::new();
        for first in [HostId::Node(0), HostId::Server(0), HostId::Member(0)] {
            let hosts = nodes.split_off(&first).into_values().flatten();
            left.extend(stop_together(hosts).await);
        }
        let link = self.link.clone();
        left.extend(tokio::task::spawn_blocking(move || link.remove()).await.unwrap_or_default());
        left
    }

    async fn run(&self, command: NodeCommand) -> Result<Vec<String>> {
        match command {
            NodeCommand::List => Ok(self.list().await),
            NodeCommand::Add(count) => self.add(count).await,
            NodeCommand::Remove(name) => self.remove(&name).await,
            NodeCommand::Stop(name, at_once) => {
                self.stop(&name, at_once).await.map(|()| vec![format!("{name} stopped")])
            }
            NodeCommand::Start(name) => {
                let id = self.stopped_id(&name).await?;
                self.start(&[id]).await?;
                Ok(vec![format!("{name} started")])
            }
        }
    }

    async fn list(&self) -> Vec<String> {
        let first = &self.options.node_name;
        let mut lines = Vec::new();
        if self.options.servers.is_none() {
            lines.push(format!("{first}\trunning\t{}\tserver", self.link.address()));
        }
        for (id, host) in self.nodes.lock().await.iter_mut() {
            let state = if host.as_mut().is_some_and(Host::is_running) { "running" } else { "stopped" };
            let address = self.link.host(*id).map(|link| link.net.address.to_string()).unwrap_or_default();
            lines.push(format!("{}\t{state}\t{address}\t{}", id.name(first), id.role()));
        }
        lines
    }

    async fn add(&self, count: u32) -> Result<Vec<String>> {
        let known: Vec<HostId> = self.nodes.lock().await.keys().copied().collect();
        let ids = free_ids(&known, count)?;
        self.start(&ids).await?;
        Ok(ids.iter().map(|id| format!("{} added", id.name(&self.options.node_name))).collect())
    }

    async fn remove(&self, node: &str) -> Result<Vec<String>> {
        let id = self.id(node)?;
        if !matches!(id, HostId::Node(_)) {
            let why = format!("{node} belongs to the control plane: it can be stopped, and not be removed");
            return Err(Error::Flags(vec![why]));
        }
        let host = self.nodes.lock().await.remove(&id).ok_or_else(|| unknown(node))?;
        if let Some(host) = host {
            host.stop().await.map_err(failed)?;
        }
        match self.client.delete(NODES, "", node, DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => return Err(Error::Response(error.to_string())),
            _ => {}
        }
        let dir = self.options.directory(id);
        std::fs::remove_dir_all(&dir).map_err(Error::file(&dir))?;
        Ok(vec![format!("{node} removed")])
    }

    async fn stop(&self, node: &str, at_once: bool) -> Result<()> {
        let id = self.id(node)?;
        let mut nodes = self.nodes.lock().await;
        let host = nodes.get_mut(&id).ok_or_else(|| unknown(node))?.take();
        drop(nodes);
        match host {
            Some(host) if at_once => host.switch_off().await.map_err(failed),
            Some(host) => host.stop().await.map_err(failed),
            None => Err(Error::Flags(vec![format!("{node} is stopped already")])),
        }
    }

    async fn stopped_id(&self, node: &str) -> Result<HostId> {
        let id = self.id(node)?;
        let mut nodes = self.nodes.lock().await;
        let host = nodes.get_mut(&id).ok_or_else(|| unknown(node))?;
        match host.as_mut().is_some_and(Host::is_running) {
            true => Err(Error::Flags(vec![format!("{node} runs already")])),
            false => Ok(id),
        }
    }

    fn id(&self, node: &str) -> Result<HostId> {
        if self.options.servers.is_none() && node == self.options.node_name {
            let why =
                format!("{node} is this machine, which runs the control plane: only simulated nodes can be changed");
            return Err(Error::Flags(vec![why]));
        }
        HostId::parse(node, &self.options.node_name, self.options.server_count()).ok_or_else(|| unknown(node))
    }
}

/// Stops hosts at the same time; returns what could not be removed.
async fn stop_together(hosts: impl Iterator<Item = Host>) -> Vec<String> {
    let mut stopping = tokio::task::JoinSet::new();
    for host in hosts {
        let name = host.name().to_string();
        stopping.spawn(async move { host.stop().await.map_err(|error| format!("node {name}: {error}")) });
    }
    let mut left = Vec::new();
    while let Some(stopped) = stopping.join_next().await {
        match stopped {
            Ok(Ok(())) => {}
            Ok(Err(why)) => left.push(why),
            Err(error) => left.push(error.to_string()),
        }
    }
    left
}

fn unknown(node: &str) -> Error {
    Error::Flags(vec![format!("there is no node {node:?}: `tiphys node list` shows them")])
}

/// Nodes with the lowest numbers that no node has. The first node is the machine itself, or a server.
fn free_ids(known: &[HostId], count: u32) -> Result<Vec<HostId>> {
    let is_free = |number: &u32| !known.contains(&HostId::Node(*number)) && !known.contains(&HostId::Server(*number));
    let free: Vec<HostId> = (2..=MAX_NODES).filter(is_free).take(count as usize).map(HostId::Node).collect();
    match free.len() == count as usize && count > 0 {
        true => Ok(free),
        false => Err(Error::Flags(vec![format!("a machine has at most {MAX_NODES} nodes, and at least one is added")])),
    }
}

/// Serves the socket until it is aborted.
fn serve(data_dir: &Path, manager: Arc<NodeManager>) -> Result<JoinHandle<()>> {
    let dir = data_dir.join(DIRECTORY);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::file(&dir))?;
    let path = dir.join(SOCKET);
    // The data directory is locked: an old socket belongs to no process.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(Error::file(&path))?;
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let manager = manager.clone();
            tokio::spawn(async move {
                if let Err(error) = respond(stream, &manager).await {
                    tracing::debug!(%error, "node command ended early");
                }
            });
        }
    }))
}

async fn respond(stream: UnixStream, manager: &NodeManager) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(read.take(MAX_LINE)).read_until(b'\n', &mut line).await?;
    let command = api::json::decode(&line).ok().as_ref().and_then(NodeCommand::of_tree);
    let result = match command {
        Some(command) => manager.run(command).await,
        None => Err(Error::Flags(vec!["the running `tiphys up` is of another version".to_string()])),
    };
    let response = match result {
        Ok(lines) => tree! { "lines" => lines.into_iter().map(Tree::from).collect::<Vec<Tree>>() },
        Err(error) => tree! { "error" => error.describe() },
    };
    write.write_all(&api::json::encode(&response, None)).await?;
    write.write_all(b"\n").await
}

/// Sends a command to the `up` that runs on a data directory; returns its lines.
pub(crate) async fn send(data_dir: &Path, command: &NodeCommand) -> Result<Vec<String>> {
    let path: PathBuf = data_dir.join(DIRECTORY).join(SOCKET);
    let not_running = || {
        let why = format!(
            "no `tiphys up --nodes N` runs on {}: start one, or name its directory with --data-dir",
            data_dir.display()
        );
        Error::Flags(vec![why])
    };
    let mut stream = UnixStream::connect(&path).await.map_err(|_| not_running())?;
    let exchange = async {
        stream.write_all(&[&api::json::encode(&command.to_tree(), None)[..], b"\n"].concat()).await?;
        let mut response = Vec::new();
        stream.take(MAX_LINE).read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    let timed_out = || Error::Response("the running `tiphys up` does not respond".to_string());
    let response = tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| timed_out())?;
    let response = response.map_err(Error::file(&path))?;
    let response: Tree = api::json::decode(&response).map_err(|_| timed_out())?;
    match response.str("error") {
        "" => Ok(response.list("lines").iter().filter_map(|line| line.as_str().map(str::to_string)).collect()),
        error => Err(Error::Response(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_the_socket() {
        let name = || "node-2".to_string();
        for command in [
            NodeCommand::List,
            NodeCommand::Add(3),
            NodeCommand::Remove(name()),
            NodeCommand::Stop(name(), false),
            NodeCommand::Stop(name(), true),
            NodeCommand::Start(name()),
        ] {
            assert_eq!(NodeCommand::of_tree(&command.to_tree()).as_ref(), Some(&command));
        }
        assert_eq!(NodeCommand::of_tree(&tree! { "command" => "explode" }), None);
    }

    #[test]
    fn new_nodes_get_free_numbers() {
        let ids = |numbers: &[u32]| numbers.iter().map(|number| HostId::Node(*number)).collect::<Vec<_>>();
        assert_eq!(free_ids(&ids(&[2, 4]), 3).expect("numbers"), ids(&[3, 5, 6]));
        assert_eq!(
            free_ids(&[HostId::Member(4), HostId::Server(1), HostId::Server(2)], 2).expect("numbers"),
            ids(&[3, 4])
        );
        assert_eq!(free_ids(&[], 1).expect("numbers"), ids(&[2]));
        assert!(free_ids(&[], 0).is_err());
        assert!(free_ids(&[], MAX_NODES).is_err());
    }
}
