//! Reports the node's drivers: its CSINode, and an annotation and labels of the Node.

use std::collections::BTreeMap;

use api::{Tree, json, list, tree};
use client::{Client, Patch, Resource};

use super::wire::NodeInfo;

const CSI_NODES: Resource = Resource::new("storage.k8s.io", "v1", "csinodes");
const NODES: Resource = Resource::core("nodes");
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
const ATTEMPTS: usize = 5;

/// A driver that the node's objects do not show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeInfoError {
    #[error("error adding CSI driver node info: driverNodeID must not be empty")]
    NoId,
    #[error("{}", .0.message())]
    GetNode(#[source] client::Error),
    #[error("error updating Node object with CSI driver node info: {}", .0.message())]
    PatchNode(#[source] client::Error),
    #[error("error updating CSINode: {}", .0.message())]
    CsiNode(#[source] client::Error),
}

/// Adds or replaces a driver.
pub(crate) async fn install(client: &Client, node: &str, driver: &str, info: &NodeInfo) -> Result<(), NodeInfoError> {
    if info.node_id.is_empty() {
        return Err(NodeInfoError::NoId);
    }
    annotate(client, node, driver, Some(info)).await?;
    change(client, node, |object| with_driver(object, driver, Some(info))).await
}

pub(crate) async fn uninstall(client: &Client, node: &str, driver: &str) -> Result<(), NodeInfoError> {
    change(client, node, |object| with_driver(object, driver, None)).await?;
    annotate(client, node, driver, None).await
}

/// Creates the node's CSINode if it is missing.
pub(crate) async fn initialize(client: &Client, node: &str) -> Result<(), NodeInfoError> {
    change(client, node, |_| {}).await
}

async fn annotate(client: &Client, node: &str, driver: &str, info: Option<&NodeInfo>) -> Result<(), NodeInfoError> {
    let there = client.get(NODES, "", node).await.map_err(NodeInfoError::GetNode)?;
    let ids = with_id(there.map("metadata.annotations").str(NODE_IDS), driver, info.map(|info| info.node_id.as_str()));
    let mut patch = tree! { "metadata" => tree! { "annotations" => tree! { NODE_IDS => ids } } };
    for (key, value) in
        info.and_then(|info| info.accessible_topology.as_ref()).map(|all| &all.segments).into_iter().flatten()
    {
        patch.child("metadata.labels").set(key, value);
    }
    let patched = client.patch(NODES, "", node, "", Patch::Merge(&patch)).await;
    patched.map(|_| ()).map_err(NodeInfoError::PatchNode)
}

/// The annotation with the node's ID for each driver; null if none is left.
fn with_id(note: &str, driver: &str, id: Option<&str>) -> Tree {
    let mut ids: BTreeMap<String, Tree> = json::decode(note.as_bytes())
        .ok()
        .and_then(|note| {
            note.as_map().map(|map| map.iter().map(|(key, value)| (key.to_string(), value.clone())).collect())
        })
        .unwrap_or_default();
    match id {
        Some(id) => drop(ids.insert(driver.to_string(), id.into())),
        None => drop(ids.remove(driver)),
    }
    if ids.is_empty() {
        return Tree::Null;
    }
    let mut map = Tree::map_new();
    ids.into_iter().for_each(|(key, value)| map.set(&key, value));
    String::from_utf8_lossy(&json::encode(&map, None)).into_owned().into()
}

async fn change(client: &Client, node: &str, change: impl Fn(&mut Tree)) -> Result<(), NodeInfoError> {
    for _ in 1..ATTEMPTS {
        match attempt(client, node, &change).await {
            Err(error) if error.is_conflict() || error.is_already_exists() => {}
            done => return done.map_err(NodeInfoError::CsiNode),
        }
    }
    attempt(client, node, &change).await.map_err(NodeInfoError::CsiNode)
}

async fn attempt(client: &Client, node: &str, change: &impl Fn(&mut Tree)) -> client::Result<()> {
    match client.get(CSI_NODES, "", node).await {
        Ok(before) => {
            let mut after = before.clone();
            change(&mut after);
            if after != before {
                client.update(CSI_NODES, "", node, &after).await?;
            }
        }
        Err(error) if error.is_not_found() => {
            let owner = client.get(NODES, "", node).await?;
            let mut object = empty(node, owner.str("metadata.uid"));
            change(&mut object);
            client.create(CSI_NODES, "", &object).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn empty(node: &str, uid: &str) -> Tree {
    let owner = tree! { "apiVersion" => "v1", "kind" => "Node", "name" => node, "uid" => uid };
    tree! {
        "apiVersion" => "storage.k8s.io/v1", "kind" => "CSINode",
        "metadata" => tree! { "name" => node, "ownerReferences" => list![owner] },
        "spec" => tree! { "drivers" => list![] },
    }
}

fn with_driver(object: &mut Tree, name: &str, info: Option<&NodeInfo>) {
    let drivers = object.child("spec").list_entry("drivers");
    let wanted = info.map(|info| driver(name, info));
    // An unchanged entry keeps its position.
    if wanted.as_ref().is_some_and(|wanted| drivers.contains(wanted)) {
        return;
    }
    drivers.retain(|driver| driver.str("name") != name);
    drivers.extend(wanted);
}

fn driver(name: &str, info: &NodeInfo) -> Tree {
    let mut driver = tree! { "name" => name, "nodeID" => &info.node_id };
    let keys: Vec<Tree> =
        info.accessible_topology.iter().flat_map(|topology| topology.segments.keys()).map(Tree::from).collect();
    if !keys.is_empty() {
        driver.set("topologyKeys", keys);
    }
    if info.max_volumes_per_node > 0 {
        let count = info.max_volumes_per_node.min(i64::from(i32::MAX));
        driver.set("allocatable", tree! { "count" => count });
    }
    driver
}

#[cfg(test)]
mod tests {
    use super::super::wire::Topology;
    use super::*;

    #[test]
    fn adds_and_removes_drivers() {
        let topology = Topology { segments: [("zone".to_string(), "a".to_string())].into() };
        let info = NodeInfo { node_id: "id".into(), max_volumes_per_node: 3, accessible_topology: Some(topology) };
        let mut object = empty("n", "u");
        with_driver(&mut object, "d", Some(&info));
        with_driver(&mut object, "e", Some(&NodeInfo { node_id: "x".into(), ..NodeInfo::default() }));
        let wanted = tree! {
            "name" => "d", "nodeID" => "id", "topologyKeys" => list!["zone"], "allocatable" => tree! { "count" => 3 },
        };
        assert_eq!(object.list("spec.drivers"), [wanted.clone(), tree! { "name" => "e", "nodeID" => "x" }]);
        let same = object.clone();
        with_driver(&mut object, "d", Some(&info));
        assert_eq!(object, same);
        with_driver(&mut object, "e", None);
        assert_eq!(object.list("spec.drivers"), [wanted]);
    }

    #[test]
    fn annotation_names_all_drivers() {
        assert_eq!(with_id("", "d", Some("1")), Tree::from(r#"{"d":"1"}"#));
        assert_eq!(with_id(r#"{"d":"1"}"#, "e", Some("2")), Tree::from(r#"{"d":"1","e":"2"}"#));
        assert_eq!(with_id(r#"{"d":"1","e":"2"}"#, "d", None), Tree::from(r#"{"e":"2"}"#));
        assert_eq!(with_id(r#"{"d":"1"}"#, "d", None), Tree::Null);
        assert_eq!(with_id("no json", "d", Some("1")), Tree::from(r#"{"d":"1"}"#));
    }
}
