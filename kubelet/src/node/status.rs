//! Pure functions: the node's status from its facts, and the patch that has to be written.

use api::time::Timestamp;
use api::{Map, Tree, tree};

use super::conditions::{Event, conditions};
use super::resources;
use super::status_input::{Handler, Image, StatusInput};
use crate::config::Config;

/// The number of listed names of an image.
const MOST_NAMES: usize = 5;

/// A status, and its events.
#[derive(Debug, PartialEq)]
pub(crate) struct StatusUpdate {
    pub(crate) status: Tree,
    pub(crate) events: Vec<Event>,
}

/// The status of an existing or new node. Fields of other components are kept.
pub(crate) fn status(config: &Config, input: &StatusInput, seen: &Tree, now: Timestamp) -> StatusUpdate {
    let old = seen.at("status");
    let mut status = if old.as_map().is_some() {
        old.clone()
    } else {
        tree! {}
    };
    let mut events = Vec::new();
    if let Some(addresses) = addresses(config, input, old.list("addresses")) {
        status.set("addresses", addresses);
    }
    let (machine, devices) = (&input.machine, &input.reports.devices);
    let capacity = resources::capacity(config, machine, devices, old.map("capacity"));
    let allocatable = resources::allocatable(config, &capacity, devices);
    status.set("capacity", resources::shown(&capacity));
    status.set("allocatable", resources::shown(&allocatable));
    let boot = old.str("nodeInfo.bootID");
    if !boot.is_empty() && boot != machine.boot_id {
        let message = format!("Node {} has been rebooted, boot id: {}", config.node_name, machine.boot_id);
        events.push(Event { is_warning: true, reason: "Rebooted", message });
    }
    status.set("nodeInfo", info(input));
    status.set("daemonEndpoints", endpoints(config));
    put(&mut status, "images", images(config, &input.images));
    put(&mut status, "runtimeHandlers", input.runtime.handlers.iter().map(handler).collect());
    put(&mut status, "declaredFeatures", input.reports.declared_features.iter().map(Tree::from).collect());
    match input.runtime.supplemental_groups_policy {
        Some(has) => status.set("features", tree! { "supplementalGroupsPolicy" => has }),
        None => drop(status.remove("features")),
    }
    if let Some(volumes) = &input.reports.volumes_in_use {
        put(&mut status, "volumesInUse", volumes.iter().map(Tree::from).collect());
    }
    let names: Vec<&str> = capacity.keys().map(String::as_str).collect();
    let isolates = config.local_storage_capacity_isolation;
    let before = (old.list("conditions"), now);
    let (conditions, turned) = conditions(&config.node_name, input, &names, isolates, before);
    status.set("conditions", conditions);
    events.extend(turned);
    StatusUpdate { status, events }
}

/// An empty list is none.
fn put(status: &mut Tree, field: &str, items: Vec<Tree>) {
    if items.is_empty() {
        drop(status.remove(field));
    } else {
        status.set(field, items);
    }
}

/// None if the addresses are not changed: they are unknown now, or a cloud provider's controller writes them.
fn addresses(config: &Config, input: &StatusInput, old: &[Tree]) -> Option<Tree> {
    if config.external_cloud_provider && (!old.is_empty() || config.node_ips.is_empty()) {
        return None;
    }
    let known = input.addresses.as_ref()?;
    let internal = known.iter().map(|address| tree! { "type" => "InternalIP", "address" => address.to_string() });
    let hostname = tree! { "type" => "Hostname", "address" => config.hostname.as_str() };
    Some(Tree::List(internal.chain([hostname]).collect()))
}

fn info(input: &StatusInput) -> Tree {
    let machine = &input.machine;
    let runtime = if input.runtime.version.is_empty() { "://Unknown" } else { &input.runtime.version };
    let mut info = tree! {
        "machineID" => machine.machine_id.as_str(), "systemUUID" => machine.system_uuid.as_str(),
        "bootID" => machine.boot_id.as_str(), "kernelVersion" => machine.kernel_version.as_str(),
        "osImage" => machine.os_image.as_str(), "containerRuntimeVersion" => runtime,
        "kubeletVersion" => api::version::git_version(), "kubeProxyVersion" => "",
        "operatingSystem" => "linux", "architecture" => machine.architecture.as_str(),
    };
    if machine.swap_bytes > 0 {
        info.set("swap", tree! { "capacity" => machine.swap_bytes });
    }
    info
}

fn endpoints(config: &Config) -> Tree {
    tree! { "kubeletEndpoint" => tree! { "Port" => i64::from(config.port) } }
}

fn images(config: &Config, images: &[Image]) -> Vec<Tree> {
    let most = config.node_status_max_images.unwrap_or(usize::MAX);
    let shown = |image: &Image| {
        let names: Vec<Tree> = image.names.iter().take(MOST_NAMES).map(Tree::from).collect();
        tree! { "names" => names, "sizeBytes" => image.size_bytes }
    };
    images.iter().take(most).map(shown).collect()
}

fn handler(handler: &Handler) -> Tree {
    let features = tree! {
        "recursiveReadOnlyMounts" => handler.recursive_read_only_mounts,
        "userNamespaces" => handler.user_namespaces,
    };
    tree! { "name" => handler.name.as_str(), "features" => features }
}

/// Whether the new status differs in more than heartbeats.
pub(crate) fn has_changed(old: &Tree, new: &Tree) -> bool {
    without_heartbeats(old) != without_heartbeats(new)
}

fn without_heartbeats(status: &Tree) -> Tree {
    let mut status = status.clone();
    for condition in status.list_mut("conditions") {
        drop(condition.remove("lastHeartbeatTime"));
    }
    status
}

/// A strategic merge patch from one status to the next: whole fields, except resources and conditions, which other
/// components write too and are merged by name, and addresses, which are replaced, because their types are not unique.
pub(crate) fn patch(old: &Tree, new: &Tree) -> Tree {
    let (nothing, mut patch) = (Map::new(), tree! {});
    let (old, new) = (old.as_map().unwrap_or(&nothing), new.as_map().unwrap_or(&nothing));
    for (field, value) in new.iter().filter(|(field, value)| old.get(field) != Some(value)) {
        let value = match field {
            "capacity" | "allocatable" => entries(old.get(field), value),
            "conditions" => changed_conditions(old.get(field), value),
            "addresses" => {
                let items = value.as_list().unwrap_or(&[]).iter().cloned();
                Tree::List([tree! { "$patch" => "replace" }].into_iter().chain(items).collect())
            }
            _ => value.clone(),
        };
        patch.set(field, value);
    }
    for field in old.keys().filter(|field| !new.contains(field)) {
        patch.set(field, Tree::Null);
    }
    tree! { "status" => patch }
}

/// The conditions that differ: other components may have changed theirs since.
fn changed_conditions(old: Option<&Tree>, new: &Tree) -> Tree {
    let old = old.and_then(Tree::as_list).unwrap_or(&[]);
    Tree::List(new.as_list().unwrap_or(&[]).iter().filter(|condition| !old.contains(condition)).cloned().collect())
}

fn entries(old: Option<&Tree>, new: &Tree) -> Tree {
    let nothing = Map::new();
    let (old, new) = (old.and_then(Tree::as_map).unwrap_or(&nothing), new.as_map().unwrap_or(&nothing));
    let mut entries = Map::new();
    for (name, value) in new.iter().filter(|(name, value)| old.get(name) != Some(value)) {
        entries.insert(name, value.clone());
    }
    for name in old.keys().filter(|name| !new.contains(name)) {
        entries.insert(name, Tree::Null);
    }
    entries.into()
}
