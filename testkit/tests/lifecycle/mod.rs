//! Controllers that delete objects and react to lost nodes: owners and dependents, namespaces, nodes, certificates.

mod certificates;
mod garbage;
mod namespaces;
mod nodes;
mod tokens;

use api::{Tree, tree};
use testkit::Client;

use super::until;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A ConfigMap with these owners, given as objects from responses.
async fn map(client: &Client, path: &str, name: &str, owners: &[&Tree]) -> Tree {
    let reference = |owner: &&Tree| {
        tree! {
            "apiVersion" => owner.str("apiVersion"),
            "kind" => owner.str("kind"),
            "name" => owner.str("metadata.name"),
            "uid" => owner.str("metadata.uid"),
            "blockOwnerDeletion" => true,
        }
    };
    let owners: Vec<Tree> = owners.iter().map(reference).collect();
    let metadata = tree! { "name" => name, "ownerReferences" => owners };
    let answer =
        client.post(path, &tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => metadata }).await;
    assert_eq!(answer.code, 201, "{:?}", answer.tree());
    answer.tree()
}

async fn is_gone(client: &Client, path: &str) -> bool {
    client.get(path).await.code == 404
}

async fn until_gone(client: &Client, path: &str) {
    until(path, async || is_gone(client, path).await).await;
}

/// The events about an object, as `REASON: MESSAGE`.
async fn events(client: &Client, namespace: &str, name: &str) -> Vec<String> {
    let events = client.get(&format!("/api/v1/namespaces/{namespace}/events")).await.tree();
    let about = events.list("items").iter().filter(|event| event.str("involvedObject.name") == name);
    about.map(|event| format!("{}: {}", event.str("reason"), event.str("message"))).collect()
}
