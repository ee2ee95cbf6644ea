//! A resource as documents describe it: names, verbs and schema names. Derived from a kind, or provided for a custom
//! resource.

use api::Str;
use api::schema::type_of;
use kinds::{Kind, Subresource, Verb};

/// A resource as the paths of a document describe it.
#[derive(Clone)]
pub struct Resource {
    pub group: Str,
    pub version: Str,
    pub kind: Str,
    pub plural: Str,
    pub namespaced: bool,
    pub verbs: &'static [Verb],
    pub subresources: &'static [Subresource],
    /// `io.k8s.api.core.v1.Pod`
    pub schema: String,
    /// `io.k8s.api.core.v1.PodList`
    pub list_schema: String,
    /// Whether DELETE returns the object rather than a Status.
    pub returns_deleted: bool,
    /// Whether strategic merge patches are supported; not for custom resources.
    pub strategic_merge: bool,
}

/// Upstream's registries with ReturnDeletedObject.
const RETURNING_DELETED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "serviceaccounts",
            "services",
        ],
    ),
    ("storage.k8s.io", &["csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses"]),
    (
        "resource.k8s.io",
        &["deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices"],
    ),
];

impl Resource {
    /// The resource of a kind.
    pub fn of(kind: &Kind) -> Resource {
        let ty = kind.schema();
        let list = type_of(kind.group, kind.version, &format!("{}List", kind.kind));
        Resource {
            group: kind.group.into(),
            version: kind.version.into(),
            kind: kind.kind.into(),
            plural: kind.plural.into(),
            namespaced: kind.namespaced,
            verbs: kind.verbs,
            subresources: kind.subresources,
            schema: ty.openapi_name(),
            list_schema: list.unwrap_or(ty).openapi_name(),
            returns_deleted: RETURNING_DELETED
                .iter()
                .any(|(group, plurals)| *group == kind.group && plurals.contains(&kind.plural)),
            strategic_merge: true,
        }
    }

    pub(crate) fn has(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}
