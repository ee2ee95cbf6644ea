//! Changes of objects by the server itself, through the one write path.

use api::Tree;
use api::status::Status;

use crate::common::users::system_user;
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::request::codec::Validation;

/// The object to change.
#[derive(Clone, Copy)]
pub(crate) struct Location<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub plural: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Changes an object, if `edit` changes it. `manager` owns the changed fields.
pub(crate) async fn edit_object(
    registry: &Registry,
    location: Location<'_>,
    subresource: &str,
    manager: &str,
    edit: impl Fn(&mut Tree) + Send + Sync,
) -> Result<(), Status> {
    let Location { group, version, plural, namespace, name } = location;
    let resource = registry.storage.resources.find(group, version, plural).ok_or_else(Status::no_resource)?;
    let user = system_user();
    let now = registry.now();
    let scope =
        Scope { registry, resource: &resource, user: &user, namespace, subresource, now, dry_run: false, origin: None };
    let options = own_options(manager);
    let changed = |old: &Tree| {
        let mut object = old.clone();
        edit(&mut object);
        scope.own_fields(Some(old), &mut object, &options);
        Ok(object)
    };
    scope.update(name, &mut Vec::new(), |old, _| changed(old)).await.map(|_| ())
}

/// The options of the server's own writes.
pub(crate) fn own_options(manager: &str) -> WriteOptions {
    WriteOptions { dry_run: false, field_manager: manager.to_string(), validation: Validation::Ignore, force: true }
}
