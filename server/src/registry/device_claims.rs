//! Resource claims: admin access to devices needs a label of the namespace, and parts of a claim's status need permissions
//! of their own (`resourceclaims/binding`, `resourceclaims/driver`), so that drivers cannot allocate devices and one
//! driver cannot write the status of another.

use std::borrow::Cow;
use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;
use api::{Str, Tree};

use super::write::Scope;
use crate::authorization::{Attributes, forbidden, is_master};

const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resourceclaims";
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Checks a write to a claim or a template of claims; all other writes pass.
pub(crate) async fn check(scope: &Scope<'_>, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let kind = &scope.resource.kind;
    if kind.group() != GROUP {
        return;
    }
    match (kind.kind(), scope.subresource, old) {
        ("ResourceClaim", "", None) => check_admin_access(scope, object.list("spec.devices.requests"), errors),
        ("ResourceClaimTemplate", "", None) => {
            check_admin_access(scope, object.list("spec.spec.devices.requests"), errors);
        }
        ("ResourceClaim", "status", Some(old)) => check_status(scope, object, old, errors).await,
        _ => {}
    }
}

fn check_admin_access(scope: &Scope<'_>, requests: &[Tree], errors: &mut Errors) {
    let asks = |request: &Tree| request.get("exactly").is_some_and(|exactly| exactly.bool("adminAccess"));
    if let Some(index) = requests.iter().position(asks) {
        let path = Path::root("spec.devices.requests");
        require_label(scope, &path.index(index).field("adminAccess"), errors);
    }
}

fn require_label(scope: &Scope<'_>, path: &Path<'_>, errors: &mut Errors) {
    let namespace = scope.registry.storage.object("namespaces", scope.namespace);
    let label = namespace.as_ref().map(|namespace| namespace.map("metadata.labels").str(ADMIN_LABEL));
    if label != Some("true") {
        let detail =
            format!("admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace");
        errors.forbidden(path, &detail);
    }
}

async fn check_status(scope: &Scope<'_>, object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, old) = (object.at("status"), old.at("status"));
    let granted =
        |status: &Tree| status.list("allocation.devices.results").iter().position(|one| one.bool("adminAccess"));
    if let Some(index) = granted(new).filter(|_| granted(old).is_none()) {
        let path = Path::root("status.allocation.devices.results");
        require_label(scope, &path.index(index).field("adminAccess"), errors);
    }
    let Some(origin) = scope.origin.as_ref().filter(|_| !is_master(scope.user)) else { return };
    let verb = origin.head.info.verb;
    if new.at("allocation") != old.at("allocation") || new.at("reservedFor") != old.at("reservedFor") {
        let refused = refuse(scope, verb, "binding", "", "").await;
        if let Some(why) = refused {
            let what = "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\"";
            let detail = format!("{what}, verb=\"{verb}\" permission: {why}");
            errors.forbidden(&Path::root("status.allocation"), &detail);
        }
    }
    if !new.at("allocation").is_null() {
        check_drivers(scope, verb, new, old, errors).await;
    }
}

/// Each driver whose devices change has to be allowed, on the node of the caller or on all.
async fn check_drivers(scope: &Scope<'_>, verb: &str, new: &Tree, old: &Tree, errors: &mut Errors) {
    let arbitrary = format!("arbitrary-node:{verb}");
    let verbs = match is_on_node(scope, new.at("allocation")) {
        true => vec![format!("associated-node:{verb}"), arbitrary],
        false => vec![arbitrary],
    };
    for driver in changed_drivers(new.list("devices"), old.list("devices")) {
        let mut first = None;
        for verb in &verbs {
            match refuse(scope, verb, "driver", scope.namespace, &driver).await {
                None => {
                    first = None;
                    break;
                }
                Some(why) => first = first.or(Some(why)),
            }
        }
        if let Some(why) = first {
            let shown = verbs.join(" ");
            let what = "changing status.devices requires resource=\"resourceclaims/driver\"";
            errors.forbidden(&Path::root("status.devices"), &format!("{what}, verb=\"[{shown}]\" permission: {why}"));
        }
    }
}

/// Why the caller may not, as the error of a request would say.
async fn refuse(scope: &Scope<'_>, verb: &str, subresource: &str, namespace: &str, name: &str) -> Option<String> {
    let attributes = Attributes {
        namespace,
        name: Cow::Borrowed(name),
        subresource,
        version: scope.resource.kind.version(),
        ..Attributes::resource(scope.user, verb, GROUP, CLAIMS)
    };
    let verdict = scope.registry.authorizer.wait(&attributes).await;
    (!verdict.is_allowed()).then(|| forbidden(&attributes, &verdict.reason).message.to_string())
}

/// The drivers of devices that were added, changed or removed.
fn changed_drivers(new: &[Tree], old: &[Tree]) -> BTreeSet<Str> {
    let same = |one: &Tree, other: &Tree| {
        ["driver", "pool", "device", "shareID"].iter().all(|field| one.str(field) == other.str(field))
    };
    let is_changed = |device: &&Tree| !old.iter().any(|known| known == *device);
    let is_removed = |device: &&Tree| !new.iter().any(|known| same(known, device));
    let changed = new.iter().filter(is_changed).chain(old.iter().filter(is_removed));
    changed.map(|device| Str::new(device.str("driver"))).collect()
}

/// Whether the caller is a service account on the only node of an allocation.
fn is_on_node(scope: &Scope<'_>, allocation: &Tree) -> bool {
    let [term] = allocation.list("nodeSelector.nodeSelectorTerms") else { return false };
    let ([], [field]) = (term.list("matchExpressions"), term.list("matchFields")) else { return false };
    let names = field.list("values");
    let is_name = field.str("key") == "metadata.name" && field.str("operator") == "In" && names.len() == 1;
    let user = scope.user;
    let own = user.extra.get(NODE_NAME).and_then(Tree::as_list).unwrap_or_default();
    let [own] = own else { return false };
    let own = own.as_str().unwrap_or("");
    is_name
        && user.name.starts_with("system:serviceaccount:")
        && dns1123_subdomain(own).is_empty()
        && names[0].as_str() == Some(own)
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn drivers_of_changed_devices_are_found() {
        let device = |driver: &str, device: &str, data: i64| {
            tree! { "driver" => driver, "pool" => "p", "device" => device, "data" => data }
        };
        let check = |new: &[Tree], old: &[Tree], want: &[&str]| {
            let found = changed_drivers(new, old);
            assert_eq!(found.iter().map(Str::as_str).collect::<Vec<_>>(), want, "{new:?} {old:?}");
        };
        check(&[device("a", "x", 1)], &[device("a", "x", 1)], &[]);
        check(&[device("a", "x", 2)], &[device("a", "x", 1)], &["a"]);
        check(&[device("a", "x", 1), device("b", "y", 1)], &[device("a", "x", 1)], &["b"]);
        check(&[], &[device("a", "x", 1), device("b", "y", 1)], &["a", "b"]);
    }
}
