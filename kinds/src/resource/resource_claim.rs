//! ResourceClaim.

use api::Tree;
use api::field::{Errors, Path};

use super::claim;
use super::rules::{
    duplicates, itself, validate_binding_conditions, validate_configuration, validate_items, validate_label,
    validate_pool_name, validate_raw, validate_tolerations,
};
use crate::checks::validate_driver_name;
use crate::conditions::validate_conditions;
use crate::gojson::GoField;
use crate::kind::{Context, Kind, Lifecycle, StatusRules, Subresource, Verb, column};
use crate::podspec::affinity::validate_node_selector;
use crate::podspec::small_set::SmallSet;
use crate::{cells, gojson, prepare};

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[column("Name", "string", "name", 0), column("State", "string", "", 0), column("Age", "string", "", 0)],
    set_defaults: |object| claim::set_defaults(object.child("spec")),
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate: |object, errors| claim::validate(object.at("spec"), &Path::root("spec"), errors),
    validate_update,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare_status,
        validate: validate_status_update,
        reset: &["spec", "metadata"],
    }),
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "resourceclaim")
};

const MAX_RESERVED: usize = 256;
const MAX_RESULTS: usize = 32;
const MAX_ALLOCATED_CONFIGS: usize = 64;
const MAX_DEVICE_CONDITIONS: usize = 8;
const MAX_DATA_BYTES: usize = 10 * 1024;
const MAX_IPS: usize = 16;
const STATUS: Path<'static> = Path::root("status");
/// How errors print the name of a device.
const DEVICE_ID: &[GoField] = &[
    gojson::field("driver", "Driver", "\"\""),
    gojson::field("pool", "Pool", "\"\""),
    gojson::field("device", "Device", "\"\""),
    gojson::field("shareID", "ShareID", "\"\""),
];

/// The status of devices goes with their allocation.
fn prepare_status(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_all_but_status(object, old, context);
    let (allocated, new) = (old.at("status.allocation"), object.at("status.allocation"));
    let is_deallocated = |device: &Tree| claim::is_allocated(device, allocated) && !claim::is_allocated(device, new);
    let devices = object.list("status.devices");
    let kept: Vec<Tree> = devices.iter().filter(|device| !is_deallocated(device)).cloned().collect();
    if kept.len() == devices.len() {
        return;
    }
    let status = object.child("status");
    if kept.is_empty() { drop(status.remove("devices")) } else { status.set("devices", kept) }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if object.at("spec") != old.at("spec") {
        errors.invalid(&Path::root("spec"), gojson::null(), "field is immutable");
    }
}

fn validate_status_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let status = object.at("status");
    let reserved = status.list("reservedFor");
    let path = STATUS.field("reservedFor");
    validate_items(reserved, MAX_RESERVED, &path, errors, validate_consumer);
    for at in duplicates(reserved, |consumer| consumer.str("uid")) {
        errors.duplicate(&path.index(at), &reserved[at]);
    }
    let path = STATUS.field("devices");
    for (index, device) in status.list("devices").iter().enumerate() {
        validate_device(device, status.at("allocation"), &path.index(index), errors);
    }
    validate_reservations(object, old, errors);
    validate_allocation_change(object, old, errors);
}

fn validate_consumer(consumer: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for field in ["resource", "name", "uid"] {
        if consumer.str(field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
}

/// Only allocated claims can be reserved, and no more once the claim is being deleted.
fn validate_reservations(object: &Tree, old: &Tree, errors: &mut Errors) {
    let reserved = object.list("status.reservedFor");
    let path = STATUS.field("reservedFor");
    if reserved.is_empty() {
        return;
    }
    if !object.at("status").has("allocation") {
        return errors.forbidden(&path, "may not be specified when `allocated` is not set");
    }
    let stored: SmallSet<&str> = old.list("status.reservedFor").iter().map(|consumer| consumer.str("uid")).collect();
    let added = reserved.iter().any(|consumer| !stored.contains(&consumer.str("uid")));
    if added && object.at("metadata").has("deletionTimestamp") {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(&path, detail);
    }
}

fn validate_allocation_change(object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, stored) = (object.at("status.allocation"), old.at("status.allocation"));
    let path = STATUS.field("allocation");
    if new.is_null() {
        return;
    }
    if stored.is_null() {
        validate_allocation(new, object.list("spec.devices.requests"), &path, errors);
    } else if new != stored {
        errors.invalid(&path, gojson::null(), "field is immutable");
    }
}

fn validate_allocation(allocation: &Tree, requests: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let results = path.field("devices.results");
    validate_items(allocation.list("devices.results"), MAX_RESULTS, &results, errors, |result, path, errors| {
        claim::validate_reference(result.str("request"), requests, &path.field("request"), errors);
        validate_device_name(result, path, errors);
        validate_binding_conditions(result, path, errors);
        validate_tolerations(result.list("tolerations"), &path.field("tolerations"), errors);
    });
    let configs = path.field("devices.config");
    let list = allocation.list("devices.config");
    validate_items(list, MAX_ALLOCATED_CONFIGS, &configs, errors, |config, path, errors| {
        match config.str("source") {
            "" => errors.required(&path.field("source"), ""),
            "FromClaim" | "FromClass" => {}
            source => errors.not_supported(&path.field("source"), source, &["FromClaim", "FromClass"]),
        }
        claim::validate_references(config.list("requests"), requests, &path.field("requests"), errors);
        validate_configuration(config, path, errors);
    });
    if allocation.has("nodeSelector") {
        validate_node_selector(allocation.at("nodeSelector"), &path.field("nodeSelector"), errors);
    }
}

fn validate_device_name(device: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_driver_name(device.str("driver"), &path.field("driver"), errors);
    validate_pool_name(device.str("pool"), &path.field("pool"), errors);
    validate_label(device.str("device"), &path.field("device"), errors);
}

fn validate_device(device: &Tree, allocation: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_device_name(device, path, errors);
    if !claim::is_allocated(device, allocation) {
        errors.invalid(path, gojson::value(device, DEVICE_ID), "must be an allocated device in the claim");
    }
    let conditions = device.list("conditions");
    if conditions.len() > MAX_DEVICE_CONDITIONS {
        errors.too_many(&path.field("conditions"), conditions.len(), MAX_DEVICE_CONDITIONS);
    }
    validate_conditions(conditions, &path.field("conditions"), errors);
    if device.has("data") {
        validate_raw(device.at("data"), MAX_DATA_BYTES, &path.field("data"), errors);
    }
    validate_network(device.at("networkData"), &path.field("networkData"), errors);
}

fn validate_network(network: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (field, max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if network.str(field).len() > max {
            errors.too_long(&path.field(field), max);
        }
    }
    let ips = network.list("ips");
    validate_items(ips, MAX_IPS, &path.field("ips"), errors, |ip, path, errors| {
        let text = ip.as_str().unwrap_or("");
        errors.invalid_all(path, text, api::validation::interface_address(text));
    });
    for at in duplicates(ips, itself) {
        errors.duplicate(&path.field("ips").index(at), &ips[at]);
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(object), Tree::from(state(object)), cells::age(object, now)]
}

fn state(object: &Tree) -> String {
    let deleted = object.at("metadata").has("deletionTimestamp");
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if object.at("status").has("allocation") {
        states.push("allocated");
        if !object.list("status.reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    states.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn validates_requests() {
        let check = |request: Tree, want: &[&str]| {
            let mut object = tree! { "spec" => tree! { "devices" => tree! { "requests" => list![request] } } };
            (KIND.set_defaults)(&mut object);
            let mut errors = Errors::new();
            (KIND.validate)(&object, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        check(tree! { "name" => "r", "exactly" => tree! { "deviceClassName" => "c" } }, &[]);
        check(
            tree! { "name" => "r" },
            &["spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
        );
        check(
            tree! { "name" => "r", "exactly" => tree! { "deviceClassName" => "c", "allocationMode" => "All", "count" => 2 } },
            &[
                "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
            ],
        );
    }

    #[test]
    fn the_status_of_devices_goes_with_their_allocation() {
        let device = |name: &str| tree! { "driver" => "x", "pool" => "p", "device" => name };
        let status = |names: &[&str]| {
            let devices: Vec<Tree> = names.iter().map(|name| device(name)).collect();
            let allocation = tree! { "devices" => tree! { "results" => devices.clone() } };
            tree! { "status" => tree! { "allocation" => allocation, "devices" => devices } }
        };
        let user = crate::kind::User::default();
        let context = Context { now: 0, user: &user };
        let mut object = status(&["a", "b"]);
        object.child("status").remove("allocation");
        prepare_status(&mut object, &status(&["a", "b"]), &context);
        assert!(!object.at("status").has("devices"));
        let mut object = status(&["a"]);
        object.child("status").set("devices", list![device("a"), device("other")]);
        prepare_status(&mut object, &status(&["a", "b"]), &context);
        assert_eq!(object.list("status.devices").len(), 2, "a device that never was allocated is refused later");
        let mut errors = Errors::new();
        validate_status_update(&object, &object, &mut errors);
        let want = r#"status.devices[1]: Invalid value: {"Driver":"x","Pool":"p","Device":"other","ShareID":""}: must be an allocated device in the claim"#;
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [want]);
    }

    #[test]
    fn reservations_need_an_allocation() {
        let consumer = || tree! { "resource" => "pods", "name" => "p", "uid" => "u" };
        let object = tree! { "status" => tree! { "reservedFor" => list![consumer(), consumer()] } };
        let mut errors = Errors::new();
        validate_status_update(&object, &tree! {}, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["status.reservedFor[1]", "status.reservedFor"]);
    }
}
