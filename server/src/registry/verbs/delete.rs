//! DELETE of one object or of a collection: preconditions, grace, finalizers, propagation.

use std::sync::Arc;

use crate::storage::kind::Kind;
use api::status::{Status, deleted};
use api::{Str, Tree, time};

use super::list::{self, ListOptions};
use super::scope;
use crate::call::{Call, HttpResponse};
use crate::common::join::{BoxedFuture, join_all};
use crate::registry::Registry;
use crate::registry::admission::{self, Attributes, Operation};
use crate::registry::conversion;
use crate::registry::options::{DeleteOptions, Propagation};
use crate::registry::write::{Outcome, Scope};
use crate::registry::{hooks, respond, shape};
use crate::request::codec::{self, ExpectedType, Validation};
use crate::request::negotiate::{Accepted, Representation};
use crate::storage::cache::Item;
use crate::storage::resource::Resource;
use crate::storage::store_status;

pub(crate) async fn delete(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = read_options(call).await?;
    let scope = scope(registry, resource, call, options.dry_run)?;
    let name = call.head.info.name.clone();
    let mut warnings = Vec::new();
    let result = delete_one(&scope, &name, &options, &mut warnings).await;
    call.warnings.append(&mut warnings);
    match result? {
        DeletionResult::Gone(object) if !resource.kind.lifecycle.returns_deleted => {
            let kind = &resource.kind;
            let tree = deleted(kind.group(), kind.plural(), &name, object.str("metadata.uid"));
            let accepted = Accepted { shape: Representation::Plain, ..respond::accepted(&call.head)? };
            Ok(respond::encoded(200, &tree, accepted))
        }
        DeletionResult::Gone(object) => respond::tree(&call.head, resource, 200, object),
        DeletionResult::Later(outcome) => respond::outcome(call, resource, 200, &outcome),
    }
}

async fn read_options(call: &mut Call) -> Result<DeleteOptions, Status> {
    let media = crate::request::negotiate::content_type(call.head.header(http::header::CONTENT_TYPE), true);
    let body = call.read_body().await?;
    if body.is_empty() {
        return DeleteOptions::parse(&call.head.query, None);
    }
    let expected = ExpectedType::named("", "v1", "DeleteOptions")
        .or_else(|| {
            let ty = api::schema::type_named("meta/v1", "DeleteOptions")?;
            Some(ExpectedType::new("", "v1", "DeleteOptions", ty))
        })
        .ok_or_else(|| Status::internal("DeleteOptions is not in the schema table"))?;
    let mut decoded = codec::decode_any_version(media?, &body, &expected).map_err(plain_message)?;
    let (version, kind) = (decoded.tree.str("apiVersion"), decoded.tree.str("kind"));
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            r#"no kind {kind:?} is registered for version {version:?} in scheme "pkg/apis/meta/internalversion/scheme/register.go:27""#
        )));
    }
    decoded.tree.set("apiVersion", "v1");
    let tree = codec::conform(decoded, &expected, Validation::Ignore, &mut call.warnings)?;
    DeleteOptions::parse(&call.head.query, Some(&tree))
}

/// Options are decoded without naming the expected kind.
fn plain_message(mut status: Status) -> Status {
    if let Some((_, rest)) = status.message.split_once("(must be of type DeleteOptions): ") {
        status.message = rest.rsplit_once(" (").map_or(rest, |(message, _)| message).to_string();
    }
    status
}

pub(crate) enum DeletionResult {
    /// The object as it was last.
    Gone(Tree),
    /// The object waits for finalizers or its grace period.
    Later(Outcome),
}

/// Deletes one object; retried after conflicts.
pub(crate) async fn delete_one(
    scope: &Scope<'_>,
    name: &str,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<DeletionResult, Status> {
    remove_object(scope, name, options, warnings, true).await
}

/// Deletes an object whose deletion was admitted under another name: an eviction.
pub(crate) async fn delete_admitted(
    scope: &Scope<'_>,
    name: &str,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<DeletionResult, Status> {
    remove_object(scope, name, options, warnings, false).await
}

async fn remove_object(
    scope: &Scope<'_>,
    name: &str,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
    judged: bool,
) -> Result<DeletionResult, Status> {
    let mut item = scope.current(name).await?;
    let mut begun = None;
    loop {
        let old = conversion::read(scope.registry, scope.resource, &item).await?;
        check_preconditions(scope.resource, &old, name, options)?;
        if judged {
            admit(scope, name, &old, options, warnings).await?;
        }
        let done = match plan(&scope.resource.kind, &old, options, scope.now) {
            Plan::Nothing => return Ok(DeletionResult::Later(Outcome::Imagined(old))),
            Plan::Remove => match remove(scope, name, old, &item).await? {
                Removal::Done(last) => Some(DeletionResult::Gone(last)),
                Removal::Begun(last) => {
                    begun = Some(last);
                    None
                }
                Removal::Lost => None,
            },
            Plan::Mark(object) => scope.replace_marked(name, *object, &item).await?.map(DeletionResult::Later),
        };
        if let Some(done) = done {
            warnings.extend(deletion_warning(&scope.resource.kind, options));
            return Ok(done);
        }
        let newest = scope.newest(name).await;
        if let Some(last) = begun.take_if(|last| is_gone(scope.resource, &newest, last)) {
            return Ok(DeletionResult::Gone(last));
        }
        item = newest?;
    }
}

/// Whether the object is deleted: its name is free, or another object has it.
fn is_gone(resource: &Resource, newest: &Result<Arc<Item>, Status>, last: &Tree) -> bool {
    match newest {
        Ok(item) => resource.read_stored(item).at("metadata").str("uid") != last.at("metadata").str("uid"),
        Err(status) => status.code == 404,
    }
}

/// How far a removal got, with the object as it was last.
enum Removal {
    Done(Tree),
    /// The object was written after it was marked, perhaps by its kubelet, which deletes it too.
    Begun(Tree),
    /// Another write was faster.
    Lost,
}

/// Removes the object from the store. A pod is first written with a grace period of zero: its kubelet watches for that.
async fn remove(scope: &Scope<'_>, name: &str, mut old: Tree, item: &Arc<Item>) -> Result<Removal, Status> {
    let mut revision = item.revision;
    if scope.resource.kind.lifecycle.grace_period.is_some() {
        if !old.at("metadata").has("deletionTimestamp") {
            mark(&scope.resource.kind, &mut old, 0, scope.now);
        }
        old.child("metadata").set("deletionGracePeriodSeconds", 0);
        match scope.replace_marked(name, old.clone(), item).await? {
            Some(Outcome::Stored(marked)) => revision = marked.revision,
            Some(Outcome::Imagined(object)) => return Ok(Removal::Done(object)),
            None => return Ok(Removal::Lost),
        }
    }
    if scope.dry_run {
        return Ok(Removal::Done(old));
    }
    match scope.delete_stored(name, &old, revision).await {
        Ok(revision) => {
            old.child("metadata").set("resourceVersion", revision.to_string());
            Ok(Removal::Done(old))
        }
        Err(store::Error::Conflict { .. }) if scope.resource.kind.lifecycle.grace_period.is_some() => {
            Ok(Removal::Begun(old))
        }
        Err(store::Error::Conflict { .. }) => Ok(Removal::Lost),
        Err(error) => Err(store_status(error)),
    }
}

async fn admit(
    scope: &Scope<'_>,
    name: &str,
    old: &Tree,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let attributes =
        Attributes { subresource: "", delete_options: Some(options), ..scope.attributes(Operation::Delete, name) };
    admission::mutate(&attributes, None, Some(old), warnings).await?;
    admission::validate(&attributes, None, Some(old), warnings).await
}

fn check_preconditions(resource: &Resource, old: &Tree, name: &str, options: &DeleteOptions) -> Result<(), Status> {
    let fail = |what: &str, requested: &str, there: &str, happened: &str| {
        let why = format!(
            "the {what} in the precondition ({requested}) does not match the {what} in record ({there}). The object might have been {happened}"
        );
        Err(Status::conflict(resource.kind.group(), resource.kind.kind(), name, &why))
    };
    let (uid, version) = (old.str("metadata.uid"), old.str("metadata.resourceVersion"));
    match (&options.uid, &options.resource_version) {
        (Some(requested), _) if requested != uid => fail("UID", requested, uid, "deleted and then recreated"),
        (_, Some(requested)) if requested != version => fail("ResourceVersion", requested, version, "modified"),
        _ => Ok(()),
    }
}

/// The effect of a deletion on an object.
enum Plan {
    Remove,
    /// The object is marked for deletion and stays.
    Mark(Box<Tree>),
    /// The object is already being deleted, and nothing changes.
    Nothing,
}

fn plan(kind: &Kind, old: &Tree, options: &DeleteOptions, now: i64) -> Plan {
    let mut object = old.clone();
    let pending = old.at("metadata").has("deletionTimestamp");
    let finalizers_changed = set_finalizers(kind, &mut object, options);
    let grace = grace_period(kind, old, options);
    let waits = !object.list("metadata.finalizers").is_empty() || hooks::waits_for_finalize(kind, &object);
    if pending {
        return plan_pending(kind, object, old, grace, finalizers_changed, waits, now);
    }
    if grace == 0 && !waits {
        return Plan::Remove;
    }
    mark(kind, &mut object, grace, now);
    Plan::Mark(Box::new(object))
}

/// A second deletion can only shorten the grace period or change the finalizers.
fn plan_pending(kind: &Kind, mut object: Tree, old: &Tree, grace: i64, changed: bool, waits: bool, now: i64) -> Plan {
    let left = old.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    if kind.lifecycle.grace_period.is_some() && grace < left {
        if grace == 0 && !waits {
            return Plan::Remove;
        }
        let meta = object.child("metadata");
        meta.set("deletionGracePeriodSeconds", grace);
        meta.set("deletionTimestamp", deletion_time(now, grace));
        return Plan::Mark(Box::new(object));
    }
    if !waits && left == 0 {
        return Plan::Remove;
    }
    if changed {
        return Plan::Mark(Box::new(object));
    }
    Plan::Nothing
}

fn mark(kind: &Kind, object: &mut Tree, grace: i64, now: i64) {
    let generation = object.int("metadata.generation").unwrap_or(0);
    let meta = object.child("metadata");
    meta.set("deletionTimestamp", deletion_time(now, grace));
    if !kind.lifecycle.spec_finalizers && kind.lifecycle.deletion_finalizer.is_none() {
        meta.set("deletionGracePeriodSeconds", grace);
    }
    if generation > 0 && kind.lifecycle.deletion_finalizer.is_none() {
        meta.set("generation", generation.saturating_add(1));
    }
    (kind.lifecycle.mark_deleted)(object);
}

/// The end of the year 9999 is the last time that clients can read.
const LAST_TIME: i64 = 253_402_300_799;

fn deletion_time(now: i64, grace: i64) -> Str {
    time::format_seconds(now.saturating_add(grace).min(LAST_TIME))
}

fn grace_period(kind: &Kind, old: &Tree, options: &DeleteOptions) -> i64 {
    kind.lifecycle.grace_period.map_or(0, |grace_period| grace_period(old, options.grace_period_seconds))
}

/// Adds or removes the garbage collector's finalizers; true if it changed any.
fn set_finalizers(kind: &Kind, object: &mut Tree, options: &DeleteOptions) -> bool {
    let before: Vec<String> =
        object.list("metadata.finalizers").iter().filter_map(Tree::as_str).map(str::to_string).collect();
    let had = |name: &str| before.iter().any(|finalizer| finalizer == name);
    let orphan = match options.propagation {
        Some(policy) => policy == Propagation::Orphan,
        None => had("orphan") || (!had("foregroundDeletion") && kind.lifecycle.orphans_by_default),
    };
    let foreground = match options.propagation {
        Some(policy) => policy == Propagation::Foreground,
        None => had("foregroundDeletion"),
    };
    let mut after: Vec<String> =
        before.iter().filter(|name| *name != "orphan" && *name != "foregroundDeletion").cloned().collect();
    if orphan && kind.lifecycle.has_dependents {
        after.push("orphan".to_string());
    }
    if foreground && kind.lifecycle.has_dependents {
        after.push("foregroundDeletion".to_string());
    }
    let is_pending = object.at("metadata").has("deletionTimestamp");
    after.extend(kind.lifecycle.deletion_finalizer.filter(|own| !is_pending && !had(own)).map(str::to_string));
    if after == before {
        return false;
    }
    let meta = object.child("metadata");
    if after.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.set("finalizers", Tree::List(after.into_iter().map(Tree::from).collect()));
    }
    true
}

fn deletion_warning(kind: &Kind, options: &DeleteOptions) -> Option<String> {
    kind.lifecycle.deletion_warning.filter(|_| options.propagation.is_none()).map(str::to_string)
}

impl Scope<'_> {
    /// Writes an object that is marked for deletion; None after a conflict.
    async fn replace_marked(&self, name: &str, mut object: Tree, item: &Arc<Item>) -> Result<Option<Outcome>, Status> {
        if self.dry_run {
            object.child("metadata").set("resourceVersion", item.revision.to_string());
            return Ok(Some(Outcome::Imagined(object)));
        }
        let stored = conversion::store(self.registry, self.resource, &object).await?;
        match self.put_at(name, stored.as_ref().unwrap_or(&object), item.revision).await {
            Ok(item) => conversion::show(self.registry, self.resource, Outcome::Stored(item)).await.map(Some),
            Err(store::Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(store_status(error)),
        }
    }
}

/// The number of concurrent deletions of a collection.
const SIDE_BY_SIDE: usize = 64;

pub(crate) async fn delete_collection(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(&call.head)?;
    let shaping = respond::shaping(&call.head, accepted)?;
    let list_options = ListOptions::parse(&call.head.query, &resource.kind, false)?;
    let options = read_options(call).await?;
    let listed = list::read(registry, resource, &call.head.info.namespace, "", &list_options).await?;
    // Concurrently: many deletions then share one commit.
    for items in listed.items.chunks(SIDE_BY_SIDE) {
        let mut each = Vec::with_capacity(items.len());
        for item in items {
            let mut scope = scope(registry, resource, call, options.dry_run)?;
            if resource.kind.namespaced {
                scope.namespace = item.namespace();
            }
            let (name, options) = (item.name(), &options);
            each.push(Box::pin(async move { delete_one(&scope, name, options, &mut Vec::new()).await })
                as BoxedFuture<'_, Result<DeletionResult, Status>>);
        }
        match join_all(each).await.into_iter().filter_map(Result::err).find(|status| status.code != 404) {
            None => {}
            Some(status) => return Err(status),
        }
    }
    let metadata = listed.metadata();
    let objects = conversion::read_all(registry, resource, &listed.items).await?;
    let tree = shape::list_of(&resource.kind, metadata, objects, shaping)?;
    Ok(respond::encoded(200, &tree, accepted))
}
