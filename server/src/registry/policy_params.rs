//! The params of admission policies: a user who writes a policy or a binding must be allowed to read the params,
//! because the messages of the policy can contain them.

use std::borrow::Cow;

use api::Tree;
use api::field::{Errors, Path};
use kinds::User;

use super::write::Scope;
use crate::authorization::{Attributes, is_master};
use crate::storage::resource::split_api_version;

const GROUP: &str = "admissionregistration.k8s.io";

/// Checks a write to one of the four kinds; all other writes pass.
pub(crate) async fn check(scope: &Scope<'_>, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let kind = &scope.resource.kind;
    if kind.group() != GROUP || !scope.subresource.is_empty() || is_master(scope.user) {
        return;
    }
    match kind.kind() {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => check_policy(scope, object, old, errors).await,
        "ValidatingAdmissionPolicyBinding" => {
            check_binding(scope, "validatingadmissionpolicies", object, old, errors).await;
        }
        "MutatingAdmissionPolicyBinding" => {
            check_binding(scope, "mutatingadmissionpolicies", object, old, errors).await;
        }
        _ => {}
    }
}

/// The part of a resource that is known; the rest must be allowed as a whole.
struct Target {
    group: String,
    version: String,
    resource: String,
}

fn find_target(scope: &Scope<'_>, param_kind: &Tree) -> (Target, bool) {
    let (group, version) = split_api_version(param_kind.str("apiVersion"));
    let found = scope.registry.storage.resources.find_kind(&group, &version, param_kind.str("kind"));
    let resource = found.as_ref().map_or("*", |resource| resource.kind.plural()).to_string();
    (Target { group: group.to_string(), version: version.to_string(), resource }, found.is_some())
}

async fn check_policy(scope: &Scope<'_>, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let kind = object.at("spec.paramKind");
    if kind.is_null() || old.is_some_and(|old| old.at("spec.paramKind") == kind) {
        return;
    }
    let (target, _) = find_target(scope, kind);
    let attributes = Attributes {
        namespace: "*",
        name: Cow::Borrowed("*"),
        version: &target.version,
        ..Attributes::resource(scope.user, "get", &target.group, &target.resource)
    };
    if !scope.registry.authorizer.wait(&attributes).await.is_allowed() {
        let detail = format!(
            r#"user {} must have "get" permission on all objects of the referenced paramKind (kind={}, apiVersion={})"#,
            describe_user(scope.user),
            kind.str("kind"),
            kind.str("apiVersion")
        );
        errors.forbidden(&Path::root("spec.paramKind"), &detail);
    }
}

async fn check_binding(scope: &Scope<'_>, policies: &str, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let reference = object.at("spec.paramRef");
    let is_same = |field: &str| old.is_some_and(|old| old.at(field) == object.at(field));
    if reference.is_null() || (is_same("spec.paramRef") && is_same("spec.policyName")) {
        return;
    }
    let policy_name = object.str("spec.policyName");
    let policy = scope.registry.storage.object(policies, policy_name);
    let kind = policy.as_ref().map_or(&Tree::Null, |policy| policy.at("spec.paramKind"));
    let all = || Target { group: "*".to_string(), version: "*".to_string(), resource: "*".to_string() };
    let (target, is_known) = if kind.is_null() { (all(), true) } else { find_target(scope, kind) };
    let verb = if reference.str("name").is_empty() { "list" } else { "get" };
    let attributes = Attributes {
        namespace: reference.str("namespace"),
        name: Cow::Borrowed(reference.str("name")),
        version: &target.version,
        ..Attributes::resource(scope.user, verb, &target.group, &target.resource)
    };
    if scope.registry.authorizer.wait(&attributes).await.is_allowed() {
        return;
    }
    let user = describe_user(scope.user);
    let everything = format!(
        r#"to determine minimum required permissions and user {user} does not have "{verb}" permission for all groups, versions and resources"#
    );
    let detail = match (policy.is_some(), is_known) {
        (false, _) => format!("unable to get policy {policy_name} {everything}"),
        (true, false) => {
            let (api_version, kind) = (kind.str("apiVersion"), kind.str("kind"));
            format!("unable to resolve paramKind &{{{api_version} {kind}}} {everything}")
        }
        (true, true) => {
            format!(r#"user {user} does not have "{verb}" permission on the object referenced by paramRef"#)
        }
    };
    errors.forbidden(&Path::root("spec.paramRef"), &detail);
}

/// A user in upstream's format: name, UID, groups and extra.
fn describe_user(user: &User) -> String {
    let values = |list: &[Tree]| list.iter().filter_map(Tree::as_str).collect::<Vec<_>>().join(" ");
    let extra: Vec<String> =
        user.extra.iter().map(|(key, value)| format!("{key}:[{}]", values(value.as_list().unwrap_or(&[])))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
