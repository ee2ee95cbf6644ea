//! Legacy policies: predicates and priorities by name. They are translated to a KubeSchedulerConfiguration with one
//! profile; unsupported names are rejected.

use std::collections::BTreeSet;

use api::field::Path;
use api::{Tree, list, tree};

use super::reader::Reader;
use super::{API_VERSION, Configuration, configuration};
use crate::framework::Point;
use crate::plugins::list::{DEFAULT_SCHEDULER, PLUGINS};

/// A predicate and the plugins that implement it.
const PREDICATES: &[(&str, &[&str])] = &[
    ("CheckNodeUnschedulable", &["NodeUnschedulable"]),
    ("GeneralPredicates", &["NodeName", "NodePorts", "NodeAffinity", "NodeResourcesFit"]),
    ("HostName", &["NodeName"]),
    ("PodFitsHostPorts", &["NodePorts"]),
    ("PodFitsPorts", &["NodePorts"]),
    ("MatchNodeSelector", &["NodeAffinity"]),
    ("PodFitsResources", &["NodeResourcesFit"]),
    ("NoDiskConflict", &["VolumeRestrictions"]),
    ("PodToleratesNodeTaints", &["TaintToleration"]),
    ("MaxEBSVolumeCount", &["NodeVolumeLimits"]),
    ("MaxGCEPDVolumeCount", &["NodeVolumeLimits"]),
    ("MaxAzureDiskVolumeCount", &["NodeVolumeLimits"]),
    ("MaxCinderVolumeCount", &["NodeVolumeLimits"]),
    ("MaxCSIVolumeCountPred", &["NodeVolumeLimits"]),
    ("CheckVolumeBinding", &["VolumeBinding"]),
    ("NoVolumeZoneConflict", &["VolumeZone"]),
    ("MatchInterPodAffinity", &["InterPodAffinity"]),
    ("EvenPodsSpread", &["PodTopologySpread"]),
];

/// Always enabled, whatever the policy.
const ALWAYS: &[&str] = &["NodeUnschedulable", "TaintToleration", "DynamicResources", "NodeDeclaredFeatures"];

/// A priority and the plugin that implements it; None if it scores all nodes equally.
const PRIORITIES: &[(&str, Option<&str>)] = &[
    ("EqualPriority", None),
    ("LeastRequestedPriority", Some("NodeResourcesFit")),
    ("MostRequestedPriority", Some("NodeResourcesFit")),
    ("RequestedToCapacityRatioPriority", Some("NodeResourcesFit")),
    ("BalancedResourceAllocation", Some("NodeResourcesBalancedAllocation")),
    ("SelectorSpreadPriority", Some("PodTopologySpread")),
    ("ServiceSpreadingPriority", Some("PodTopologySpread")),
    ("EvenPodsSpreadPriority", Some("PodTopologySpread")),
    ("InterPodAffinityPriority", Some("InterPodAffinity")),
    ("NodeAffinityPriority", Some("NodeAffinity")),
    ("TaintTolerationPriority", Some("TaintToleration")),
    ("ImageLocalityPriority", Some("ImageLocality")),
];

/// Parses a policy file. Errors are `FIELD: problem`.
pub fn read_policy(text: &[u8]) -> Result<Configuration, Vec<String>> {
    let tree = api::yaml::decode(text).map_err(|error| vec![error.to_string()])?;
    if tree.str("kind") != "Policy" || tree.str("apiVersion") != "v1" {
        return Err(vec!["must be a Policy of apiVersion v1".to_string()]);
    }
    let mut reader = Reader::default();
    let translated = translate(&mut reader, &tree);
    if !reader.errors.is_empty() {
        return reader.result(Configuration::default());
    }
    let configuration = configuration(&mut reader, &translated);
    reader.result(configuration)
}

#[derive(Default)]
struct TranslatedPolicy {
    filters: BTreeSet<&'static str>,
    /// With their weights.
    scores: Vec<(&'static str, i64)>,
    fit: Tree,
    required: Vec<Tree>,
    preferred: Vec<Tree>,
}

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "predicates",
    "priorities",
    "extenders",
    "hardPodAffinitySymmetricWeight",
    "alwaysCheckAllPredicates",
];

fn translate(reader: &mut Reader, tree: &Tree) -> Tree {
    let root = Path::nil();
    reader.known(tree, &root, FIELDS);
    if reader.bool(tree, "alwaysCheckAllPredicates", &root) == Some(true) {
        let path = root.field("alwaysCheckAllPredicates");
        reader.errors.forbidden(&path, "the first refusal ends the look at a node");
    }
    let mut translated = TranslatedPolicy::default();
    predicates(reader, tree, &mut translated);
    priorities(reader, tree, &mut translated);
    let weight = reader.within(tree, "hardPodAffinitySymmetricWeight", &root, (0, 100)).unwrap_or(1);
    let affinity = tree! { "name" => "InterPodAffinity", "args" => tree! { "hardPodAffinityWeight" => weight } };
    let mut args = vec![affinity];
    if !translated.fit.is_null() {
        let fit = tree! { "scoringStrategy" => translated.fit.clone() };
        args.push(tree! { "name" => "NodeResourcesFit", "args" => fit });
    }
    args.extend(added_affinity(&translated));
    let profile = tree! {
        "schedulerName" => DEFAULT_SCHEDULER,
        "plugins" => plugins(tree, &translated),
        "pluginConfig" => Tree::List(args),
    };
    let mut made = tree! {
        "apiVersion" => API_VERSION, "kind" => "KubeSchedulerConfiguration", "profiles" => list![profile],
    };
    if tree.has("extenders") {
        made.set("extenders", extenders(reader, tree));
    }
    made
}

/// Plugins that a policy does not mention keep their defaults.
fn plugins(tree: &Tree, translated: &TranslatedPolicy) -> Tree {
    let all = || list![tree! { "name" => "*" }];
    let mut plugins = Tree::map_new();
    let extends = |name: &str, point: Point| {
        let listed = PLUGINS.iter().find(|listed| listed.name == name);
        listed.is_some_and(|listed| (listed.make)(&Default::default()).points().contains(&point))
    };
    let mut set = |field: &str, point: Point, names: &mut dyn Iterator<Item = (&'static str, i64)>| {
        let named = names.filter(|(name, _)| extends(name, point));
        let enabled = named.map(|(name, weight)| tree! { "name" => name, "weight" => weight }).collect::<Vec<_>>();
        plugins.set(field, tree! { "disabled" => all(), "enabled" => Tree::List(enabled) });
    };
    if tree.has("predicates") {
        let chosen = |name: &&str| translated.filters.contains(name) || ALWAYS.contains(name);
        let names = || PLUGINS.iter().map(|listed| listed.name).filter(chosen).map(|name| (name, 0));
        set("preFilter", Point::PreFilter, &mut names());
        set("filter", Point::Filter, &mut names());
    }
    if tree.has("priorities") {
        set("preScore", Point::PreScore, &mut translated.scores.iter().copied());
        set("score", Point::Score, &mut translated.scores.iter().copied());
    }
    plugins
}

fn predicates(reader: &mut Reader, tree: &Tree, translated: &mut TranslatedPolicy) {
    let path = Path::root("predicates");
    for (index, one) in reader.list(tree, "predicates", &Path::nil()).iter().enumerate() {
        let at = path.index(index);
        reader.known(one, &at, &["name", "argument"]);
        let (argument, argument_at) = (one.at("argument"), at.field("argument"));
        reader.known(argument, &argument_at, &["labelsPresence", "serviceAffinity"]);
        if argument.has("serviceAffinity") {
            reader.errors.forbidden(&argument_at.field("serviceAffinity"), "there is no plugin for it");
            continue;
        }
        if argument.has("labelsPresence") {
            let presence = argument.at("labelsPresence");
            translated.filters.insert("NodeAffinity");
            let labels = presence.list("labels").iter().filter_map(Tree::as_str);
            translated.required.extend(labels.map(|label| has_label(label, presence.bool("presence"))));
            continue;
        }
        match PREDICATES.iter().find(|(name, _)| *name == one.str("name")) {
            Some((_, plugins)) => translated.filters.extend(plugins.iter()),
            None => reader.errors.invalid(&at.field("name"), one.str("name"), "no such predicate"),
        }
    }
}

fn has_label(label: &str, present: bool) -> Tree {
    tree! { "key" => label, "operator" => if present { "Exists" } else { "DoesNotExist" } }
}

fn added_affinity(translated: &TranslatedPolicy) -> Option<Tree> {
    let mut affinity = Tree::map_new();
    if !translated.required.is_empty() {
        let term = tree! { "matchExpressions" => translated.required.clone() };
        affinity.set("requiredDuringSchedulingIgnoredDuringExecution", tree! { "nodeSelectorTerms" => list![term] });
    }
    if !translated.preferred.is_empty() {
        affinity.set("preferredDuringSchedulingIgnoredDuringExecution", translated.preferred.clone());
    }
    let any = affinity.as_map().is_some_and(|map| !map.is_empty());
    any.then(|| tree! { "name" => "NodeAffinity", "args" => tree! { "addedAffinity" => affinity } })
}

fn priorities(reader: &mut Reader, tree: &Tree, translated: &mut TranslatedPolicy) {
    let path = Path::root("priorities");
    for (index, one) in reader.list(tree, "priorities", &Path::nil()).iter().enumerate() {
        let at = path.index(index);
        reader.known(one, &at, &["name", "weight", "argument"]);
        let weight = reader.int(one, "weight", &at).unwrap_or(0);
        if weight <= 0 {
            reader.errors.invalid(&at.field("weight"), weight, "should be a positive value");
        }
        let argument = one.at("argument");
        let argument_at = at.field("argument");
        let fields = ["labelPreference", "requestedToCapacityRatioArguments", "serviceAntiAffinity"];
        reader.known(argument, &argument_at, &fields);
        if argument.has("serviceAntiAffinity") {
            reader.errors.forbidden(&argument_at.field("serviceAntiAffinity"), "there is no plugin for it");
            continue;
        }
        if argument.has("labelPreference") {
            let (label, presence) = (argument.str("labelPreference.label"), argument.bool("labelPreference.presence"));
            let preference = tree! { "matchExpressions" => list![has_label(label, presence)] };
            translated.preferred.push(tree! { "weight" => 1, "preference" => preference });
            score(translated, "NodeAffinity", weight);
            continue;
        }
        match PRIORITIES.iter().find(|(name, _)| *name == one.str("name")) {
            Some((_, None)) => {}
            Some((name, Some(plugin))) => {
                if *plugin == "NodeResourcesFit" {
                    strategy(reader, name, argument, &at, translated);
                }
                score(translated, plugin, weight);
            }
            None => reader.errors.invalid(&at.field("name"), one.str("name"), "no such priority"),
        }
    }
}

/// The weights of priorities with the same plugin are added.
fn score(translated: &mut TranslatedPolicy, plugin: &'static str, weight: i64) {
    match translated.scores.iter_mut().find(|(name, _)| *name == plugin) {
        Some((_, sum)) => *sum += weight,
        None => translated.scores.push((plugin, weight)),
    }
}

fn strategy(reader: &mut Reader, name: &str, argument: &Tree, path: &Path<'_>, translated: &mut TranslatedPolicy) {
    if !translated.fit.is_null() {
        reader.errors.forbidden(&path.field("name"), "only one priority can score by what is left of resources");
    }
    translated.fit = match name {
        "MostRequestedPriority" => tree! { "type" => "MostAllocated" },
        "LeastRequestedPriority" => tree! { "type" => "LeastAllocated" },
        _ => {
            let arguments = argument.at("requestedToCapacityRatioArguments");
            let shape = tree! { "shape" => arguments.list("shape").to_vec() };
            let mut made = tree! { "type" => "RequestedToCapacityRatio", "requestedToCapacityRatio" => shape };
            if arguments.has("resources") {
                made.set("resources", arguments.list("resources").to_vec());
            }
            made
        }
    };
}

/// Converts the fields that have other names or formats.
fn extenders(reader: &mut Reader, tree: &Tree) -> Tree {
    let path = Path::root("extenders");
    let mut made = Vec::new();
    for (index, one) in reader.list(tree, "extenders", &Path::nil()).iter().enumerate() {
        let mut one = one.clone();
        if let Some(https) = one.remove("enableHttps") {
            one.set("enableHTTPS", https);
        }
        match one.get("httpTimeout").cloned() {
            Some(Tree::Int(nanos)) if nanos >= 0 => one.set("httpTimeout", api::time::format_duration(nanos)),
            Some(other) if other.as_str().is_none() => {
                let at = path.index(index);
                reader.errors.type_invalid(&at.field("httpTimeout"), &other, "must be nanoseconds or a duration");
            }
            _ => {}
        }
        made.push(one);
    }
    Tree::List(made)
}
