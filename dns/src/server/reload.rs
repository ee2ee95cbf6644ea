//! Puts a Corefile into force, and follows its source. A Corefile with a mistake changes nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::config_map::ConfigMap;
use super::{Cluster, Config, CorefileSource, Shared, StartError, files, listeners};
use crate::chain::{Environment, Program};
use crate::corefile::{Corefile, CorefileError, Kubernetes, Problem};
use crate::directory::{Directory, PodWatch, Watches};
use crate::zone::PodMode;

/// Several changes of a file within this are one.
const SETTLE: Duration = Duration::from_millis(50);
/// How long the start waits for the API server before it uses the built-in Corefile.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// A program without server blocks, before the first one.
pub(super) fn empty() -> Program {
    let environment = Environment {
        own: Vec::new(),
        metrics: Arc::default(),
        directory: &|_, _| None,
        host_search: Vec::new(),
        read: &|_| String::new(),
    };
    Program::compile(Corefile::default(), &environment, None)
}

fn read_file(path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|source| StartError::Read { path: path.to_path_buf(), source })
}

fn config_map(cluster: &Cluster, namespace: &str, name: &str) -> ConfigMap {
    ConfigMap { client: cluster.client.clone(), namespace: namespace.to_string(), name: name.to_string() }
}

/// The text at the start. A ConfigMap that cannot be read, or is wrong, does not keep the server from starting.
pub(super) async fn first_text(config: &Config, cluster: Option<&Cluster>) -> Result<String, StartError> {
    match &config.corefile {
        CorefileSource::Text(text) => Ok(text.clone()),
        CorefileSource::File(path) => read_file(path),
        CorefileSource::ConfigMap { namespace, name, otherwise } => {
            let map = config_map(cluster.ok_or(StartError::NoCluster)?, namespace, name);
            let read = tokio::time::timeout(FIRST_WAIT, map.read()).await;
            let text = read.ok().and_then(Result::ok).and_then(|(text, _)| text);
            Ok(text.filter(|text| parse(text, config.default_port).is_ok()).unwrap_or_else(|| otherwise.clone()))
        }
    }
}

/// Parses with the variables of the process.
pub(super) fn parse(text: &str, default_port: u16) -> Result<Corefile, Vec<CorefileError>> {
    Corefile::parse_with_port(text, &|name| std::env::var(name).ok(), default_port)
}

/// Compiles a Corefile, opens its sockets, and replaces the old one.
pub(super) async fn apply(shared: &Arc<Shared>, corefile: Corefile) -> Result<(), StartError> {
    let desired = listeners::desired(&corefile, &shared.config);
    shared.listeners.open(shared, &desired)?;
    let program = compile(shared, corefile);
    shared.program.store(program);
    shared.listeners.retain(&desired);
    Ok(())
}

fn compile(shared: &Arc<Shared>, corefile: Corefile) -> Arc<Program> {
    let previous = shared.program.load_full();
    let mut paths = files::named(&corefile);
    paths.insert(shared.config.resolv_conf.clone());
    *shared.files.lock() = files::contents(paths);
    let own: Vec<SocketAddr> = shared.listeners.addresses();
    let environment = Environment {
        own,
        metrics: shared.metrics.clone(),
        directory: &|kubernetes, needs_pods| directory(shared, kubernetes, needs_pods),
        host_search: files::search_domains(&files::read(&shared.config.resolv_conf)),
        read: &files::read,
    };
    let program = Arc::new(Program::compile(corefile, &environment, Some(&previous)));
    // Directories that no program uses end with the last reference to them.
    shared.directories.lock().retain(|directory| Arc::strong_count(directory) > 1);
    program
}

/// The index for a plugin: one that exists with the same watches, or a new one.
fn directory(shared: &Arc<Shared>, kubernetes: &Kubernetes, needs_pods: bool) -> Option<Arc<Directory>> {
    let cluster = shared.cluster.as_ref()?;
    let pods = match (kubernetes.zone.pods, needs_pods, &shared.config.node_name) {
        (PodMode::Verified, _, _) | (_, true, None) => PodWatch::All,
        (_, true, Some(node)) => PodWatch::Node(node.clone()),
        (_, false, _) => PodWatch::None,
    };
    let watches = Watches::new(kubernetes, pods);
    let mut directories = shared.directories.lock();
    if let Some(known) = directories.iter().find(|directory| directory.watches == watches) {
        return Some(known.clone());
    }
    let directory = Directory::follow(&cluster.client, watches, shared.config.clock.clone());
    directories.push(directory.clone());
    Some(directory)
}

/// Follows the source of the Corefile and the files that it names, until the server stops.
pub(super) async fn follow(shared: Arc<Shared>, mut text: String) {
    let mut stopped = shared.stop.subscribe();
    let (sender, mut texts) = watch::channel(None);
    let source = shared.config.corefile.clone();
    let mut is_first = true;
    let is_map = matches!(source, CorefileSource::ConfigMap { .. });
    let map = async {
        match (&source, &shared.cluster) {
            (CorefileSource::ConfigMap { namespace, name, .. }, Some(cluster)) => {
                config_map(cluster, namespace, name).follow(sender).await;
            }
            _ => std::future::pending().await,
        }
    };
    let followed = async {
        loop {
            let before = shared.files.lock().clone();
            let mut paths: BTreeSet<PathBuf> = before.keys().cloned().collect();
            if let CorefileSource::File(path) = &source {
                paths.insert(path.clone());
            }
            // Watched first: what changed before is seen by its content.
            let watched = files::watch(&paths);
            loop {
                let current = new_text(&source, texts.borrow_and_update().clone(), is_first, &text);
                if current != text || files::contents(before.keys().cloned().collect()) != before {
                    text = current;
                    break;
                }
                tokio::select! {
                    biased;
                    Ok(()) = texts.changed(), if is_map => is_first = false,
                    () = files::changed(watched.as_ref()) => tokio::time::sleep(SETTLE).await,
                }
            }
            reload(&shared, &text).await;
        }
    };
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = map => {}
        () = followed => {}
    }
}

/// The text of the source now; before the ConfigMap was read, it is the one in force.
fn new_text(source: &CorefileSource, from_map: Option<String>, is_first: bool, current: &str) -> String {
    match source {
        CorefileSource::File(path) => read_file(path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "failed to read the Corefile, keeping the old one");
            current.to_string()
        }),
        CorefileSource::ConfigMap { otherwise, .. } if !is_first => from_map.unwrap_or_else(|| otherwise.clone()),
        CorefileSource::ConfigMap { .. } | CorefileSource::Text(_) => current.to_string(),
    }
}

async fn reload(shared: &Arc<Shared>, text: &str) {
    let errors = match parse(text, shared.config.default_port) {
        Err(errors) => errors,
        Ok(corefile) => match apply(shared, corefile).await {
            Ok(()) => {
                tracing::info!("Corefile reloaded");
                shared.rejected.lock().clear();
                return;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "failed to apply the Corefile");
                vec![CorefileError { line: 1, problem: Problem::Syntax("an address cannot be opened") }]
            }
        },
    };
    for error in &errors {
        tracing::error!(%error, "Corefile rejected, keeping the old one");
    }
    shared.metrics.reload_failures.inc();
    *shared.rejected.lock() = errors;
}
