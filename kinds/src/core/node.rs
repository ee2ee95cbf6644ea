//! Node.

use api::field::{Errors, Path};
use api::validation::{cidr_legacy, cidr_warnings, label_value, parse_cidr, qualified_name};
use api::{Tree, list};

use crate::gojson::{self, EMPTY, GoField, NULL, field};
use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, column, selectable};
use crate::podspec::small_set::SmallSet;
use crate::{cells, prepare, resources};

/// Node.
pub static KIND: Kind = Kind {
    short_names: &["no"],
    storage: "minions",
    subresources: &[
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "NodeProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Roles", "string", "", 0),
        column("Age", "string", "", 0),
        column("Version", "string", "", 0),
        column("Internal-IP", "string", "", 1),
        column("External-IP", "string", "", 1),
        column("OS-Image", "string", "", 1),
        column("Kernel-Version", "string", "", 1),
        column("Container-Runtime", "string", "", 1),
    ],
    selectable: &[selectable("spec.unschedulable")],
    set_defaults,
    prepare_create: |object, _| drop_config_source(object, &Tree::Null),
    prepare_update,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate_update, reset: &["spec"] }),
    cells,
    ..Kind::cluster("", "v1", "Node", "nodes", "node")
};

const TAINT: &[GoField] = &[
    field("key", "Key", EMPTY),
    field("value", "Value", EMPTY),
    field("effect", "Effect", EMPTY),
    field("timeAdded", "TimeAdded", NULL),
];
const ADDRESS: &[GoField] = &[field("type", "Type", EMPTY), field("address", "Address", EMPTY)];
/// Upstream's error path for taints, although they are in the spec.
const TAINTS: Path<'static> = Path::root("metadata.taints");
const POD_CIDRS: Path<'static> = Path::root("spec.podCIDRs");

/// Allocatable defaults to the capacity; podCIDR and the first of podCIDRs are equivalent, and podCIDR takes
/// precedence.
fn set_defaults(object: &mut Tree) {
    let status = object.child("status");
    if !status.has("allocatable") && status.has("capacity") {
        let capacity = status.at("capacity").clone();
        status.set("allocatable", capacity);
    }
    resources::round_up(status, "capacity");
    resources::round_up(status, "allocatable");
    let spec = object.child("spec");
    let first = spec.list("podCIDRs").first().and_then(Tree::as_str).unwrap_or("").to_string();
    match spec.str("podCIDR").to_string() {
        cidr if !cidr.is_empty() && cidr != first => spec.set("podCIDRs", list![cidr]),
        cidr if cidr.is_empty() && !first.is_empty() => spec.set("podCIDR", first),
        _ => {}
    }
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    drop_config_source(object, old);
}

/// The feature was removed; the field is kept if stored already.
fn drop_config_source(object: &mut Tree, old: &Tree) {
    if !old.at("spec").has("configSource") {
        object.remove_at("spec.configSource");
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    validate_taints(object.list("spec.taints"), errors);
    validate_resources(object, errors);
    validate_pod_cidrs(object, errors);
}

fn validate_taints(taints: &[Tree], errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = TAINTS.index(index);
        let (key, value, effect) = (taint.str("key"), taint.str("value"), taint.str("effect"));
        errors.invalid_all(&path.field("key"), key, qualified_name(key));
        let messages = label_value(value);
        if !messages.is_empty() {
            errors.invalid(&path.field("value"), value, &messages.join(";"));
        }
        validate_effect(effect, &path.field("effect"), errors);
        if !seen.insert((key, effect)) {
            errors.duplicate_with(&path, gojson::value(taint, TAINT), "taints must be unique by key and effect pair");
        }
    }
}

fn validate_effect(effect: &str, path: &Path<'_>, errors: &mut Errors) {
    match effect {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        "" => errors.required(path, ""),
        _ => errors.not_supported(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    }
}

fn validate_resources(object: &Tree, errors: &mut Errors) {
    for path in ["status.capacity", "status.allocatable"] {
        for (name, quantity) in object.map(path).iter() {
            resources::validate_quantity(name, quantity, &Path::root(path).field(name), errors);
        }
    }
}

fn validate_pod_cidrs(object: &Tree, errors: &mut Errors) {
    let cidrs = object.list("spec.podCIDRs");
    for (index, cidr) in cidrs.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or("");
        errors.invalid_all(&POD_CIDRS.index(index), cidr, cidr_legacy(cidr, false));
    }
    if cidrs.len() < 2 {
        return;
    }
    let families: Vec<Option<bool>> =
        cidrs.iter().map(|cidr| parse_cidr(cidr.as_str().unwrap_or("")).map(|cidr| !cidr.is_ipv4())).collect();
    if cidrs.len() > 2 || families[0] == families[1] {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(&POD_CIDRS, object.at("spec.podCIDRs"), detail);
    }
    let mut seen = SmallSet::new();
    for (index, cidr) in cidrs.iter().enumerate().filter(|(_, cidr)| !seen.insert(cidr.as_str())) {
        errors.duplicate(&POD_CIDRS.index(index), cidr);
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate_resources(object, errors);
    validate_addresses(object, errors);
    if !old.list("spec.podCIDRs").is_empty() && object.at("spec.podCIDRs") != old.at("spec.podCIDRs") {
        errors.forbidden(&POD_CIDRS, "node updates may not change podCIDR except from \"\" to valid");
    }
    if !old.str("spec.providerID").is_empty() && object.str("spec.providerID") != old.str("spec.providerID") {
        errors.invalid(&Path::root("spec.providerID"), gojson::null(), "field cannot be modified once set");
    }
    validate_taints(object.list("spec.taints"), errors);
    if object.at("spec.externalID") != old.at("spec.externalID") {
        errors.forbidden(&Path::nil().key(""), "node updates may only change labels, taints, or capacity");
    }
}

fn validate_addresses(object: &Tree, errors: &mut Errors) {
    let addresses = object.list("status.addresses");
    let path = Path::root("status.addresses");
    let mut seen = SmallSet::new();
    for (index, address) in addresses.iter().enumerate() {
        if !seen.insert((address.str("type"), address.str("address"))) {
            errors.duplicate(&path.index(index), gojson::value(address, ADDRESS));
        }
    }
}

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if object.at("spec").has("configSource") {
        warnings.push("spec.configSource: the feature is removed".to_string());
    }
    if !object.str("spec.externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_string());
    }
    for (index, cidr) in object.list("spec.podCIDRs").iter().enumerate() {
        warnings.extend(cidr_warnings(&format!("spec.podCIDRs[{index}]"), cidr.as_str().unwrap_or("")));
    }
    warnings
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::from(status_text(object)),
        Tree::from(roles(object)),
        cells::age(object, now),
        Tree::from(object.str("status.nodeInfo.kubeletVersion")),
        address(object, "InternalIP"),
        address(object, "ExternalIP"),
        cells::text_or(object, "status.nodeInfo.osImage", "<unknown>"),
        Tree::from(kernel(object)),
        cells::text_or(object, "status.nodeInfo.containerRuntimeVersion", "<unknown>"),
    ]
}

fn status_text(object: &Tree) -> String {
    let ready = object.list("status.conditions").iter().rfind(|condition| condition.str("type") == "Ready");
    let status = match ready.map(|condition| condition.str("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let suffix = if object.bool("spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{status}{suffix}")
}

fn roles(object: &Tree) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in object.map("metadata.labels").iter() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role),
            None if key == "kubernetes.io/role" => roles.extend(value.as_str().filter(|role| !role.is_empty())),
            _ => {}
        }
    }
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_string() } else { roles.join(",") }
}

fn address(object: &Tree, ty: &str) -> Tree {
    let found = object.list("status.addresses").iter().find(|address| address.str("type") == ty);
    Tree::from(found.map_or("<none>", |address| address.str("address")))
}

fn kernel(object: &Tree) -> String {
    match (object.str("status.nodeInfo.kernelVersion"), object.str("status.nodeInfo.architecture")) {
        ("", _) => "<unknown>".to_string(),
        (version, "") => version.to_string(),
        (version, architecture) => format!("{version} ({architecture})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn pod_cidrs_agree() {
        let check = |spec: Tree, want: Tree| {
            let mut object = tree! { "spec" => spec };
            set_defaults(&mut object);
            assert_eq!(object.at("spec"), &want);
        };
        let both = || tree! { "podCIDR" => "10.0.0.0/24", "podCIDRs" => list!["10.0.0.0/24"] };
        check(tree! { "podCIDR" => "10.0.0.0/24" }, both());
        check(tree! { "podCIDRs" => list!["10.0.0.0/24"] }, both());
        check(tree! { "podCIDR" => "10.0.0.0/24", "podCIDRs" => list!["10.1.0.0/24"] }, both());
    }

    #[test]
    fn prints_status_and_roles() {
        let object = tree! {
            "metadata" => tree! { "name" => "n", "labels" => tree! { "node-role.kubernetes.io/b" => "", "kubernetes.io/role" => "a" } },
            "spec" => tree! { "unschedulable" => true },
            "status" => tree! { "conditions" => list![tree! { "type" => "Ready", "status" => "False" }] },
        };
        let cells = cells(&object, 0);
        assert_eq!(cells[1], Tree::from("NotReady,SchedulingDisabled"));
        assert_eq!(cells[2], Tree::from("a,b"));
    }
}
