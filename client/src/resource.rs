//! Which kind of object is meant, and where it lives.

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
}

impl Resource {
    pub const fn core(plural: &'static str) -> Resource {
        Resource { group: "", version: "v1", plural }
    }

    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Resource {
        Resource { group, version, plural }
    }

    /// The path of a collection: of one namespace, or of all where it is "".
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

    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), escape(name))
    }
}

/// Names of roles have colons, and could have what is no part of a path.
fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'~' | b'@');
    name.bytes().map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
        assert_eq!(roles.object_path("", "system:a b"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b");
        assert_eq!(Resource::core("pods").path("a"), "/api/v1/namespaces/a/pods");
        assert_eq!(Resource::core("pods").path(""), "/api/v1/pods");
    }
}
