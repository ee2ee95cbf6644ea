//! Environment variables of containers, and the files that they may come from.

use std::collections::BTreeSet;

use api::Tree;

/// A name, and a value that need not be text: secrets hold any bytes.
pub(crate) type Variable = (String, Vec<u8>);

/// A file of variables: its path on the node, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The files that a container's variables refer to: the volume and the path of each.
pub(crate) fn files(spec: &Tree) -> BTreeSet<(&str, &str)> {
    let references = spec.list("env").iter().filter_map(|variable| variable.at("valueFrom").get("fileKeyRef"));
    references.map(|reference| (reference.str("volumeName"), reference.str("path"))).collect()
}

/// A value as text, for references to it.
pub(crate) fn text((_, value): &Variable) -> String {
    String::from_utf8_lossy(value).into_owned()
}
