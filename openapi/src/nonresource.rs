//! Paths without a resource: discovery, the version and the token issuer's documents.

use crate::names::{group_tag, group_words, prefix, tag};
use crate::operation::{Content, JSON, OBJECT, Operation, Path};

/// Documents of the v3 index without a group version.
pub(crate) const FIXED: &[&str] = &[".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The path of a fixed document.
pub(crate) fn fixed(name: &str) -> Option<Path> {
    let operation = match name {
        "api" => discovery("getCoreAPIVersions", "get available API versions", "core", "APIVersions"),
        "apis" => discovery("getAPIVersions", "get available API versions", "apis", "APIGroupList"),
        "version" => Operation {
            produces: JSON,
            responses: vec![("200", Content::Object("io.k8s.apimachinery.pkg.version.Info".to_string()))],
            ..discovery("getCodeVersion", "get the version information for this server", "version", "")
        },
        ".well-known/openid-configuration" => issuer(
            "getServiceAccountIssuerOpenIDConfiguration",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            "WellKnown",
            JSON,
        ),
        "openid/v1/jwks" => issuer(
            "getServiceAccountIssuerOpenIDKeyset",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            "openid",
            &["application/jwk-set+json"],
        ),
        _ => return None,
    };
    Some(Path { path: format!("/{name}/"), operations: vec![operation] })
}

/// `/apis/apps/`
pub(crate) fn group(group: &str) -> Path {
    let id = format!("get{}APIGroup", group_words(group));
    let operation = discovery(&id, "get information of a group", &group_tag(group), "APIGroup");
    Path { path: format!("/apis/{group}/"), operations: vec![operation] }
}

/// `/apis/apps/v1/`
pub(crate) fn group_version(group: &str, version: &str) -> Path {
    let id = format!("get{}{}APIResources", group_words(group), crate::names::capitalized(version));
    let operation = discovery(&id, "get available resources", &tag(group, version), "APIResourceList");
    Path { path: format!("/{}/", prefix(group, version)), operations: vec![operation] }
}

fn discovery(id: &str, description: &'static str, tag: &str, ty: &str) -> Operation {
    Operation {
        method: "get",
        id: id.to_string(),
        description: description.into(),
        tag: tag.to_string(),
        produces: OBJECT,
        responses: vec![("200", Content::Object(format!("{META}.{ty}")))],
        ..Operation::default()
    }
}

fn issuer(id: &str, description: &'static str, tag: &str, produces: &'static [&'static str]) -> Operation {
    Operation { produces, responses: vec![("200", Content::Text)], ..discovery(id, description, tag, "") }
}
