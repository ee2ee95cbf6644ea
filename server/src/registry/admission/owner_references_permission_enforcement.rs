//! OwnerReferencesPermissionEnforcement: an owner reference can cause the deletion of an object, and
//! `blockOwnerDeletion` can prevent the deletion of an owner. The user must be allowed to do both directly.

use std::borrow::Cow;

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, PluginFuture};
use crate::authorization::{self, Verdict};
use crate::storage::resource::split_api_version;

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let object = object.filter(|object| !is_exempt(attributes) && changes_owners(object, old))?;
    Some(Box::pin(check(attributes, object, old)))
}

/// A pod's status cannot change its owners.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.is_kind("", "Pod") && attributes.subresource == "status"
}

fn owners(object: &Tree) -> &[Tree] {
    object.list("metadata.ownerReferences")
}

fn changes_owners(object: &Tree, old: Option<&Tree>) -> bool {
    owners(object) != old.map_or(&[][..], owners)
}

/// References that block their owner's deletion now and did not before.
fn newly_blocking<'a>(object: &'a Tree, old: Option<&Tree>) -> Vec<&'a Tree> {
    let blocks = |owner: &&Tree| owner.bool("blockOwnerDeletion");
    let before = |owner: &&Tree| {
        let old = old.map_or(&[][..], owners);
        old.iter().filter(blocks).any(|other| other.str("uid") == owner.str("uid"))
    };
    owners(object).iter().filter(blocks).filter(|owner| !before(owner)).collect()
}

async fn check(attributes: &Attributes<'_>, object: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    // The creator of an object could have created it without the reference.
    if attributes.operation != Operation::Create {
        let kind = &attributes.resource.kind;
        let delete = authorization::Attributes {
            namespace: attributes.namespace,
            version: kind.version(),
            subresource: attributes.subresource,
            name: Cow::Borrowed(attributes.name),
            ..authorization::Attributes::resource(attributes.user, "delete", kind.group(), kind.plural())
        };
        let verdict = attributes.registry.authorizer.wait(&delete).await;
        refuse(attributes, &verdict, "cannot set an ownerRef on a resource you can't delete")?;
    }
    for owner in newly_blocking(object, old) {
        check_owner(attributes, owner).await?;
    }
    Ok(())
}

async fn check_owner(attributes: &Attributes<'_>, owner: &Tree) -> Result<(), Status> {
    let (group, version) = split_api_version(owner.str("apiVersion"));
    let Some(resource) = attributes.registry.storage.resources.find_kind(&group, &version, owner.str("kind")) else {
        return Err(attributes.forbidden(unknown_kind(owner, &group, &version)));
    };
    let kind = &resource.kind;
    let finalize = authorization::Attributes {
        namespace: if kind.namespaced { attributes.namespace } else { "" },
        version: kind.version(),
        subresource: "finalizers",
        name: Cow::Borrowed(owner.str("name")),
        ..authorization::Attributes::resource(attributes.user, "update", kind.group(), kind.plural())
    };
    let verdict = attributes.registry.authorizer.wait(&finalize).await;
    let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
    refuse(attributes, &verdict, why)
}

fn unknown_kind(owner: &Tree, group: &str, version: &str) -> String {
    let (api_version, kind) = (owner.str("apiVersion"), owner.str("kind"));
    format!(
        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind {kind:?} in version \"{group}/{version}\""
    )
}

fn refuse(attributes: &Attributes<'_>, verdict: &Verdict, why: &str) -> Result<(), Status> {
    if verdict.is_allowed() {
        return Ok(());
    }
    let error = verdict.error.as_deref().unwrap_or("<nil>");
    Err(attributes.forbidden(format!("{why}: {}, {error}", verdict.reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    #[test]
    fn only_new_blocks_are_judged() {
        let object = |owners: &str| json(&format!(r#"{{"metadata":{{"ownerReferences":[{owners}]}}}}"#));
        let (plain, blocking) = (r#"{"uid":"a"}"#, r#"{"uid":"a","blockOwnerDeletion":true}"#);
        let cases = [
            (object(""), None, false, 0),
            (object(plain), None, true, 0),
            (object(blocking), None, true, 1),
            (object(blocking), Some(object(plain)), true, 1),
            (object(blocking), Some(object(blocking)), false, 0),
            (object(""), Some(object(blocking)), true, 0),
        ];
        for (new, old, changes, count) in cases {
            assert_eq!(changes_owners(&new, old.as_ref()), changes, "{new:?}");
            assert_eq!(newly_blocking(&new, old.as_ref()).len(), count, "{new:?}");
        }
    }
}
