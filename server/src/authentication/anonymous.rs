//! Requests without credentials, and the paths that they may use.

use std::sync::{Arc, LazyLock};

use kinds::User;

pub(crate) use crate::common::users::ANONYMOUS as NAME;

static USER: LazyLock<Arc<User>> = LazyLock::new(|| {
    Arc::new(User { name: NAME.to_string(), groups: vec![super::UNAUTHENTICATED.to_string()], ..User::default() })
});

/// Which paths serve requests without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Anonymous {
    /// Anyone, on every path; the authorizers decide.
    #[default]
    Anywhere,
    Only(Vec<String>),
    Never,
}

impl Anonymous {
    /// Probes, the version, and the documents that a joining machine reads.
    pub fn minimal() -> Anonymous {
        let paths = ["/healthz", "/livez", "/readyz", "/version", "/version/", CLUSTER_INFO];
        Anonymous::Only(paths.map(str::to_string).into())
    }

    /// The anonymous user, if it may use the path.
    pub fn user(&self, path: &str) -> Option<Arc<User>> {
        let allowed = match self {
            Anonymous::Anywhere => true,
            Anonymous::Only(paths) => paths.iter().any(|allowed| allowed == path),
            Anonymous::Never => false,
        };
        allowed.then(|| USER.clone())
    }
}

const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact() {
        let minimal = Anonymous::minimal();
        for (path, want) in [("/version", true), ("/version/x", false), (CLUSTER_INFO, true), ("/api", false)] {
            assert_eq!(minimal.user(path).is_some(), want, "{path}");
        }
        assert!(Anonymous::Anywhere.user("/api").is_some() && Anonymous::Never.user("/healthz").is_none());
    }
}
