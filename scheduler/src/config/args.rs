//! Reads the arguments of plugins.

use std::collections::BTreeSet;
use std::time::Duration;

use api::field::Path;
use api::validation;
use api::{Str, Tree};

use super::reader::Reader;
use crate::plugins::allocation::Weighted;
use crate::plugins::args::{Args, Shared};
use crate::plugins::default_preemption::DefaultPreemption;
use crate::plugins::node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
use crate::plugins::node_resources_fit::Strategy;

type FieldResult = fn(&mut Reader, &Tree, &Path<'_>, &mut Args);

/// The plugins with arguments, and the fields of these.
const READERS: &[(&str, &[&str], FieldResult)] = &[
    ("DefaultPreemption", &["minCandidateNodesPercentage", "minCandidateNodesAbsolute"], preemption),
    ("DynamicResources", &["bindingTimeout", "filterTimeout"], dynamic_resources),
    ("InterPodAffinity", &["hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"], inter_pod_affinity),
    ("NodeAffinity", &["addedAffinity"], node_affinity),
    ("NodeResourcesBalancedAllocation", &["resources"], balanced_allocation),
    ("NodeResourcesFit", &["ignoredResources", "ignoredResourceGroups", "scoringStrategy"], fit),
    ("PodTopologySpread", &["defaultConstraints", "defaultingType"], spread),
    ("VolumeBinding", &["bindTimeoutSeconds", "shape"], volume_binding),
];

/// Reads the `pluginConfig` of a profile.
pub(super) fn read(reader: &mut Reader, profile: &Tree, path: &Path<'_>, shared: &Shared) -> Args {
    let mut args = Args::with(shared.clone());
    let at = path.field("pluginConfig");
    let mut seen = BTreeSet::new();
    for (index, one) in reader.list(profile, "pluginConfig", path).iter().enumerate() {
        let at = at.index(index);
        reader.known(one, &at, &["name", "args"]);
        let name = one.str("name");
        if !seen.insert(name) {
            reader.errors.duplicate(&at.field("name"), name);
        }
        match READERS.iter().find(|(plugin, ..)| *plugin == name) {
            Some((_, fields, read)) => {
                read_args(reader, one.at("args"), &at.field("args"), (name, fields, *read), &mut args)
            }
            None => {
                let names: Vec<&str> = READERS.iter().map(|(name, ..)| *name).collect();
                reader.errors.not_supported(&at.field("name"), name, &names);
            }
        }
    }
    args
}

fn read_args(
    reader: &mut Reader,
    tree: &Tree,
    path: &Path<'_>,
    (name, fields, read): (&str, &[&str], FieldResult),
    args: &mut Args,
) {
    let known: Vec<&str> = ["apiVersion", "kind"].iter().chain(fields).copied().collect();
    reader.known(tree, path, &known);
    let kind = tree.str("kind");
    if tree.has("kind") && kind.strip_suffix("Args") != Some(name) {
        reader.errors.invalid(&path.field("kind"), kind, "has to match plugin args");
    }
    if tree.has("apiVersion") && tree.str("apiVersion") != super::API_VERSION {
        reader.errors.invalid(&path.field("apiVersion"), tree.str("apiVersion"), "has to match plugin args");
    }
    read(reader, tree, path, args);
}

fn preemption(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    let size = |number: i64| usize::try_from(number).unwrap_or(0);
    let percentage = reader.within(tree, "minCandidateNodesPercentage", path, (0, 100)).unwrap_or(10);
    let absolute = reader.int(tree, "minCandidateNodesAbsolute", path).unwrap_or(100);
    if absolute < 0 {
        let detail = "must be greater than or equal to zero";
        reader.errors.invalid(&path.field("minCandidateNodesAbsolute"), absolute, detail);
    }
    if percentage == 0 && absolute == 0 {
        let detail = "both minCandidateNodesPercentage and minCandidateNodesAbsolute cannot be zero";
        reader.errors.invalid(&path.field("minCandidateNodesPercentage"), percentage, detail);
    }
    args.preemption = DefaultPreemption {
        min_candidate_nodes_percentage: size(percentage),
        min_candidate_nodes_absolute: size(absolute),
    };
}

fn inter_pod_affinity(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    args.hard_pod_affinity_weight = reader.within(tree, "hardPodAffinityWeight", path, (0, 100)).unwrap_or(1);
    let ignores = reader.bool(tree, "ignorePreferredTermsOfExistingPods", path);
    args.ignore_preferred_terms_of_existing_pods = ignores.unwrap_or(false);
}

fn node_affinity(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let (added, at) = (tree.at("addedAffinity"), path.field("addedAffinity"));
    reader.known(added, &at, &[REQUIRED, PREFERRED]);
    let required = at.field(REQUIRED);
    reader.known(added.at(REQUIRED), &required, &["nodeSelectorTerms"]);
    let terms = required.field("nodeSelectorTerms");
    if added.has(REQUIRED) && added.at(REQUIRED).list("nodeSelectorTerms").is_empty() {
        reader.errors.required(&terms, "must have at least one node selector term");
    }
    for (index, term) in added.at(REQUIRED).list("nodeSelectorTerms").iter().enumerate() {
        node_term(reader, term, &terms.index(index));
    }
    let preferred = at.field(PREFERRED);
    for (index, weighted) in reader.list(added, PREFERRED, &at).iter().enumerate() {
        let at = preferred.index(index);
        reader.known(weighted, &at, &["weight", "preference"]);
        reader.within(weighted, "weight", &at, (1, 100));
        node_term(reader, weighted.at("preference"), &at.field("preference"));
    }
    args.added_affinity = added.clone();
}

const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

fn node_term(reader: &mut Reader, term: &Tree, path: &Path<'_>) {
    reader.known(term, path, &["matchExpressions", "matchFields"]);
    for list in ["matchExpressions", "matchFields"] {
        let at = path.field(list);
        for (index, requirement) in reader.list(term, list, path).iter().enumerate() {
            let at = at.index(index);
            reader.known(requirement, &at, &["key", "operator", "values"]);
            if requirement.str("key").is_empty() {
                reader.errors.required(&at.field("key"), "");
            }
            if !OPERATORS.contains(&requirement.str("operator")) {
                reader.errors.not_supported(&at.field("operator"), requirement.str("operator"), OPERATORS);
            }
        }
    }
}

/// Resources with their weights; CPU and memory by default.
fn resources(reader: &mut Reader, tree: &Tree, path: &Path<'_>, most: i64) -> Option<Vec<Weighted>> {
    let at = path.field("resources");
    let list = reader.list(tree, "resources", path);
    let mut resources = Vec::new();
    for (index, one) in list.iter().enumerate() {
        let at = at.index(index);
        reader.known(one, &at, &["name", "weight"]);
        let weight = reader.int(one, "weight", &at).unwrap_or(1);
        if weight < 1 || weight > most {
            let name = one.str("name");
            let detail = format!("resource weight of {name} not in valid range [1-{most}]");
            reader.errors.invalid(&at.field("weight"), weight, &detail);
        }
        resources.push(Weighted { name: Str::new(one.str("name")), weight });
    }
    (!resources.is_empty()).then_some(resources)
}

fn balanced_allocation(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    if let Some(resources) = resources(reader, tree, path, 1) {
        args.balanced_allocation = NodeResourcesBalancedAllocation { resources };
    }
}

fn fit(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    for (index, name) in reader.texts(tree, "ignoredResources", path).iter().enumerate() {
        let at = path.field("ignoredResources");
        reader.errors.invalid_all(&at.index(index), name, validation::qualified_name(name));
        args.fit.ignored.insert(Str::new(name));
    }
    for (index, name) in reader.texts(tree, "ignoredResourceGroups", path).iter().enumerate() {
        let at = path.field("ignoredResourceGroups");
        if name.contains('/') {
            reader.errors.invalid(&at.index(index), name, "resource group name can't contain '/'");
        }
        args.fit.ignored_groups.insert(Str::new(name));
    }
    let (strategy, at) = (tree.at("scoringStrategy"), path.field("scoringStrategy"));
    reader.known(strategy, &at, &["type", "resources", "requestedToCapacityRatio"]);
    if let Some(resources) = resources(reader, strategy, &at, 100) {
        args.fit.resources = resources;
    }
    args.fit.strategy = match strategy.str("type") {
        "" | "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let (ratio, at) = (strategy.at("requestedToCapacityRatio"), at.field("requestedToCapacityRatio"));
            reader.known(ratio, &at, &["shape"]);
            Strategy::RequestedToCapacityRatio(shape(reader, ratio, &at))
        }
        other => {
            let all = &["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
            reader.errors.not_supported(&at.field("type"), other, all);
            return;
        }
    };
}

/// Scores of a shape go up to 10.
const MAX_SHAPE_SCORE: i64 = 10;

fn shape(reader: &mut Reader, tree: &Tree, path: &Path<'_>) -> Vec<(i64, i64)> {
    let at = path.field("shape");
    let mut points: Vec<(i64, i64)> = Vec::new();
    for (index, point) in reader.list(tree, "shape", path).iter().enumerate() {
        let at = at.index(index);
        reader.known(point, &at, &["utilization", "score"]);
        let utilization = reader.within(point, "utilization", &at, (0, 100)).unwrap_or(0);
        let score = reader.within(point, "score", &at, (0, MAX_SHAPE_SCORE)).unwrap_or(0);
        if points.last().is_some_and(|(before, _)| *before >= utilization) {
            reader.errors.invalid(
                &at.field("utilization"),
                utilization,
                "utilization values must be sorted in increasing order",
            );
        }
        points.push((utilization, score * crate::framework::MAX_SCORE / MAX_SHAPE_SCORE));
    }
    if points.is_empty() {
        reader.errors.required(&at, "at least one point must be specified");
    }
    points
}

const CONSTRAINT_FIELDS: &[&str] = &[
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "labelSelector",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "matchLabelKeys",
];

fn spread(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    let at = path.field("defaultConstraints");
    let constraints = reader.list(tree, "defaultConstraints", path);
    for (index, constraint) in constraints.iter().enumerate() {
        default_constraint(reader, constraint, &at.index(index));
        let same =
            |other: &Tree| ["topologyKey", "whenUnsatisfiable"].iter().all(|key| other.str(key) == constraint.str(key));
        if constraints[..index].iter().any(same) {
            let pair = format!("{{{}, {}}}", constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"));
            reader.errors.duplicate(&at.index(index), pair);
        }
    }
    match tree.str("defaultingType") {
        "" | "System" if constraints.is_empty() => {}
        "System" => {
            let detail = "when .defaultConstraints are specified";
            reader.errors.invalid(&path.field("defaultingType"), "System", detail);
        }
        "" | "List" => args.default_constraints = Some(constraints.to_vec()),
        other => reader.errors.not_supported(&path.field("defaultingType"), other, &["System", "List"]),
    }
}

fn default_constraint(reader: &mut Reader, constraint: &Tree, path: &Path<'_>) {
    reader.known(constraint, path, CONSTRAINT_FIELDS);
    if constraint.int("maxSkew").unwrap_or(0) <= 0 {
        reader.errors.invalid(
            &path.field("maxSkew"),
            constraint.int("maxSkew").unwrap_or(0),
            "must be greater than zero",
        );
    }
    match constraint.str("topologyKey") {
        "" => reader.errors.required(&path.field("topologyKey"), "can not be empty"),
        key => reader.errors.invalid_all(&path.field("topologyKey"), key, validation::qualified_name(key)),
    }
    let actions = &["DoNotSchedule", "ScheduleAnyway"];
    match constraint.str("whenUnsatisfiable") {
        "" => reader.errors.required(&path.field("whenUnsatisfiable"), "can not be empty"),
        action if !actions.contains(&action) => {
            reader.errors.not_supported(&path.field("whenUnsatisfiable"), action, actions);
        }
        _ => {}
    }
    for key in ["labelSelector", "matchLabelKeys"].iter().filter(|key| constraint.has(key)) {
        let detail = "constraint must not define a selector, as they deduced for each pod";
        reader.errors.forbidden(&path.field(key), detail);
    }
}

fn dynamic_resources(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    if let Some(timeout) = reader.duration(tree, "bindingTimeout", path) {
        if timeout < Duration::from_secs(1) {
            reader.errors.invalid(
                &path.field("bindingTimeout"),
                tree.str("bindingTimeout"),
                "must be at least 1 second",
            );
        }
        args.device_binding_timeout = timeout;
    }
    // A search ends after a number of steps, so that decisions do not depend on the speed of the machine.
    if tree.has("filterTimeout") {
        reader.errors.forbidden(&path.field("filterTimeout"), "the search for devices is limited by its steps");
    }
}

fn volume_binding(reader: &mut Reader, tree: &Tree, path: &Path<'_>, args: &mut Args) {
    if let Some(seconds) = reader.int(tree, "bindTimeoutSeconds", path) {
        match u64::try_from(seconds) {
            Ok(seconds) => args.bind_timeout = Duration::from_secs(seconds),
            Err(_) => {
                let detail = "invalid BindTimeoutSeconds, should not be a negative value";
                reader.errors.invalid(&path.field("bindTimeoutSeconds"), seconds, detail);
            }
        }
    }
    // Scoring by capacity is an alpha feature upstream, and off.
    if tree.has("shape") {
        reader.errors.forbidden(&path.field("shape"), "scoring by storage capacity is not supported");
    }
}
