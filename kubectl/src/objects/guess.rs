//! Resources that are known without the server.

use crate::discovery::Resource;

/// A resource by the usual rules for names, without the server.
pub(crate) fn guess(api_version: &str, kind: &str) -> Resource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let singular = kind.to_lowercase();
    let plural = match singular.as_bytes() {
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => format!("{singular}es"),
        [.., b'y'] if !singular.ends_with("ey") && !singular.ends_with("ay") => {
            format!("{}ies", &singular[..singular.len() - 1])
        }
        _ => format!("{singular}s"),
    };
    const CLUSTER: &[&str] = &[
        "Namespace",
        "Node",
        "PersistentVolume",
        "ClusterRole",
        "ClusterRoleBinding",
        "StorageClass",
        "CustomResourceDefinition",
        "PriorityClass",
        "IngressClass",
        "RuntimeClass",
        "CSIDriver",
        "CSINode",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "APIService",
        "CertificateSigningRequest",
    ];
    Resource {
        group: group.to_string(),
        version: version.to_string(),
        plural,
        singular,
        kind: kind.to_string(),
        is_namespaced: !CLUSTER.contains(&kind),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}
