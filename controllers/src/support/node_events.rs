//! What is told of nodes.

use api::{Tree, tree};
use client::Recorder;

/// A node as events name it: without a version.
fn about(node: &Tree) -> Tree {
    let metadata = tree! { "name" => node.str("metadata.name"), "uid" => node.str("metadata.uid") };
    tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => metadata }
}

/// Its status has changed.
pub fn tell_status(recorder: &Recorder, node: &Tree, status: &str) {
    let name = node.str("metadata.name");
    recorder.normal(&about(node), status, format!("Node {name} status is now: {status}"));
}

/// Something was done with it.
pub fn tell(recorder: &Recorder, node: &Tree, reason: &str, what: &str) {
    let name = node.str("metadata.name");
    recorder.normal(&about(node), reason, format!("Node {name} event: {what}"));
}
