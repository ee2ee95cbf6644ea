//! Hashes for the names of templates, in upstream's alphabet.

use api::{Tree, json};
use stdx::fnv::{fnv1_32, fnv1a_32};

/// No vowels, so that no words are formed.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash in the name of a ReplicaSet or revision of a pod template: stable, and different for each collision
/// count. Upstream hashes a dump of Go structures, which cannot be reproduced: templates are compared, never their
/// hashes.
pub(crate) fn template_hash(template: &Tree, collisions: Option<i64>) -> String {
    let suffix = collisions.map(i64::to_le_bytes);
    encode(fnv1a_32(json::encode(template, None).iter().copied().chain(suffix.into_iter().flatten())))
}

/// The hash in the name of a StatefulSet revision: upstream's value.
pub(crate) fn revision_hash(data: &Tree, collisions: i64) -> String {
    let text = as_go_writes(&json::encode(data, None));
    encode(fnv1_32(text.into_iter().chain(collisions.to_string().into_bytes())))
}

fn encode(hash: u32) -> String {
    hash.to_string().bytes().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect()
}

/// Escapes HTML characters as Go's encoding/json does.
fn as_go_writes(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    for byte in json {
        match byte {
            b'<' | b'>' | b'&' => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn data(image: &str) -> Tree {
        let container = tree! {
            "image" => image, "imagePullPolicy" => "IfNotPresent", "name" => "c", "resources" => tree! {},
            "terminationMessagePath" => "/dev/termination-log", "terminationMessagePolicy" => "File",
        };
        let spec = tree! {
            "containers" => list![container], "dnsPolicy" => "ClusterFirst", "restartPolicy" => "Always",
            "schedulerName" => "default-scheduler", "securityContext" => tree! {},
            "terminationGracePeriodSeconds" => 30,
        };
        let metadata = tree! { "labels" => tree! { "app" => "db" } };
        let template = tree! { "$patch" => "replace", "metadata" => metadata, "spec" => spec };
        tree! { "spec" => tree! { "template" => template } }
    }

    #[test]
    fn revision_names_match_upstream() {
        assert_eq!(revision_hash(&data("app:1"), 0), "fbfc8b6b8");
        assert_eq!(revision_hash(&data("app:2"), 0), "84f69d8549");
        assert_ne!(revision_hash(&data("app:1"), 1), "fbfc8b6b8");
    }

    #[test]
    fn template_hash_is_stable() {
        let of = |image: &str, collisions| template_hash(data(image).at("spec.template"), collisions);
        assert_eq!(of("app:1", None), of("app:1", None));
        assert_ne!(of("app:1", None), of("app:2", None));
        assert_ne!(of("app:1", None), of("app:1", Some(1)));
        assert_ne!(of("app:1", Some(1)), of("app:1", Some(2)));
        assert!(of("app:1", None).bytes().all(|byte| LETTERS.contains(&byte)));
    }
}
