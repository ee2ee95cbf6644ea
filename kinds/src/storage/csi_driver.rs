//! CSIDriver.

use api::field::{Errors, Path};
use api::{Tree, list};

use crate::cells;
use crate::kind::{Kind, Lifecycle, bump_generation, column};
use crate::meta::validate_immutable;
use crate::podspec::small_set::SmallSet;

pub(crate) static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("AttachRequired", "boolean", "", 0),
        column("PodInfoOnMount", "boolean", "", 0),
        column("StorageCapacity", "boolean", "", 0),
        column("TokenRequests", "string", "", 0),
        column("RequiresRepublish", "boolean", "", 0),
        column("Modes", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults,
    prepare_update: |object, old, _| bump_generation(object, old, MUTABLE),
    validate,
    validate_update,
    warnings,
    unconditional_update: false,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver")
};

const FS_GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
/// The mutable fields.
const MUTABLE: &[&str] = &[
    "spec.tokenRequests",
    "spec.requiresRepublish",
    "spec.podInfoOnMount",
    "spec.storageCapacity",
    "spec.seLinuxMount",
    "spec.nodeAllocatableUpdatePeriodSeconds",
    "spec.serviceAccountTokenInSecrets",
    "spec.preventPodSchedulingIfMissing",
];

fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    spec.set_default("attachRequired", true);
    spec.set_default("podInfoOnMount", false);
    spec.set_default("storageCapacity", false);
    spec.set_default("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.set_default("requiresRepublish", false);
    spec.set_default("seLinuxMount", false);
    spec.set_default("preventPodSchedulingIfMissing", false);
    if spec.list("volumeLifecycleModes").is_empty() {
        spec.set("volumeLifecycleModes", list!["Persistent"]);
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let policy = object.str("spec.fsGroupPolicy");
    if !FS_GROUP_POLICIES.contains(&policy) {
        errors.not_supported(&Path::root("spec.fsGroupPolicy"), policy, FS_GROUP_POLICIES);
    }
    validate_token_requests(object, errors);
    for mode in object.list("spec.volumeLifecycleModes").iter().filter_map(Tree::as_str) {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            errors.not_supported(&Path::root("spec.volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
        }
    }
    let path = Path::root("spec.nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = object.int("spec.nodeAllocatableUpdatePeriodSeconds").filter(|seconds| *seconds < 10) {
        errors.invalid(&path, seconds, "must be greater than or equal to 10 seconds");
    }
}

fn validate_token_requests(object: &Tree, errors: &mut Errors) {
    let requests = object.list("spec.tokenRequests");
    let path = Path::root("spec.tokenRequests");
    let mut seen = SmallSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = request.str("audience");
        if !seen.insert(audience) {
            errors.duplicate(&path.field("audience"), audience);
            continue;
        }
        match request.int("expirationSeconds") {
            Some(seconds) if seconds < 600 => {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(&path.field("expirationSeconds"), seconds, detail);
            }
            Some(seconds) if seconds > 1 << 32 => {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(&path.field("expirationSeconds"), seconds, detail);
            }
            _ => {}
        }
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, old) = (object.at("spec"), old.at("spec"));
    for (field, path) in [
        ("attachRequired", "spec.attachedRequired"),
        ("fsGroupPolicy", "spec.fsGroupPolicy"),
        ("volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ] {
        validate_immutable(new.at(field), old.at(field), &Path::root(path), errors);
    }
    validate_token_requests(object, errors);
}

fn warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    let spec = object.at("spec");
    let unchanged = old.is_some_and(|old| old.at("spec.tokenRequests") == spec.at("tokenRequests"));
    if unchanged || spec.list("tokenRequests").is_empty() || spec.has("serviceAccountTokenInSecrets") {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
         possible logging of tokens in volume attributes";
    vec![text.to_string()]
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let spec = object.at("spec");
    let audiences: Vec<&str> = spec.list("tokenRequests").iter().map(|request| request.str("audience")).collect();
    let audiences = if audiences.is_empty() { "<unset>".to_string() } else { audiences.join(",") };
    vec![
        cells::name(object),
        Tree::Bool(spec.at("attachRequired").as_bool().unwrap_or(true)),
        Tree::Bool(spec.bool("podInfoOnMount")),
        Tree::Bool(spec.bool("storageCapacity")),
        Tree::from(audiences),
        Tree::Bool(spec.bool("requiresRepublish")),
        cells::joined(spec.list("volumeLifecycleModes"), "<none>"),
        cells::age(object, now),
    ]
}
