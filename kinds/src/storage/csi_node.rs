//! CSINode.

use std::collections::HashMap;

use api::Tree;
use api::field::{Errors, Path};
use api::validation::qualified_name;

use crate::checks::validate_driver_name;
use crate::gojson::{self, EMPTY, GoField, NULL, field, nested};
use crate::kind::{Kind, Lifecycle, StatusRules, Subresource, Verb, column};
use crate::podspec::small_set::SmallSet;
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Drivers", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: prepare::any_status,
        reset: &["spec", "metadata"],
    }),
    unconditional_update: false,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode")
};

const MAX_NODE_ID_BYTES: usize = 256;
const DRIVER: &[GoField] = &[
    field("name", "Name", EMPTY),
    field("nodeID", "NodeID", EMPTY),
    field("topologyKeys", "TopologyKeys", NULL),
    nested("allocatable", "Allocatable", &[field("count", "Count", NULL)]),
];

/// Upstream's stored form does not distinguish an empty list from none.
fn validate(object: &Tree, errors: &mut Errors) {
    let drivers = object.list("spec.drivers");
    let path = Path::root("spec.drivers");
    let mut seen = SmallSet::new();
    for (index, driver) in drivers.iter().enumerate() {
        let path = path.index(index);
        validate_driver(driver, &path, errors);
        let name = driver.str("name");
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        validate_topology_keys(driver, &path, errors);
    }
}

fn validate_driver(driver: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_driver_name(driver.str("name"), &path.field("name"), errors);
    let node = driver.str("nodeID");
    if node.is_empty() {
        errors.required(&path.field("nodeID"), "");
    }
    if node.len() > MAX_NODE_ID_BYTES {
        let detail = format!("must be {MAX_NODE_ID_BYTES} characters or less");
        errors.invalid(&path.field("nodeID"), node, &detail);
    }
    if let Some(count) = driver.int("allocatable.count").filter(|count| *count < 0) {
        errors.invalid(&path.field("allocatable.count"), count, "must be greater than or equal to 0");
    }
}

fn validate_topology_keys(driver: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    let mut shown = false;
    for key in driver.list("topologyKeys").iter().map(|key| key.as_str().unwrap_or("")) {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !seen.insert(key) {
            errors.duplicate(path, key);
        }
        // The error prints the whole list, so it is reported once.
        for message in if shown { Vec::new() } else { qualified_name(key) } {
            errors.invalid(path, driver.at("topologyKeys"), &message);
            shown = true;
        }
    }
}

/// An entry can only be replaced as a whole; only `allocatable` may change.
fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate(object, errors);
    let fixed = ["name", "nodeID", "topologyKeys"];
    let stored: HashMap<&str, &Tree> =
        old.list("spec.drivers").iter().map(|driver| (driver.str("name"), driver)).collect();
    for driver in object.list("spec.drivers") {
        let stored = stored.get(driver.str("name"));
        if stored.is_some_and(|stored| fixed.iter().any(|field| stored.at(field) != driver.at(field))) {
            errors.invalid(&Path::root("CSINodeDriver"), gojson::value(driver, DRIVER), "field is immutable");
        }
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let drivers = object.list("spec.drivers").len() as i64;
    vec![cells::name(object), Tree::Int(drivers), cells::age(object, now)]
}
