//! The usage of quotas: the objects that they apply to, and how much these use. Used by admission and by the quota
//! controller.

mod scopes;
mod usage;

pub use scopes::match_object;

/// The names of a kind by which its objects are counted.
#[derive(Debug, Clone, Copy)]
pub struct CountedKind<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub plural: &'a str,
}

impl From<&crate::Kind> for CountedKind<'_> {
    fn from(kind: &crate::Kind) -> Self {
        CountedKind { group: kind.group, kind: kind.kind, plural: kind.plural }
    }
}

pub use usage::{Usage, compute, compute_usage};

/// The suffix of a device class in the name of its quota.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";

/// The resource that a quota name counts, as group and plural; None if unknown.
pub fn source(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(counted.split_once('.').map_or(("", counted), |(plural, group)| (group, plural)));
    }
    let plural = match name {
        "services" | "services.loadbalancers" | "services.nodeports" => "services",
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => name,
        "persistentvolumeclaims" | "requests.storage" => "persistentvolumeclaims",
        _ if name.contains(".storageclass.storage.k8s.io/") => "persistentvolumeclaims",
        _ if name.ends_with(DEVICES) => return Some(("resource.k8s.io", "resourceclaims")),
        "pods" | "cpu" | "memory" | "ephemeral-storage" => "pods",
        _ if ["requests.", "limits.", "hugepages-"].iter().any(|prefix| name.starts_with(prefix)) => "pods",
        _ => return None,
    };
    Some(("", plural))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_the_counted_resource() {
        let check = |name: &str, want: Option<(&str, &str)>| assert_eq!(source(name), want, "{name}");
        check("pods", Some(("", "pods")));
        check("requests.cpu", Some(("", "pods")));
        check("requests.example.com/gpu", Some(("", "pods")));
        check("requests.storage", Some(("", "persistentvolumeclaims")));
        check("fast.storageclass.storage.k8s.io/requests.storage", Some(("", "persistentvolumeclaims")));
        check("services.nodeports", Some(("", "services")));
        check("gpu.deviceclass.resource.k8s.io/devices", Some(("resource.k8s.io", "resourceclaims")));
        check("count/resourceclaims.resource.k8s.io", Some(("resource.k8s.io", "resourceclaims")));
        check("count/deployments.apps", Some(("apps", "deployments")));
        check("count/things.stable.example.com", Some(("stable.example.com", "things")));
        check("count/secrets", Some(("", "secrets")));
        check("nonsense", None);
    }
}
