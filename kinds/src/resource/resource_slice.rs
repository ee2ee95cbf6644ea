//! ResourceSlice.

use api::Tree;
use api::field::{Errors, Path, go_quote};
use api::validation::dns1123_subdomain;

use super::device::{self, has_advanced_features};
use super::rules::{duplicates, stamp_taint, validate_items, validate_label, validate_pool_name};
use crate::checks::validate_driver_name;
use crate::kind::{Context, Kind, Lifecycle, bump_generation, column, selectable};
use crate::meta::validate_immutable;
use crate::podspec::affinity::validate_node_selector;
use crate::{cells, gojson, prepare};

pub(crate) static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Node", "string", "", 0),
        column("Driver", "string", "", 0),
        column("Pool", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    selectable: &[selectable("spec.nodeName"), selectable("spec.driver"), selectable("spec.pool.name")],
    prepare_create,
    prepare_update,
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| validate(object, Some(old), errors),
    warnings,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", "resourceslice")
};

const MAX_DEVICES: usize = 128;
/// The limit if devices have taints, counters or lists, which are larger.
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const SPEC: Path<'static> = Path::root("spec");

fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    prepare::first_generation(object);
    stamp_taints(object, context);
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    stamp_taints(object, context);
    bump_generation(object, old, &["spec"]);
}

fn stamp_taints(object: &mut Tree, context: &Context<'_>) {
    for device in object.list_mut("spec.devices") {
        device.list_mut("taints").iter_mut().for_each(|taint| stamp_taint(taint, context));
    }
}

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_driver_name(spec.str("driver"), &SPEC.field("driver"), errors);
    validate_pool(spec.at("pool"), errors);
    if let Some(old) = old {
        for path in ["spec.pool.name", "spec.driver", "spec.nodeName"] {
            validate_immutable(object.at(path), old.at(path), &Path::root(path), errors);
        }
    }
    validate_nodes(spec, errors);
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid(&SPEC, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    validate_devices(spec, old, errors);
    validate_counter_sets(spec.list("sharedCounters"), errors);
}

fn validate_pool(pool: &Tree, errors: &mut Errors) {
    let path = SPEC.field("pool");
    validate_pool_name(pool.str("name"), &path.field("name"), errors);
    let count = pool.int("resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.invalid(&path.field("resourceSliceCount"), count, "must be greater than zero");
    }
    let generation = pool.int("generation").unwrap_or(0);
    if generation < 0 {
        errors.invalid(&path.field("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Exactly one field selects the nodes.
fn validate_nodes(spec: &Tree, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    match spec.at("nodeName").as_str() {
        None => {}
        Some("") => {
            errors.invalid(&SPEC.field("nodeName"), "", "must be either unset or set to a non-empty string");
        }
        Some(name) => {
            set.push("`nodeName`");
            errors.invalid_all(&SPEC.field("nodeName"), name, dns1123_subdomain(name));
        }
    }
    if let Some(selector) = spec.get("nodeSelector") {
        set.push("`nodeSelector`");
        validate_node_selector(selector, &SPEC.field("nodeSelector"), errors);
        if selector.list("nodeSelectorTerms").len() != 1 {
            let path = SPEC.field("nodeSelector.nodeSelectorTerms");
            errors.invalid(&path, gojson::null(), "must have exactly one node selector term");
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.at(field).as_bool() {
            Some(true) => set.push(shown),
            Some(false) => errors.invalid(&SPEC.field(field), false, "must be either unset or set to true"),
            None => {}
        }
    }
    match set.len() {
        0 => errors.required(&SPEC, ONE),
        1 => {}
        _ => errors.invalid(&SPEC, format!("{{{}}}", set.join(", ")), &format!("{ONE}, but multiple fields are set")),
    }
}

fn validate_devices(spec: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let (devices, path) = (spec.list("devices"), SPEC.field("devices"));
    let max = if devices.iter().any(has_advanced_features) { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let per_device = spec.bool("perDeviceNodeSelection");
    validate_items(devices, max, &path, errors, |device, path, errors| {
        let stored = old.map_or(&[][..], |old| old.list("spec.devices"));
        let stored = stored.iter().find(|stored| stored.str("name") == device.str("name"));
        device::validate(device, stored, per_device, path, errors);
    });
    for at in duplicates(devices, |device| device.str("name")) {
        errors.duplicate(&path.index(at), devices[at].str("name"));
    }
}

fn validate_counter_sets(sets: &[Tree], errors: &mut Errors) {
    let path = SPEC.field("sharedCounters");
    validate_items(sets, MAX_COUNTER_SETS, &path, errors, |set, path, errors| {
        validate_label(set.str("name"), &path.field("name"), errors);
        device::validate_counters(set.map("counters"), MAX_COUNTERS, &path.field("counters"), errors);
    });
    for at in duplicates(sets, |set| set.str("name")) {
        errors.duplicate(&path.index(at), &sets[at]);
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::from(object.str("spec.nodeName")),
        Tree::from(object.str("spec.driver")),
        Tree::from(object.str("spec.pool.name")),
        cells::age(object, now),
    ]
}

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let driver = object.str("spec.driver");
    if driver == driver.to_lowercase() {
        return Vec::new();
    }
    let quoted = go_quote(driver);
    vec![format!("spec.driver: driver names should be lowercase; {quoted} contains uppercase characters")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn nodes_are_selected_in_one_way() {
        let check = |extra: (&str, Tree), want: &[&str]| {
            let mut spec = tree! { "driver" => "d", "pool" => tree! { "name" => "p", "resourceSliceCount" => 1 }, "devices" => list![tree! { "name" => "a" }] };
            spec.set(extra.0, extra.1);
            let mut errors = Errors::new();
            validate(&tree! { "spec" => spec }, None, &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), want);
        };
        check(("nodeName", Tree::from("n")), &[]);
        check(("allNodes", Tree::Bool(false)), &["spec.allNodes", "spec"]);
        check(("perDeviceNodeSelection", Tree::Bool(true)), &["spec.devices[0]"]);
    }
}
