//! The one write path: every object that is created, changed or deleted passes through here, whatever its kind and
//! user.

mod empties;
mod meta;

use std::sync::Arc;

use api::field::Errors;
use api::status::Status;
use api::{Str, Tree, apply, time};
use kinds::{Context, User};
use store::{Durability, Op, Precondition, Template, Write as StoreWrite};

use crate::authorization;
use crate::call::Origin;
use crate::common::deadline::Deadline;
use crate::registry::Registry;
use crate::registry::admission::{self, Attributes, Operation, resource_quota};
use crate::registry::cause::Cause;
use crate::registry::options::WriteOptions;
use crate::registry::versions::Versions;
use crate::registry::{announce, conversion, device_claims, escalation, hooks, initializers, policy_params};
use crate::storage::cache::Item;
use crate::storage::fence;
use crate::storage::resource::{Resource, fill_hole};
use crate::storage::store_status;
pub(crate) use meta::finished;
use meta::{
    begin_create, check_depth, dedup_owners, generate_name, keep_deletion, keep_system_metadata, name_timeout,
    wipe_system_fields,
};

/// The context of a write: user, resource and namespace.
pub(crate) struct Scope<'a> {
    pub registry: &'a Registry,
    pub resource: &'a Resource,
    pub user: &'a User,
    pub namespace: &'a str,
    /// "" or the subresource through which the object is written.
    pub subresource: &'a str,
    pub now: i64,
    pub dry_run: bool,
    /// The request of the write; None for writes of the server itself.
    pub origin: Option<Origin<'a>>,
}

/// An object after a write: as it is stored, or as it would be (dry run).
#[derive(Clone)]
pub(crate) enum Outcome {
    Stored(Arc<Item>),
    Imagined(Tree),
}

impl Outcome {
    pub(crate) fn tree(&self, resource: &Resource) -> Tree {
        match self {
            Outcome::Stored(item) => resource.read(item),
            Outcome::Imagined(tree) => tree.clone(),
        }
    }
}

/// How often a write is retried after a conflict.
const MAX_TRIES: usize = 64;
/// How often a change is repeated because its managed fields had to be converted.
const MAX_CONVERSIONS: usize = 4;

impl<'a> Scope<'a> {
    pub(crate) fn context(&self) -> Context<'a> {
        Context { now: self.now, user: self.user }
    }

    /// When the request has to be complete; none for a write of the server itself.
    pub(crate) fn deadline(&self) -> Deadline {
        self.origin.map_or(Deadline::NONE, |origin| origin.deadline)
    }

    /// The attributes of this write for admission.
    pub(crate) fn attributes<'b>(&'b self, operation: Operation, name: &'b str) -> Attributes<'b> {
        Attributes {
            registry: self.registry,
            resource: self.resource,
            operation,
            namespace: self.namespace,
            name,
            subresource: self.subresource,
            user: self.user,
            dry_run: self.dry_run,
            origin: self.origin,
            delete_options: None,
            rounds: Default::default(),
        }
    }

    /// Creates an object that has been decoded, shaped and defaulted.
    pub(crate) async fn create(
        &self,
        mut object: Tree,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        self.check_refused(&object)?;
        wipe_system_fields(&mut object);
        dedup_owners(&mut object, warnings);
        let lent = hooks::lend_labels(&self.resource.kind, &mut object);
        self.own_fields(None, &mut object, options);
        if lent {
            object.child("metadata").remove("labels");
        }
        self.create_owned(object, warnings).await
    }

    /// Creates an object that already has its managed fields: the outcome of an apply.
    pub(crate) async fn create_applied(&self, object: Tree, warnings: &mut Vec<String>) -> Result<Outcome, Status> {
        self.check_refused(&object)?;
        self.create_owned(object, warnings).await
    }

    /// Rejects a kind whose implementation is missing: nothing is accepted and ignored.
    fn check_refused(&self, object: &Tree) -> Result<(), Status> {
        let kind = &self.resource.kind;
        match kind.refusal(object) {
            Some(why) => Err(Status::forbidden(kind.group(), kind.plural(), object.str("metadata.name"), why)),
            None => Ok(()),
        }
    }

    async fn create_owned(&self, mut object: Tree, warnings: &mut Vec<String>) -> Result<Outcome, Status> {
        let generated = begin_create(&mut object, self)?;
        for attempt in 0.. {
            // Only a generated name is retried: otherwise the object is not needed any more.
            let mut fresh = if generated { object.clone() } else { std::mem::take(&mut object) };
            if generated {
                generate_name(&mut fresh);
            }
            match self.create_named(fresh, warnings).await {
                Err(status) if generated && status.reason == "AlreadyExists" && attempt < 7 => continue,
                Err(status) if generated && status.reason == "AlreadyExists" => {
                    return Err(name_timeout(self.resource, status));
                }
                other => return other,
            }
        }
        Err(Status::internal("failed to generate a name"))
    }

    async fn create_named(&self, mut object: Tree, warnings: &mut Vec<String>) -> Result<Outcome, Status> {
        let kind = &self.resource.kind;
        let name = Str::new(object.str("metadata.name"));
        let attributes = self.attributes(Operation::Create, &name);
        admission::mutate(&attributes, Some(&mut object), None, warnings).await?;
        crate::registry::verbs::check_namespace(&mut object, self.resource, self.namespace)?;
        // A webhook may have renamed it.
        let name = Str::new(object.str("metadata.name"));
        let attributes = self.attributes(Operation::Create, &name);
        escalation::check(self, &name, &object, None).await?;
        announce::check(self, &name, &object, None).await?;
        kind.prepare_create(&mut object, &self.context());
        hooks::complete(self, &mut object, None)?;
        kind.fill(&mut object);
        let mut errors = Errors::new();
        device_claims::check(self, &object, None, &mut errors).await;
        kind.validate_create(&object, self.deadline(), &mut errors);
        self.deadline().check()?;
        warnings.extend_from_slice(errors.warnings());
        if errors.is_empty() {
            policy_params::check(self, &object, None, &mut errors).await;
        }
        // Addresses and ports are claimed only after validation, in the same commit.
        if !errors.is_empty() {
            return Err(self.invalid(&object, &name, &errors));
        }
        warnings.extend(kind.warnings(&object, None));
        self.authorize_create(&name).await?;
        admission::validate(&attributes, Some(&object), None, warnings).await?;
        check_depth(&object)?;
        let outcome = self.insert(&name, object).await?;
        hooks::wait_until_settled(self, &name).await;
        initializers::wait(self, outcome).await
    }

    /// An apply or a PUT that creates was authorized as `patch` or `update` only.
    async fn authorize_create(&self, name: &str) -> Result<(), Status> {
        match self.origin {
            Some(Origin { head, .. }) if head.info.verb != "create" => {
                authorization::authorize_create(&self.registry.authorizer, self.user, (&head.info, &head.query), name)
                    .await
            }
            _ => Ok(()),
        }
    }

    async fn insert(&self, name: &str, mut object: Tree) -> Result<Outcome, Status> {
        let kind = &self.resource.kind;
        let exists = || Status::already_exists(kind.group(), kind.plural(), name);
        let cache = self.resource.cache()?;
        if let Some(item) = cache.get(&self.resource.key(self.namespace, name)) {
            return Err(hooks::exists(&item.tree(), exists()));
        }
        let _turn = resource_quota::lock_namespace(self, None).await;
        for _ in 0..MAX_TRIES {
            // A claim writes into the object: a retry must start without its values.
            let mut scratch = kind.lifecycle.allocates.then(|| object.clone());
            let fresh = scratch.as_mut().unwrap_or(&mut object);
            let claims = hooks::claim_create(self, name, fresh)?;
            let stored = conversion::store(self.registry, self.resource, fresh).await?;
            if self.dry_run {
                let object = conversion::restore(self.registry, self.resource, stored, fresh.take()).await?;
                return Ok(Outcome::Imagined(object));
            }
            let write = self.put(name, stored.as_ref().unwrap_or(fresh), Precondition::Absent);
            match self.commit(claims.writes(), write).await {
                Ok(item) => return conversion::show(self.registry, self.resource, Outcome::Stored(item)).await,
                Err(store::Error::Conflict { write, .. }) if write == claims.writes().len() => return Err(exists()),
                // Another write has claimed an address or charged a quota: the next attempt uses the new state.
                Err(store::Error::Conflict { current, .. }) => self.settle(current).await?,
                Err(error) => return Err(store_status(error)),
            }
        }
        Err(Status::internal("failed to allocate what the object claims"))
    }

    pub(crate) fn put(&self, name: &str, object: &Tree, expect: Precondition) -> StoreWrite {
        let (bytes, hole) = self.resource.encode(object);
        StoreWrite {
            op: Op::Put(Template { bytes, hole: Some(hole) }),
            durability: hooks::durability(&self.resource.kind, object, None),
            ..self.bare(name, expect)
        }
    }

    /// A write to this object's key, still without content.
    pub(crate) fn bare(&self, name: &str, expect: Precondition) -> StoreWrite {
        StoreWrite {
            key: self.resource.store_key(self.namespace, name),
            op: Op::Delete,
            expect,
            durability: Durability::Durable,
            ttl: self.resource.kind.lifecycle.expires.then_some(self.registry.config.event_ttl),
            cause: self.cause(),
        }
    }

    /// Upstream names the kind in whose form the object is stored.
    fn invalid(&self, object: &Tree, name: &str, errors: &Errors) -> Status {
        let (group, kind) = self.resource.stored_kind();
        // A custom resource is named as it names itself.
        let kind = if self.resource.kind.definition().is_some() { object.str("kind") } else { kind };
        match (self.origin.and_then(|origin| origin.object), self.resource.table_type()) {
            (Some((media, body)), Some(ty)) => {
                Status::invalid(group, kind, name, &empties::restore(errors, ty, *media, body))
            }
            _ => Status::invalid(group, kind, name, errors),
        }
    }

    /// The lease that fences this write, if the client sent one.
    fn fence(&self) -> Option<&str> {
        self.origin.and_then(|origin| origin.head.header(fence::HEADER))
    }

    /// The cause that the store keeps beside the value.
    fn cause(&self) -> Vec<u8> {
        match self.registry.config.records_causes {
            true => Cause::new(self.user, self.origin).encode(),
            false => Vec::new(),
        }
    }

    /// Commits the object's write after its claims, and returns the stored object.
    async fn commit(&self, claims: &[StoreWrite], write: StoreWrite) -> Result<Arc<Item>, store::Error> {
        let mut writes = claims.to_vec();
        writes.push(write);
        let committed = fence::commit(&self.registry.storage, self.fence(), writes).await?;
        let entry =
            committed.into_iter().next_back().and_then(|committed| committed.entry).ok_or(store::Error::Closed)?;
        let key = entry.key.strip_prefix(self.resource.store_prefix()).unwrap_or(&entry.key);
        let cached = self.resource.cache.as_ref().and_then(|cache| cache.get(key));
        // The object may have been written again already: then the entry itself is returned.
        if let Some(item) = cached.filter(|item| item.revision == entry.revision) {
            return Ok(item);
        }
        let bytes = self.registry.storage.adopt(&entry).ok_or(store::Error::Closed)?;
        Ok(Arc::new(Item::new(key, entry.revision, bytes)))
    }

    /// Managed fields after a write other than apply.
    pub(crate) fn own_fields(&self, live: Option<&Tree>, object: &mut Tree, options: &WriteOptions) {
        let reset = self.resource.reset(self.subresource);
        let versions = Versions::new(self.registry, self.resource);
        let request = apply::Request {
            manager: &options.field_manager,
            api_version: self.resource.api_version(),
            subresource: self.subresource,
            now: time::format_seconds(self.now),
            reset: Some(reset),
            versions: &versions,
        };
        apply::update(live, object, &request);
    }

    /// The stored object, or NotFound.
    pub(crate) async fn current(&self, name: &str) -> Result<Arc<Item>, Status> {
        let found = self.registry.storage.read(self.resource, self.namespace, name).await?;
        found.ok_or_else(|| self.resource.not_found(name))
    }

    /// The same, in this resource's version.
    pub(crate) async fn current_object(&self, name: &str) -> Result<Tree, Status> {
        let item = self.current(name).await?;
        conversion::read(self.registry, self.resource, &item).await
    }

    /// Updates the stored object: `change` gets it and returns the new one, shaped and defaulted. Conflicts are retried
    /// with the newest state, unless `change` returns an error.
    pub(crate) async fn update<F>(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        mut change: F,
    ) -> Result<Outcome, Status>
    where
        F: FnMut(&Tree, &Arc<Item>) -> Result<Tree, Status> + Send,
    {
        let mut item = self.current(name).await?;
        for _ in 0..MAX_TRIES {
            let old = conversion::read(self.registry, self.resource, &item).await?;
            let mut fresh = change(&old, &item)?;
            for _ in 0..MAX_CONVERSIONS {
                if !conversion::fetch_missing(self.registry, self.resource, &old).await {
                    break;
                }
                fresh = change(&old, &item)?;
            }
            let mut new_warnings = Vec::new();
            dedup_owners(&mut fresh, &mut new_warnings);
            let replaced = match self.judge_update(name, fresh, &old, &mut new_warnings).await {
                Ok(object) => self.replace(name, object, &old, &item).await,
                Err(status) => Err(status),
            };
            if matches!(replaced, Ok(ReplaceResult::Lost)) {
                item = self.newest(name).await?;
                continue;
            }
            // The client sees the warnings of an attempt that fails, too.
            warnings.append(&mut new_warnings);
            if let ReplaceResult::Done(outcome) = replaced? {
                let outcome = conversion::show(self.registry, self.resource, outcome).await?;
                initializers::remove_failed(self, name, &outcome).await?;
                return Ok(outcome);
            }
        }
        let kind = &self.resource.kind;
        Err(Status::conflict(kind.group(), kind.plural(), name, MODIFIED))
    }

    pub(crate) async fn newest(&self, name: &str) -> Result<Arc<Item>, Status> {
        let found = self.registry.storage.read_stored(self.resource, self.namespace, name).await?;
        found.ok_or_else(|| self.resource.not_found(name))
    }

    /// Admission, prepare and validation of a changed object.
    async fn judge_update(
        &self,
        name: &str,
        mut object: Tree,
        old: &Tree,
        warnings: &mut Vec<String>,
    ) -> Result<Tree, Status> {
        let kind = &self.resource.kind;
        let attributes = self.attributes(Operation::Update, name);
        admission::mutate(&attributes, Some(&mut object), Some(old), warnings).await?;
        crate::registry::verbs::check_namespace(&mut object, self.resource, self.namespace)?;
        escalation::check(self, name, &object, Some(old)).await?;
        announce::check(self, name, &object, Some(old)).await?;
        keep_system_metadata(&mut object, old);
        let mut errors = Errors::new();
        hooks::prepare_update(self, &mut object, old)?;
        // The client's status of a pod does not contain its deletion.
        keep_deletion(&mut object, old);
        hooks::complete(self, &mut object, Some(old))?;
        kind.fill(&mut object);
        device_claims::check(self, &object, Some(old), &mut errors).await;
        kind.validate_metadata_update(&object, old, &mut errors);
        hooks::validate_update(self, &object, old, &mut errors);
        self.deadline().check()?;
        warnings.extend_from_slice(errors.warnings());
        if errors.is_empty() {
            policy_params::check(self, &object, Some(old), &mut errors).await;
        }
        if !errors.is_empty() {
            return Err(self.invalid(&object, name, &errors));
        }
        warnings.extend(match self.subresource {
            "status" => kind.status_warnings(&object, old),
            _ => kind.warnings(&object, Some(old)),
        });
        admission::validate(&attributes, Some(&object), Some(old), warnings).await?;
        apply::keep_timestamps(old, &mut object);
        check_depth(&object)?;
        Ok(object)
    }

    async fn replace(
        &self,
        name: &str,
        mut object: Tree,
        old: &Tree,
        item: &Arc<Item>,
    ) -> Result<ReplaceResult, Status> {
        if finished(&object) {
            return self.remove(name, object, item).await;
        }
        let _turn = resource_quota::lock_namespace(self, Some(old)).await;
        let claims = hooks::claim_update(self, name, &mut object, old)?;
        let stored = conversion::store(self.registry, self.resource, &object).await?;
        let (bytes, hole) = self.resource.encode(stored.as_ref().unwrap_or(&object));
        if fill_hole(&bytes, hole, item.revision) == item.bytes && !self.is_stale(name) {
            return Ok(ReplaceResult::Done(Outcome::Stored(item.clone())));
        }
        if self.dry_run {
            object.child("metadata").set("resourceVersion", item.revision.to_string());
            return Ok(ReplaceResult::Done(Outcome::Imagined(object)));
        }
        let write = StoreWrite {
            op: Op::Put(Template { bytes, hole: Some(hole) }),
            durability: hooks::durability(&self.resource.kind, &object, Some(old)),
            ..self.bare(name, Precondition::Revision(item.revision))
        };
        match self.commit(claims.writes(), write).await {
            Ok(stored) => Ok(ReplaceResult::Done(Outcome::Stored(stored))),
            Err(store::Error::Conflict { current, .. }) => {
                self.settle(current).await?;
                Ok(ReplaceResult::Lost)
            }
            Err(error) => Err(store_status(error)),
        }
    }

    /// A value that was encrypted with an older key is rewritten even if it stays the same.
    fn is_stale(&self, name: &str) -> bool {
        let encryption = self.registry.config.encryption.as_ref();
        encryption.is_some_and(|encryption| encryption.is_stale(&self.resource.store_key(self.namespace, name)))
    }

    /// Waits until the caches contain the conflicting write, which may not be on disk yet.
    async fn settle(&self, current: Option<Arc<store::Entry>>) -> Result<(), Status> {
        match current {
            Some(entry) => self.registry.storage.wait_for_revision(entry.revision).await,
            None => self.registry.storage.catch_up().await,
        }
    }

    /// Deletes an object whose last finalizer was removed.
    async fn remove(&self, name: &str, mut object: Tree, item: &Arc<Item>) -> Result<ReplaceResult, Status> {
        object.child("metadata").set("resourceVersion", item.revision.to_string());
        if self.dry_run {
            return Ok(ReplaceResult::Done(Outcome::Imagined(object)));
        }
        match self.delete_stored(name, &object, item.revision).await {
            Ok(_) => Ok(ReplaceResult::Done(Outcome::Imagined(object))),
            Err(store::Error::Conflict { .. }) => Ok(ReplaceResult::Lost),
            Err(error) => Err(store_status(error)),
        }
    }

    /// Overwrites the object of this revision, without changing the new one.
    pub(crate) async fn put_at(&self, name: &str, object: &Tree, revision: u64) -> Result<Arc<Item>, store::Error> {
        self.commit(&[], self.put(name, object, Precondition::Revision(revision))).await
    }

    /// Deletes what is stored, if it is still of this revision, and what the object had claimed.
    pub(crate) async fn delete_stored(&self, name: &str, object: &Tree, revision: u64) -> Result<u64, store::Error> {
        // The object first: a reader that misses one of its claims must not find the object afterwards, or it would
        // repair a released claim.
        let mut writes = vec![self.bare(name, Precondition::Revision(revision))];
        writes.extend(hooks::release(self, object));
        let committed = fence::commit(&self.registry.storage, self.fence(), writes).await?;
        Ok(committed.first().map_or(revision, |committed| committed.revision))
    }
}

pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

enum ReplaceResult {
    Done(Outcome),
    /// Another write was faster.
    Lost,
}
