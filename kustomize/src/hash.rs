//! The hash at the end of the name of a generated ConfigMap or Secret.

use api::{Tree, json};
use aws_lc_rs::digest;

use crate::error::Error;

pub(crate) fn hash(object: &Tree) -> Result<String, Error> {
    let or_empty = |field: &str| object.get(field).cloned().unwrap_or_else(|| Tree::from(""));
    // kustomize looks for a field "metadata/name", which no object has.
    let mut content = api::tree! { "kind" => object.str("kind"), "name" => "" };
    match object.str("kind") {
        "ConfigMap" => {
            content.set("data", or_empty("data"));
            copy_map(object, &mut content, "binaryData");
        }
        "Secret" => {
            content.set("type", or_empty("type"));
            content.set("data", or_empty("data"));
            copy_map(object, &mut content, "stringData");
        }
        _ => content = object.clone(),
    }
    Ok(encode(&content))
}

fn copy_map(object: &Tree, content: &mut Tree, field: &str) {
    if let Some(map @ Tree::Map(_)) = object.get(field) {
        content.set(field, map.clone());
    }
}

/// The first ten digits of SHA-256, without those that look like letters or form words.
fn encode(content: &Tree) -> String {
    let text = String::from_utf8_lossy(&json::encode(content, None)).into_owned();
    // Go escapes the special characters of HTML in JSON.
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let text = text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    let hex = stdx::hex::encode(&digest.as_ref()[..5]);
    hex.chars()
        .map(|digit| match digit {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}
