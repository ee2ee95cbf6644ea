//! The priority levels and flow schemas of a new cluster.

use api::{Tree, list, tree};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Name, shares, lendable percent, and queues, hand size and queue length where requests wait.
type Level = (&'static str, i64, i64, Option<(i64, i64, i64)>);

const LEVELS: &[Level] = &[
    ("exempt", 0, 0, None),
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6, 50))),
    ("node-high", 40, 25, Some((64, 6, 50))),
    ("leader-election", 10, 0, Some((16, 4, 50))),
    ("workload-high", 40, 50, Some((128, 6, 50))),
    ("workload-low", 100, 90, Some((128, 6, 50))),
    ("global-default", 20, 50, Some((128, 6, 50))),
];

/// The subjects and requests that a flow schema matches. A subject is `user:`, `group:` or `account:NAMESPACE/NAME`.
struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    subjects: &'static [&'static str],
    resources: &'static [Resources],
    urls: Option<(&'static str, &'static [&'static str])>,
}

struct Resources {
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    cluster_scope: bool,
}

const fn resources(
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    cluster_scope: bool,
) -> Resources {
    Resources { verbs, group, resources, cluster_scope }
}

const EVERYTHING: &[Resources] = &[resources(&["*"], "*", &["*"], true)];
const ALL_URLS: Option<(&str, &[&str])> = Some(("*", &["*"]));
const EVERYONE: &[&str] = &["group:system:unauthenticated", "group:system:authenticated"];

/// A schema that matches all that its subjects do.
const fn schema(
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    subjects: &'static [&'static str],
) -> Schema {
    Schema { name, level, precedence, distinguisher, subjects, resources: EVERYTHING, urls: ALL_URLS }
}

const SCHEMAS: &[Schema] = &[
    schema("exempt", "exempt", 1, "", &["group:system:masters"]),
    Schema {
        resources: &[],
        urls: Some(("get", &["/healthz", "/readyz", "/livez"])),
        ..schema("probes", "exempt", 2, "", EVERYONE)
    },
    Schema {
        resources: &[resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false)],
        urls: None,
        ..schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            &["user:system:kube-controller-manager", "user:system:kube-scheduler", "account:kube-system/*"],
        )
    },
    Schema {
        resources: &[
            resources(&["*"], "", &["nodes", "nodes/status"], true),
            resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ],
        urls: None,
        ..schema("system-node-high", "node-high", 400, "ByUser", &["group:system:nodes"])
    },
    schema("system-nodes", "system", 500, "ByUser", &["group:system:nodes"]),
    schema("kube-controller-manager", "workload-high", 800, "ByNamespace", &["user:system:kube-controller-manager"]),
    schema("kube-scheduler", "workload-high", 800, "ByNamespace", &["user:system:kube-scheduler"]),
    schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", &["account:kube-system/*"]),
    schema("service-accounts", "workload-low", 9000, "ByUser", &["group:system:serviceaccounts"]),
    schema("global-default", "global-default", 9900, "ByUser", EVERYONE),
    schema("catch-all", "catch-all", 10000, "ByUser", EVERYONE),
];

pub(crate) fn objects() -> Vec<Tree> {
    let levels = LEVELS.iter().map(|level| object("PriorityLevelConfiguration", level.0, level_spec(level)));
    levels.chain(SCHEMAS.iter().map(|schema| object("FlowSchema", schema.name, schema_spec(schema)))).collect()
}

/// Some of the objects by name, for the time before they are in the store.
pub(crate) fn named(kind: &str, names: &[&str]) -> Vec<Tree> {
    let wanted = |tree: &Tree| tree.str("kind") == kind && names.contains(&tree.str("metadata.name"));
    objects().into_iter().filter(wanted).collect()
}

fn object(kind: &'static str, name: &str, spec: Tree) -> Tree {
    let annotations = tree! { "apf.kubernetes.io/autoupdate-spec" => "true" };
    tree! {
        "kind" => kind, "apiVersion" => API_VERSION,
        "metadata" => tree! { "name" => name, "annotations" => annotations }, "spec" => spec,
    }
}

fn level_spec((name, shares, lendable, queues): &Level) -> Tree {
    let mut limits = tree! { "nominalConcurrencyShares" => *shares, "lendablePercent" => *lendable };
    if *name == "exempt" {
        return tree! { "type" => "Exempt", "exempt" => limits };
    }
    limits.set("limitResponse", tree! { "type" => "Reject" });
    if let Some((queues, hand, length)) = queues {
        let queuing = tree! { "queues" => *queues, "handSize" => *hand, "queueLengthLimit" => *length };
        limits.set("limitResponse", tree! { "type" => "Queue", "queuing" => queuing });
    }
    tree! { "type" => "Limited", "limited" => limits }
}

fn schema_spec(schema: &Schema) -> Tree {
    let mut rule = tree! { "subjects" => schema.subjects.iter().map(|text| subject(text)).collect::<Vec<_>>() };
    if !schema.resources.is_empty() {
        rule.set("resourceRules", schema.resources.iter().map(resource_rule).collect::<Vec<_>>());
    }
    if let Some((verb, urls)) = schema.urls {
        rule.set("nonResourceRules", list![tree! { "verbs" => list![verb], "nonResourceURLs" => texts(urls) }]);
    }
    let mut spec = tree! {
        "priorityLevelConfiguration" => tree! { "name" => schema.level },
        "matchingPrecedence" => schema.precedence, "rules" => list![rule],
    };
    if !schema.distinguisher.is_empty() {
        spec.set("distinguisherMethod", tree! { "type" => schema.distinguisher });
    }
    spec
}

fn resource_rule(rule: &Resources) -> Tree {
    let mut tree = tree! {
        "verbs" => texts(rule.verbs), "apiGroups" => list![rule.group], "resources" => texts(rule.resources),
        "namespaces" => list!["*"],
    };
    if rule.cluster_scope {
        tree.set("clusterScope", true);
    }
    tree
}

fn texts(texts: &[&str]) -> Vec<Tree> {
    texts.iter().map(|text| Tree::from(*text)).collect()
}

fn subject(text: &str) -> Tree {
    let (kind, name) = text.split_once(':').unwrap_or(("user", text));
    match kind {
        "group" => tree! { "kind" => "Group", "group" => tree! { "name" => name } },
        "account" => {
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            let account = tree! { "namespace" => namespace, "name" => name };
            tree! { "kind" => "ServiceAccount", "serviceAccount" => account }
        }
        _ => tree! { "kind" => "User", "user" => tree! { "name" => name } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_name_levels_that_exist() {
        for schema in SCHEMAS {
            assert!(LEVELS.iter().any(|level| level.0 == schema.level), "{}", schema.name);
        }
    }
}
