//! The identity of a resource: group, version, kind, name and namespace.

use std::fmt;

use api::Tree;

/// Empty parts of a selector match anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub(crate) struct Gvk {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// Kinds that kustomize knows to be outside of namespaces. It takes all others for namespaced ones.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "NodeProxyOptions"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "IngressClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
];

impl Gvk {
    pub(crate) fn of(object: &Tree) -> Gvk {
        Gvk::new(object.str("apiVersion"), object.str("kind"))
    }

    pub(crate) fn new(api_version: &str, kind: &str) -> Gvk {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Gvk { group: group.to_string(), version: version.to_string(), kind: kind.to_string() }
    }

    pub(crate) fn is_selected_by(&self, selector: &Gvk) -> bool {
        let matches = |selector: &str, own: &str| selector.is_empty() || selector == own;
        matches(&selector.group, &self.group)
            && matches(&selector.version, &self.version)
            && matches(&selector.kind, &self.kind)
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.contains(&(self.group.as_str(), self.kind.as_str()))
    }
}

fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, version) = (or(&self.kind, "[noKind]"), or(&self.version, "[noVer]"));
        write!(f, "{kind}.{version}.{}", or(&self.group, "[noGrp]"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub(crate) struct ResId {
    pub(crate) gvk: Gvk,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// What stands for the namespace of objects outside of namespaces.
pub(crate) const NO_NAMESPACE: &str = "_non_namespaceable_";

impl ResId {
    pub(crate) fn of(object: &Tree) -> ResId {
        ResId {
            gvk: Gvk::of(object),
            name: object.str("metadata.name").to_string(),
            namespace: object.str("metadata.namespace").to_string(),
        }
    }

    pub(crate) fn effective_namespace(&self) -> &str {
        if self.gvk.is_cluster_scoped() { NO_NAMESPACE } else { or(&self.namespace, "default") }
    }

    pub(crate) fn is_same_namespace(&self, other: &ResId) -> bool {
        self.effective_namespace() == other.effective_namespace()
    }

    pub(crate) fn is_same(&self, other: &ResId) -> bool {
        self.name == other.name && self.gvk == other.gvk && self.is_same_namespace(other)
    }

    pub(crate) fn is_selected_by(&self, selector: &ResId) -> bool {
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty() || selector.is_same_namespace(self))
            && self.gvk.is_selected_by(&selector.gvk)
    }
}

impl fmt::Display for ResId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.gvk, or(&self.name, "[noName]"), or(&self.namespace, "[noNs]"))
    }
}
