//! Extenders: HTTP services that filter and prioritize nodes.

use std::time::Duration;

use api::field::Path;
use api::{Tree, validation};

use super::reader::Reader;

/// An extender of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtenderConfig {
    pub url_prefix: String,
    /// Verbs are empty if the extender does not support them.
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub bind_verb: String,
    pub weight: i64,
    pub enable_https: bool,
    pub tls: TlsConfig,
    pub timeout: Duration,
    /// Whether the extender caches nodes and needs only their names.
    pub node_cache_capable: bool,
    /// Whether scheduling continues if the extender fails.
    pub ignorable: bool,
    pub managed_resources: Vec<ManagedResource>,
}

/// The TLS settings of an extender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsConfig {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
}

/// A resource that an extender manages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedResource {
    pub name: String,
    /// The scheduler ignores the resource and leaves it to the extender.
    pub is_ignored_by_scheduler: bool,
}

const FIELDS: &[&str] = &[
    "urlPrefix",
    "filterVerb",
    "preemptVerb",
    "prioritizeVerb",
    "bindVerb",
    "weight",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "ignorable",
    "managedResources",
];

pub(super) fn read(reader: &mut Reader, tree: &Tree) -> Vec<ExtenderConfig> {
    let path = Path::root("extenders");
    let list = reader.list(tree, "extenders", &Path::nil());
    let extenders: Vec<ExtenderConfig> =
        list.iter().enumerate().map(|(index, one)| extender(reader, one, &path.index(index))).collect();
    if extenders.iter().filter(|one| !one.bind_verb.is_empty()).count() > 1 {
        reader.errors.forbidden(&path, "only one extender can implement bind");
    }
    check_managed(reader, &extenders, &path);
    extenders
}

fn extender(reader: &mut Reader, tree: &Tree, path: &Path<'_>) -> ExtenderConfig {
    reader.known(tree, path, FIELDS);
    let mut text = |key: &str| reader.text(tree, key, path).unwrap_or_default();
    let (url_prefix, filter_verb, preempt_verb) = (text("urlPrefix"), text("filterVerb"), text("preemptVerb"));
    let (prioritize_verb, bind_verb) = (text("prioritizeVerb"), text("bindVerb"));
    let weight = reader.int(tree, "weight", path).unwrap_or(0);
    if !prioritize_verb.is_empty() && weight <= 0 {
        reader.errors.invalid(&path.field("weight"), weight, "must have a positive weight applied to it");
    }
    if !url_prefix.starts_with("http://") && !url_prefix.starts_with("https://") {
        reader.errors.invalid(&path.field("urlPrefix"), &url_prefix, "must be an http or https URL");
    }
    let enable_https = reader.bool(tree, "enableHTTPS", path).unwrap_or(false);
    ExtenderConfig {
        enable_https: enable_https || url_prefix.starts_with("https://"),
        url_prefix: url_prefix.trim_end_matches('/').to_string(),
        filter_verb,
        preempt_verb,
        prioritize_verb,
        bind_verb,
        weight,
        tls: tls(reader, tree.at("tlsConfig"), &path.field("tlsConfig")),
        timeout: reader.duration(tree, "httpTimeout", path).unwrap_or(Duration::from_secs(5)),
        node_cache_capable: reader.bool(tree, "nodeCacheCapable", path).unwrap_or(false),
        ignorable: reader.bool(tree, "ignorable", path).unwrap_or(false),
        managed_resources: managed(reader, tree, path),
    }
}

fn tls(reader: &mut Reader, tree: &Tree, path: &Path<'_>) -> TlsConfig {
    let fields = ["insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"];
    reader.known(tree, path, &fields);
    for key in ["certData", "keyData", "caData"].iter().filter(|key| tree.has(key)) {
        reader.errors.forbidden(&path.field(key), "name a file instead");
    }
    let insecure = reader.bool(tree, "insecure", path).unwrap_or(false);
    let mut text = |key: &str| reader.text(tree, key, path).unwrap_or_default();
    TlsConfig {
        insecure,
        server_name: text("serverName"),
        cert_file: text("certFile"),
        key_file: text("keyFile"),
        ca_file: text("caFile"),
    }
}

fn managed(reader: &mut Reader, tree: &Tree, path: &Path<'_>) -> Vec<ManagedResource> {
    let at = path.field("managedResources");
    let list = reader.list(tree, "managedResources", path);
    let mut one = |(index, one): (usize, &Tree)| {
        let at = at.index(index);
        reader.known(one, &at, &["name", "ignoredByScheduler"]);
        let is_ignored_by_scheduler = reader.bool(one, "ignoredByScheduler", &at).unwrap_or(false);
        let name = reader.text(one, "name", &at).unwrap_or_default();
        reader.errors.invalid_all(&at.field("name"), &name, validation::qualified_name(&name));
        if !name.contains('/') || name.contains("kubernetes.io/") {
            reader.errors.invalid(&at.field("name"), &name, "is an invalid extended resource name");
        }
        ManagedResource { name, is_ignored_by_scheduler }
    };
    list.iter().enumerate().map(&mut one).collect()
}

fn check_managed(reader: &mut Reader, extenders: &[ExtenderConfig], path: &Path<'_>) {
    let mut seen = Vec::new();
    for (index, extender) in extenders.iter().enumerate() {
        for (place, resource) in extender.managed_resources.iter().enumerate() {
            if seen.contains(&&resource.name) {
                let at = path.index(index);
                let list = at.field("managedResources");
                let item = list.index(place);
                let detail = "duplicate extender managed resource name";
                reader.errors.invalid(&item.field("name"), &resource.name, detail);
            }
            seen.push(&resource.name);
        }
    }
}
