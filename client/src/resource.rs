//! Resources and their paths.

use std::collections::BTreeSet;

use api::query::encode_segment;
use stdx::sync::Mutex;

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
}

impl Resource {
    /// A resource of the core group.
    pub const fn core(plural: &'static str) -> Resource {
        Resource { group: "", version: "v1", plural }
    }

    /// A resource of a group and version.
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Resource {
        Resource { group, version, plural }
    }

    /// A resource known only at run time, from discovery.
    pub fn named(group: &str, version: &str, plural: &str) -> Resource {
        Resource { group: interned(group), version: interned(version), plural: interned(plural) }
    }

    /// The apiVersion of its objects.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of a collection in one namespace, or in all if it is empty.
    pub fn path(&self, namespace: &str) -> String {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace {
            "" => format!("{root}/{}", self.plural),
            namespace => format!("{root}/namespaces/{namespace}/{}", self.plural),
        }
    }

    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), encode_segment(name))
    }
}

/// Leaked: there are as many as a cluster has resource names and a process has selections.
pub(crate) fn interned(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.get(text) {
        return known;
    }
    let kept: &'static str = Box::leak(text.to_string().into_boxed_str());
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_api_paths() {
        let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
        assert_eq!(roles.object_path("", "system:a b"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b");
        assert_eq!(Resource::core("pods").path("a"), "/api/v1/namespaces/a/pods");
        assert_eq!(Resource::core("pods").path(""), "/api/v1/pods");
        assert_eq!(Resource::named("", "v1", "pods"), Resource::core("pods"));
        assert_eq!(Resource::named("a.example", "v2", "things").api_version(), "a.example/v2");
    }
}
