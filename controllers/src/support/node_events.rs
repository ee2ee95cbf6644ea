//! Events about nodes.

use api::{Tree, tree};
use client::Recorder;

/// A reference to the node without a version, as upstream's events have it.
fn event_reference(node: &Tree) -> Tree {
    let metadata = tree! { "name" => node.str("metadata.name"), "uid" => node.str("metadata.uid") };
    tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => metadata }
}

/// The event for a status change.
pub(crate) fn record_status(recorder: &Recorder, node: &Tree, status: &str) {
    let name = node.str("metadata.name");
    recorder.normal(&event_reference(node), status, format!("Node {name} status is now: {status}"));
}

/// An event of another reason.
pub(crate) fn record(recorder: &Recorder, node: &Tree, reason: &str, what: &str) {
    let name = node.str("metadata.name");
    recorder.normal(&event_reference(node), reason, format!("Node {name} event: {what}"));
}
