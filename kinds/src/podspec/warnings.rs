//! What a client is told about a spec that is right but odd.

use api::Tree;
use api::field::Path;

/// Warnings for the spec of a template; `path` is that of the template.
pub fn warnings(_template: &Tree, _path: &Path<'_>) -> Vec<String> {
    Vec::new()
}

/// Warnings for a pod.
pub fn pod_warnings(_pod: &Tree) -> Vec<String> {
    Vec::new()
}
