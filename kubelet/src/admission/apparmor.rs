//! AppArmor profiles: a pod that requests one must not run on a node that does not enforce it.

use api::Tree;

use super::{PodAdmitAttributes, refused};
use crate::model::pod;
use crate::model::problem::Problem;

/// Whether the kernel of this machine confines by profiles.
pub(crate) fn is_enabled() -> bool {
    std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'))
}

pub(crate) fn available(attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    if attributes.rules.has_apparmor || !pod::containers(attributes.tree).any(|spec| is_confined(attributes.tree, spec))
    {
        return Ok(());
    }
    refused("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
}

/// By its own field, the deprecated annotation, or the pod's field.
fn is_confined(pod: &Tree, spec: &Tree) -> bool {
    let own = spec.at("securityContext.appArmorProfile");
    let key = format!("container.apparmor.security.beta.kubernetes.io/{}", spec.str("name"));
    let annotated = pod::annotation(pod, &key);
    if own.is_null() && !annotated.is_empty() {
        return annotated != "unconfined";
    }
    let profile = if own.is_null() { pod.at("spec.securityContext.appArmorProfile") } else { own };
    !profile.is_null() && profile.str("type") != "Unconfined"
}
