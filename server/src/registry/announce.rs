//! A scheduler in another process announces its address in annotations of its lease. The API server dials that address
//! with its own certificate, so only a client that may bind pods can write them: it already schedules.

use api::Tree;
use api::status::Status;

use crate::authorization;
use crate::registry::write::Scope;

/// The annotation of a lease with the address of its holder.
pub const ADDRESS: &str = "tiphys.io/address";
/// The annotation of a lease with the fingerprint of its holder's certificate.
pub const CERTIFICATE: &str = "tiphys.io/certificate";
/// The annotation of a lease with the scheduler names that its holder serves.
pub const SCHEDULERS: &str = "tiphys.io/schedulers";

/// Checks a write to a lease; all other writes pass.
pub(crate) async fn check(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    let kind = &scope.resource.kind;
    if (kind.group(), kind.plural()) != ("coordination.k8s.io", "leases") || !changes(object, old) {
        return Ok(());
    }
    let bind = authorization::Attributes {
        version: "v1",
        subresource: "binding",
        ..authorization::Attributes::resource(scope.user, "create", "", "pods")
    };
    if scope.registry.authorizer.wait(&bind).await.is_allowed() {
        return Ok(());
    }
    let why = format!("only a client that may create pods/binding in all namespaces can set the annotation {ADDRESS}");
    Err(Status::forbidden(kind.group(), kind.plural(), name, &why))
}

/// An annotation that is removed leads nowhere.
fn changes(object: &Tree, old: Option<&Tree>) -> bool {
    let value = |lease: &Tree, key: &str| lease.map("metadata.annotations").get(key).cloned();
    [ADDRESS, CERTIFICATE, SCHEDULERS].iter().any(|key| {
        let new = value(object, key);
        new.is_some() && new != old.and_then(|old| value(old, key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    #[test]
    fn unchanged_or_removed_annotations_need_no_permission() {
        let lease = |annotations: &str| json(&format!(r#"{{"metadata":{{"annotations":{annotations}}}}}"#));
        let check = |new: &str, old: Option<&str>, want: bool| {
            assert_eq!(changes(&lease(new), old.map(lease).as_ref()), want, "{new} {old:?}");
        };
        check("{}", None, false);
        check(r#"{"x":"y"}"#, None, false);
        check(r#"{"tiphys.io/address":"a"}"#, None, true);
        check(r#"{"tiphys.io/address":"a"}"#, Some(r#"{"tiphys.io/address":"a"}"#), false);
        check(r#"{"tiphys.io/address":"b"}"#, Some(r#"{"tiphys.io/address":"a"}"#), true);
        check(r#"{"tiphys.io/schedulers":"b"}"#, Some("{}"), true);
        check("{}", Some(r#"{"tiphys.io/address":"a"}"#), false);
    }
}
