//! The parts of a definition that the server needs before any of its versions is used: its names, its versions and
//! whether it is served. Schemas are compiled later, when a version is used.

use api::{Str, Tree};

/// How objects are converted between versions.
#[derive(Debug, Clone, PartialEq)]
pub enum Conversion {
    /// Only the apiVersion changes.
    None,
    Webhook {
        /// URL or service, and the CA bundle.
        client_config: Tree,
        review_versions: Vec<Str>,
    },
}

/// A version of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub name: Str,
    pub served: bool,
    pub storage: bool,
    /// The warning of requests to a deprecated version.
    pub deprecation: Option<Str>,
    pub has_status: bool,
    pub has_scale: bool,
}

/// A CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// `PLURAL.GROUP`
    pub name: Str,
    pub uid: Str,
    /// The revision of its specification.
    pub generation: i64,
    pub group: Str,
    pub kind: Str,
    pub list_kind: Str,
    pub plural: Str,
    pub singular: Str,
    pub short_names: Vec<Str>,
    pub categories: Vec<Str>,
    pub namespaced: bool,
    pub versions: Vec<Version>,
    pub conversion: Conversion,
    /// Its names conflict with no other definition, now or when it was established.
    pub is_served: bool,
    pub is_established: bool,
    pub is_terminating: bool,
}

impl Definition {
    /// Reads a stored definition.
    pub fn read(object: &Tree) -> Definition {
        let spec = object.at("spec");
        // Discovery shows what was accepted; the plural name is that of the path.
        let accepted = object.at("status.acceptedNames");
        let condition = |name: &str| is_true(object, name);
        Definition {
            name: Str::new(object.str("metadata.name")),
            uid: Str::new(object.str("metadata.uid")),
            generation: object.int("metadata.generation").unwrap_or(0),
            group: Str::new(spec.str("group")),
            kind: Str::new(spec.str("names.kind")),
            list_kind: Str::new(spec.str("names.listKind")),
            plural: Str::new(spec.str("names.plural")),
            singular: Str::new(accepted.str("singular")),
            short_names: texts(accepted.list("shortNames")),
            categories: texts(accepted.list("categories")),
            namespaced: spec.str("scope") == "Namespaced",
            versions: spec.list("versions").iter().map(|version| read_version(version, spec)).collect(),
            conversion: read_conversion(spec.at("conversion")),
            is_served: condition("NamesAccepted") || condition("Established"),
            is_established: condition("Established"),
            is_terminating: object.at("metadata").has("deletionTimestamp") || condition("Terminating"),
        }
    }

    /// The version in which objects are stored.
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The storage path of its objects.
    pub fn storage(&self) -> String {
        format!("{}/{}", self.group, self.plural)
    }

    /// Whether both have the same spec: schemas and names that were compiled for one are valid for the other.
    pub fn is_same_spec(&self, other: &Definition) -> bool {
        self.uid == other.uid && self.generation == other.generation && self.name == other.name
    }
}

/// Whether a condition of a definition is true.
pub fn is_true(object: &Tree, name: &str) -> bool {
    let conditions = object.list("status.conditions");
    conditions.iter().any(|condition| condition.str("type") == name && condition.str("status") == "True")
}

fn read_version(version: &Tree, spec: &Tree) -> Version {
    let subresources = version.at("subresources");
    Version {
        name: Str::new(version.str("name")),
        served: version.bool("served"),
        storage: version.bool("storage"),
        deprecation: version.bool("deprecated").then(|| deprecation(version, spec)),
        has_status: subresources.has("status"),
        has_scale: subresources.has("scale"),
    }
}

fn deprecation(version: &Tree, spec: &Tree) -> Str {
    match version.at("deprecationWarning").as_str() {
        Some(warning) => Str::new(warning),
        None => Str::from(default_deprecation(version, spec)),
    }
}

/// Recommends the best version that is not deprecated, if it is newer.
fn default_deprecation(version: &Tree, spec: &Tree) -> String {
    let (group, kind, name) = (spec.str("group"), spec.str("names.kind"), version.str("name"));
    let warning = format!("{group}/{name} {kind} is deprecated");
    let candidates = spec.list("versions").iter().filter(|other| other.bool("served") && !other.bool("deprecated"));
    let better = candidates.map(|other| other.str("name")).filter(|other| compare_versions(other, name).is_gt());
    match better.max_by(|a, b| compare_versions(a, b)) {
        Some(better) => format!("{warning}; use {group}/{better} {kind}"),
        None => warning,
    }
}

/// Kubernetes' order of versions, the best one last: stable before beta before alpha, then by number, then others.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability, major and minor number: `v2beta1` is (1, 2, 1).
fn parse_version(name: &str) -> Option<(u8, u32, u32)> {
    let rest = name.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major: u32 = if major.starts_with('0') { return None } else { major.parse().ok()? };
    let (stability, minor) = match rest {
        "" => return Some((2, major, 0)),
        rest => {
            rest.strip_prefix("beta").map(|minor| (1, minor)).or(rest.strip_prefix("alpha").map(|minor| (0, minor)))?
        }
    };
    if minor.starts_with('0') || !minor.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((stability, major, minor.parse().ok()?))
}

fn read_conversion(conversion: &Tree) -> Conversion {
    match conversion.str("strategy") {
        "Webhook" => Conversion::Webhook {
            client_config: conversion.at("webhook.clientConfig").clone(),
            review_versions: texts(conversion.list("webhook.conversionReviewVersions")),
        },
        _ => Conversion::None,
    }
}

pub(crate) fn texts(items: &[Tree]) -> Vec<Str> {
    items.iter().filter_map(Tree::as_str).map(Str::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_an_order() {
        let ordered = ["foo10", "foo1", "v1alpha1", "v11alpha2", "v3beta1", "v10beta3", "v11beta2", "v1", "v2", "v10"];
        let mut sorted = ordered;
        sorted.reverse();
        sorted.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(sorted, ordered);
    }

    #[test]
    fn deprecated_versions_recommend_a_better_one() {
        let read = |text: &str| {
            let object = api::json::decode(text.as_bytes()).expect("valid JSON");
            Definition::read(&object).versions.iter().map(|version| version.deprecation.clone()).collect::<Vec<_>>()
        };
        let versions = read(
            r#"{"spec":{"group":"g.io","names":{"kind":"K"},"versions":[
                {"name":"v1","served":true},{"name":"v1beta1","served":true,"deprecated":true},
                {"name":"v2","served":true,"deprecated":true},{"name":"v0","deprecated":true,"deprecationWarning":"no"}]}}"#,
        );
        let want =
            [None, Some("g.io/v1beta1 K is deprecated; use g.io/v1 K"), Some("g.io/v2 K is deprecated"), Some("no")];
        assert_eq!(versions, want.map(|text| text.map(Str::new)));
    }
}
