//! The verbs, each implemented once for all kinds.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;
pub(crate) mod watch;

use api::Tree;
use api::status::Status;

use crate::call::Call;
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::request::codec::{self, ExpectedType, Validation};
use crate::storage::resource::Resource;

/// The scope of a write by this call.
pub(crate) fn scope<'a>(
    registry: &'a Registry,
    resource: &'a Resource,
    call: &'a Call,
    dry_run: bool,
) -> Result<Scope<'a>, Status> {
    let user = call.caller.user.as_ref().ok_or_else(Status::unauthorized)?;
    Ok(Scope {
        registry,
        resource,
        user,
        namespace: if resource.kind.namespaced { &call.head.info.namespace } else { "" },
        subresource: &call.head.info.subresource,
        now: call.head.now,
        dry_run,
        origin: Some(call.origin()),
    })
}

/// Reads, checks, shapes and defaults the object in the body.
pub(crate) async fn read_object(call: &mut Call, resource: &Resource, options: &WriteOptions) -> Result<Tree, Status> {
    let expected = ExpectedType::of(&resource.kind);
    let mut object = read_expected(call, &expected, options).await?;
    resource.set_defaults(&mut object);
    Ok(object)
}

/// Reads, checks and shapes a body of any known kind.
pub(crate) async fn read_expected(
    call: &mut Call,
    expected: &ExpectedType<'_>,
    options: &WriteOptions,
) -> Result<Tree, Status> {
    read_adapted(call, expected, options, |_| Ok(())).await
}

/// Reads the body; `adapt` may change it before its kind is checked.
pub(crate) async fn read_adapted(
    call: &mut Call,
    expected: &ExpectedType<'_>,
    options: &WriteOptions,
    adapt: impl FnOnce(&mut Tree) -> Result<(), Status>,
) -> Result<Tree, Status> {
    let header = call.head.header(http::header::CONTENT_TYPE);
    let media = crate::request::negotiate::content_type(header, expected.table_type().is_some())?;
    let body = call.read_body().await?;
    let mut decoded = codec::decode_any_version(media, &body, expected)?;
    call.content.object = Some((media, body));
    adapt(&mut decoded.tree)?;
    if options.validation == Validation::Warn {
        codec::warn_of_other_version(&decoded.tree, expected, &mut call.warnings);
    }
    let decoded = codec::expect(decoded, expected)?;
    codec::conform(decoded, expected, options.validation, &mut call.warnings)
}

/// Checks that an object's namespace is that of the path. An empty namespace is set, and a cluster-scoped object loses
/// it.
pub(crate) fn check_namespace(object: &mut Tree, resource: &Resource, namespace: &str) -> Result<(), Status> {
    if !resource.kind.namespaced {
        object.remove_at("metadata.namespace");
        return Ok(());
    }
    let given = object.str("metadata.namespace");
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object.child("metadata").set("namespace", namespace);
    Ok(())
}
