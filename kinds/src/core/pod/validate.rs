//! Validation of pods on create and update.

use api::Tree;
use api::field::{Errors, Path};

use crate::podspec::volume::Pod;
use crate::podspec::{annotations, container, spec};

pub(super) fn create(pod: &Tree, errors: &mut Errors) {
    let path = Path::root("spec");
    let own = pod.at("spec");
    annotations_and_spec(pod, errors);
    if !own.list("ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !own.str("nodeName").is_empty() && !own.list("schedulingGates").is_empty() {
        errors.forbidden(&path.field("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    let metadata = pod.map("metadata.annotations");
    annotations::validate_seccomp_match(metadata, own, &path, errors);
    annotations::validate_app_armor_match(metadata, own, &path, errors);
}

/// Rules for every version of a pod.
pub(crate) fn annotations_and_spec(pod: &Tree, errors: &mut Errors) {
    let path = Path::root("spec");
    let own = pod.at("spec");
    let metadata = Path::root("metadata");
    annotations::validate(pod.map("metadata.annotations"), own, &metadata.field("annotations"), errors);
    spec::validate(own, Pod { is_pod: true, name: pod.str("metadata.name") }, &path, errors);
    if own.str("serviceAccountName").is_empty() {
        forbid_tokens(own, &path.field("volumes"), errors);
    }
    for list in ["containers", "initContainers"] {
        let path = path.field(list);
        for (index, one) in own.list(list).iter().enumerate() {
            container::validate_for_pod(one, &path.index(index), errors);
        }
    }
}

/// Without a service account there is no token.
fn forbid_tokens(own: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, volume) in own.list("volumes").iter().enumerate() {
        for (number, source) in volume.list("projected.sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let at = path.index(index);
                let at = at.field("projected.sources");
                let at = at.index(number);
                let text = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&at.field("serviceAccountToken"), text);
            }
        }
    }
}
