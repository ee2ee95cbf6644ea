//! Leases that the API server acts on. A scheduler in another process announces its address in annotations of its lease.
//! The API server dials that address with its own certificate, so only a client that may bind pods can write them: it
//! already schedules. Leases of servers decide which addresses are endpoints of the Service `kubernetes`, so only a
//! client that may change these endpoints can write them.

use std::borrow::Cow;

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

/// The label of the leases of servers.
pub const SERVER: &str = "tiphys.io/server";
/// How the names of these leases begin.
pub const SERVER_LEASE_PREFIX: &str = "tiphys-server-";
/// The namespace of these leases.
pub const SERVER_LEASE_NAMESPACE: &str = "kube-system";

/// Checks a write to a lease; all other writes pass.
pub(crate) async fn check(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    let kind = &scope.resource.kind;
    if (kind.group(), kind.plural()) != ("coordination.k8s.io", "leases") {
        return Ok(());
    }
    if changes(object, old) {
        let bind = authorization::Attributes {
            version: "v1",
            subresource: "binding",
            ..authorization::Attributes::resource(scope.user, "create", "", "pods")
        };
        let why =
            format!("only a client that may create pods/binding in all namespaces can set the annotation {ADDRESS}");
        require(scope, name, &bind, &why).await?;
    }
    if scope.namespace == SERVER_LEASE_NAMESPACE && changes_server(name, object, old) {
        let publish = authorization::Attributes {
            version: "v1",
            namespace: "default",
            name: Cow::Borrowed("kubernetes"),
            ..authorization::Attributes::resource(scope.user, "update", "discovery.k8s.io", "endpointslices")
        };
        let why = "only a client that may update the EndpointSlice default/kubernetes can change the lease of a server";
        require(scope, name, &publish, why).await?;
    }
    Ok(())
}

async fn require(
    scope: &Scope<'_>,
    name: &str,
    permission: &authorization::Attributes<'_>,
    why: &str,
) -> Result<(), Status> {
    if scope.registry.authorizer.wait(permission).await.is_allowed() {
        return Ok(());
    }
    let kind = &scope.resource.kind;
    Err(Status::forbidden(kind.group(), kind.plural(), name, why))
}

/// Whether a write changes the lease of a server, or turns another one into such a lease or back.
fn changes_server(name: &str, object: &Tree, old: Option<&Tree>) -> bool {
    let label = |lease: &Tree| lease.map("metadata.labels").get(SERVER).cloned();
    let is_servers = |lease: &Tree| name.starts_with(SERVER_LEASE_PREFIX) || label(lease).is_some();
    match old {
        None => is_servers(object),
        Some(old) if !is_servers(object) && !is_servers(old) => false,
        Some(old) => label(object) != label(old) || object.at("spec") != old.at("spec"),
    }
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

    #[test]
    fn leases_of_servers_are_known_by_name_and_label() {
        // A plus marks a lease with the label; the rest is its holder.
        let lease = |text: &str| {
            let labels = if text.starts_with('+') { r#"{"tiphys.io/server":"a"}"# } else { "{}" };
            let holder = text.trim_start_matches('+');
            json(&format!(r#"{{"metadata":{{"labels":{labels}}},"spec":{{"holderIdentity":"{holder}"}}}}"#))
        };
        let check = |name: &str, new: &str, old: Option<&str>, want: bool| {
            assert_eq!(changes_server(name, &lease(new), old.map(lease).as_ref()), want, "{name} {new} {old:?}");
        };
        check("scheduler", "a", None, false);
        check("scheduler", "b", Some("a"), false);
        check("scheduler", "+a", None, true);
        check("scheduler", "+a", Some("a"), true);
        check("scheduler", "a", Some("+a"), true);
        check("scheduler", "+b", Some("+a"), true);
        check("scheduler", "+a", Some("+a"), false);
        check("tiphys-server-10-0-0-1", "a", None, true);
        check("tiphys-server-10-0-0-1", "b", Some("a"), true);
        check("tiphys-server-10-0-0-1", "a", Some("a"), false);
    }
}
