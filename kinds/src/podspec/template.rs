//! Pod templates, as workloads hold them.

use api::Tree;
use api::field::{Errors, Path};

use super::volume::Pod;
use super::{annotations, selector, spec};
use crate::meta;

/// Validates a PodTemplateSpec. The paths of its labels and annotations omit `metadata`.
pub(crate) fn validate_template(template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let metadata = template.at("metadata");
    let pod_spec = template.at("spec");
    selector::validate_labels(metadata.map("labels"), &path.field("labels"), errors);
    let own = metadata.map("annotations");
    meta::validate_annotations(own, &path.field("annotations"), errors);
    annotations::validate(own, pod_spec, &path.field("annotations"), errors);
    let path = path.field("spec");
    spec::validate(pod_spec, Pod { is_pod: false, name: "" }, &path, errors);
    annotations::validate_seccomp_match(own, pod_spec, &path, errors);
    if !pod_spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}
