//! Annotations of pods, most of which were replaced by fields.

use api::field::{Errors, Path};
use api::{Map, Tree, json, tree};

use super::{check, for_each_container, toleration};

pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(crate) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Annotations of init containers before they had a field; ignored today.
const INIT_CONTAINERS: &[&str] = &[
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
];

/// Removes annotations that could be mistaken for init containers.
pub(crate) fn drop_init_container_annotations(object: &mut Tree) {
    let Some(annotations) = object.at_mut("metadata.annotations") else { return };
    for key in INIT_CONTAINERS {
        annotations.remove(key);
    }
}

/// The annotations of a pod or template, with its spec.
pub(crate) fn validate(annotations: &Map, spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if annotations.contains(MIRROR) && spec.str("nodeName").is_empty() {
        let text = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), annotations.str(MIRROR), text);
    }
    let tolerations = annotations.str(TOLERATIONS);
    if !tolerations.is_empty() {
        validate_tolerations(tolerations, path, errors);
    }
    if annotations.get(DELETION_COST).and_then(Tree::as_str).is_some_and(|cost| !is_cost(cost)) {
        errors.invalid(&path.key(DELETION_COST), annotations.str(DELETION_COST), "must be a 32bit integer");
    }
    for (key, value) in annotations.iter() {
        let value = value.as_str().unwrap_or("");
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp(value, &path.field(key), errors);
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            validate_app_armor(container, value, spec, &path.key(key), errors);
        }
    }
}

fn validate_tolerations(text: &str, path: &Path<'_>, errors: &mut Errors) {
    match json::decode(text.as_bytes()) {
        Ok(Tree::List(list)) => toleration::validate(&list, &path.field(TOLERATIONS), errors),
        Ok(_) => errors.invalid(path, TOLERATIONS, "cannot unmarshal value into a list of tolerations"),
        Err(error) => errors.invalid(path, TOLERATIONS, &error.to_string()),
    }
}

/// A number in Go's format.
fn is_cost(text: &str) -> bool {
    let leading = match text.as_bytes() {
        [] => false,
        [b'0', rest @ ..] => rest.is_empty(),
        [first, ..] => *first == b'-' || first.is_ascii_digit(),
    };
    leading && text.parse::<i32>().is_ok()
}

fn validate_seccomp(profile: &str, path: &Path<'_>, errors: &mut Errors) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        profile => match profile.strip_prefix("localhost/") {
            Some(file) => check::local_descending(file, path, errors),
            None => errors.invalid(path, profile, "must be a valid seccomp profile"),
        },
    }
}

fn validate_app_armor(container: &str, profile: &str, spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let found = lists.iter().flat_map(|list| spec.list(list)).any(|other| other.str("name") == container);
    if !found {
        errors.invalid(path, container, "container not found");
    }
    if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
        errors.invalid(path, profile, &format!("invalid AppArmor profile name: {}", api::field::go_quote(profile)));
    }
}

/// Whether any annotation is about seccomp or AppArmor; few pods have one.
pub(crate) fn has_profiles(annotations: &Map) -> bool {
    annotations.keys().any(|key| key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR))
}

/// A seccomp annotation and its field must agree.
pub(crate) fn validate_seccomp_match(annotations: &Map, spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !has_profiles(annotations) {
        return;
    }
    match_profile(
        annotations.get(SECCOMP_POD),
        spec.at("securityContext.seccompProfile"),
        "seccomp",
        &path.field("securityContext.seccompProfile"),
        errors,
    );
    for_each_container(spec, path, &mut |container, path| {
        let key = format!("{SECCOMP_CONTAINER}{}", container.str("name"));
        let path = path.field("securityContext.seccompProfile");
        let profile = container.at("securityContext.seccompProfile");
        match_profile(annotations.get(&key), profile, "seccomp", &path, errors);
    });
}

/// The same for AppArmor, whose field containers inherit from the pod.
pub(crate) fn validate_app_armor_match(annotations: &Map, spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !has_profiles(annotations) || spec.str("os.name") == "windows" {
        return;
    }
    for_each_container(spec, path, &mut |container, path| {
        let own = container.at("securityContext.appArmorProfile");
        let profile = if own.is_null() { spec.at("securityContext.appArmorProfile") } else { own };
        let key = format!("{APP_ARMOR}{}", container.str("name"));
        let path = path.field("securityContext.appArmorProfile");
        match_profile(annotations.get(&key), profile, "apparmor", &path, errors);
    });
}

fn match_profile(annotation: Option<&Tree>, profile: &Tree, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let (Some(annotation), false) = (annotation.and_then(Tree::as_str), profile.is_null()) else { return };
    let local = annotation.strip_prefix("localhost/");
    let same_type = match profile.str("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default"),
        "Localhost" => local.is_some(),
        _ => true,
    };
    if !same_type {
        errors.forbidden(&path.field("type"), &format!("{what} type in annotation and field must match"));
    } else if profile.str("type") == "Localhost" && local != profile.at("localhostProfile").as_str() {
        let text = format!("{what} profile in annotation and field must match");
        errors.forbidden(&path.field("localhostProfile"), &text);
    }
}

/// The profile of an AppArmor annotation.
pub(crate) fn app_armor_profile(annotation: &str) -> Option<Tree> {
    match annotation {
        "unconfined" => Some(tree! { "type" => "Unconfined" }),
        "runtime/default" => Some(tree! { "type" => "RuntimeDefault" }),
        _ => {
            let name = annotation.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(tree! { "type" => "Localhost", "localhostProfile" => name })
        }
    }
}

/// Annotations that an update must not change.
pub(crate) fn validate_update(new: &Map, old: &Map, path: &Path<'_>, errors: &mut Errors) {
    let kept = |key: &str| key == MIRROR || key.starts_with(APP_ARMOR);
    let name = |key: &str| if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    for (key, value) in old.iter().filter(|(key, _)| kept(key)) {
        if new.get(key) != Some(value) {
            errors.forbidden(&path.key(key), &format!("may not remove or update {}", name(key)));
        }
    }
    for key in new.keys().filter(|key| kept(key) && !old.contains(key)) {
        errors.forbidden(&path.key(key), &format!("may not add {}", name(key)));
    }
}
