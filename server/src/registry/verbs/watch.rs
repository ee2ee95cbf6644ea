//! Watches: a cursor into the resource's ring, sent as fast as the client reads.

mod converted;
mod frames;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::status::Status;
use bytes::{Bytes, BytesMut};
use http::header;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::list::ListOptions;
use crate::call::{Call, HttpResponse, build_response};
use crate::fairness::ConcurrencyGuard;
use crate::registry::Registry;
use crate::registry::shape::RepresentationOptions;
use crate::registry::{conversion, respond, websocket};
use crate::request::body::{Body, CHUNK_BYTES, Source, StreamBody};
use crate::request::head::RequestHead;
use crate::request::in_process::{LINE, ObjectFrames};
use crate::request::negotiate::{self, Accepted, Media, NotAcceptable, Representation};
use crate::storage::cache::{Cache, Change, ChunkKey, Format, Item, RingRead, Selection, Snapshot};
use crate::storage::resource::Resource;
use frames::{join, with_revision};

/// A bookmark is sent this often.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn watch(
    registry: &Arc<Registry>,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let accepted = accepted(&call.head)?;
    let shaping = respond::shaping(&call.head, accepted)?;
    let options = ListOptions::parse(&call.head.query, &resource.kind, true)?;
    let mut watcher = start(registry, resource, call, &options, accepted, shaping).await?;
    watcher.held = call.seats.held.take();
    if websocket::is_upgrade(&call.head, &call.content) {
        return websocket::watch(&call.head, &mut call.content, watcher);
    }
    let content_type = match accepted.media {
        Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let pieces = watcher.pieces.is_some();
    let mut response = build_response(200, content_type, Body::Stream(StreamBody::new(watcher)));
    if pieces {
        response.extensions_mut().insert(ObjectFrames);
    }
    Ok(response)
}

fn accepted(head: &RequestHead) -> Result<Accepted, Status> {
    let mut accepted =
        negotiate::accept_typed(head.header(header::ACCEPT), true, !head.untyped).map_err(|error| match error {
            NotAcceptable::Media => NotAcceptable::WatchMedia,
            other => other,
        })?;
    accepted.pretty = false;
    if accepted.media == Media::Yaml {
        accepted.media = Media::Json;
    }
    Ok(accepted)
}

async fn start(
    registry: &Arc<Registry>,
    resource: &Arc<Resource>,
    call: &Call,
    options: &ListOptions,
    accepted: Accepted,
    shaping: RepresentationOptions,
) -> Result<Watcher, Status> {
    let cache = resource.cache()?.clone();
    let (deadline, bookmark_at) =
        (deadline(registry, options), options.bookmarks.then(|| Instant::now() + BOOKMARK_INTERVAL));
    let mut watcher = Watcher {
        wake: cache.subscribe(),
        resource: resource.clone(),
        namespace: if resource.kind.namespaced { call.head.info.namespace.clone() } else { String::new() },
        name: call.head.info.name.clone(),
        selection: options.selection.clone(),
        accepted,
        shaping,
        stage: Stage::Ended,
        bookmark_at,
        timer: Box::pin(tokio::time::sleep_until(deadline.min(bookmark_at.unwrap_or(deadline)))),
        deadline,
        closing: registry.closing.subscribe(),
        first_table: true,
        held: None,
        cache,
        pieces: None,
        registry: conversion::has_webhook(resource).then(|| registry.clone()),
        converted: HashMap::new(),
    };
    let whole = matches!(accepted.shape, Representation::Plain | Representation::PartialObjectMetadata(_));
    if call.delivery.pieces && whole && accepted.media == Media::Json && resource.serves_stored_bytes() {
        watcher.pieces = Some(VecDeque::new());
    }
    watcher.begin(registry, options).await?;
    watcher.convert_ahead().await.map_err(uninitialized)?;
    Ok(watcher)
}

/// The longest watch: clocks cannot count as far as a client can request.
const MAX_WATCH_SECONDS: u64 = 365 * 24 * 3600;

/// A watch without a timeout gets a random one between once and twice the minimum: not all watches must end at once.
fn deadline(registry: &Registry, options: &ListOptions) -> Instant {
    let least = registry.config.min_request_timeout.as_secs().max(1);
    let seconds = options.timeout_seconds.unwrap_or_else(|| least + crate::common::ids::below(least));
    Instant::now() + Duration::from_secs(seconds.min(MAX_WATCH_SECONDS))
}

/// The progress of a watch.
enum Stage {
    /// The initial objects, from this position on; then the ring.
    Initial {
        snapshot: Snapshot,
        next: Option<Arc<str>>,
        cursor: u64,
        end_bookmark: bool,
    },
    Following {
        cursor: u64,
    },
    /// A last event, then the end.
    Failed(Box<Status>),
    Ended,
}

pub(crate) struct Watcher {
    cache: Arc<Cache>,
    resource: Arc<Resource>,
    namespace: String,
    name: String,
    selection: Selection,
    accepted: Accepted,
    shaping: RepresentationOptions,
    stage: Stage,
    bookmark_at: Option<Instant>,
    deadline: Instant,
    /// Fires at the next bookmark or at the deadline; reset only when it has fired.
    timer: Pin<Box<Sleep>>,
    wake: watch::Receiver<u64>,
    /// The sender wakes the watchers.
    closing: watch::Receiver<bool>,
    first_table: bool,
    /// The seats, until the initial objects are sent.
    held: Option<ConcurrencyGuard>,
    /// The next piece, if objects are handed over as they are stored.
    pieces: Option<VecDeque<Bytes>>,
    /// For a resource with a conversion webhook: the registry that calls it, and the objects that it has converted.
    registry: Option<Arc<Registry>>,
    converted: HashMap<(Arc<str>, u64), Tree>,
}

impl Watcher {
    async fn begin(&mut self, registry: &Registry, options: &ListOptions) -> Result<(), Status> {
        let version = options.resource_version.as_str();
        let revision: u64 = parse_version(version)?;
        let initial = options.send_initial_events.unwrap_or(revision == 0);
        if initial {
            if version.is_empty() {
                registry.storage.catch_up().await?;
            } else {
                registry.storage.wait_for_version(version).await?;
            }
            let (snapshot, cursor) = self.cache.snapshot_and_cursor();
            let end_bookmark = options.send_initial_events == Some(true) && options.bookmarks;
            self.stage = Stage::Initial { snapshot, next: None, cursor, end_bookmark };
            return Ok(());
        }
        let after = if revision == 0 { self.cache.snapshot().revision } else { revision };
        self.stage = match self.cache.cursor(after) {
            Some(cursor) => Stage::Following { cursor },
            None => Stage::Failed(Box::new(too_old(after, self.cache.floor()))),
        };
        Ok(())
    }

    pub(crate) fn media(&self) -> Media {
        self.accepted.media
    }

    fn covers(&self, key: &str) -> bool {
        let in_namespace =
            self.namespace.is_empty() || key.strip_prefix(&*self.namespace).is_some_and(|rest| rest.starts_with('/'));
        in_namespace && (self.name.is_empty() || key.rsplit('/').next() == Some(&self.name))
    }

    fn selects(&self, item: &Item) -> bool {
        self.covers(&item.key) && self.selection.matches(item, &self.resource)
    }

    /// The next chunk of initial objects.
    fn initial_chunk(&mut self) -> Bytes {
        let Stage::Initial { snapshot, next, cursor, end_bookmark } = std::mem::replace(&mut self.stage, Stage::Ended)
        else {
            return Bytes::new();
        };
        let mut chunk = BytesMut::new();
        let start = next.unwrap_or_else(|| {
            Arc::from(if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) })
        });
        let mut rest = None;
        for (key, item) in snapshot.map.range(start..) {
            if !self.namespace.is_empty() && !self.covers_namespace(key) {
                break;
            }
            if chunk.len() >= CHUNK_BYTES {
                rest = Some(key.clone());
                break;
            }
            if !self.selects(item) {
                continue;
            }
            if let Some(pieces) = &mut self.pieces {
                pieces.extend([Bytes::from_static(b"ADDED"), item.bytes.clone()]);
                continue;
            }
            let frame = self.object_frame("ADDED", item);
            chunk.extend_from_slice(&frame);
        }
        if rest.is_some() {
            self.stage = Stage::Initial { snapshot, next: rest, cursor, end_bookmark };
            return chunk.freeze();
        }
        if end_bookmark {
            chunk.extend_from_slice(&self.bookmark(snapshot.revision, true));
        }
        self.stage = Stage::Following { cursor };
        chunk.freeze()
    }

    fn covers_namespace(&self, key: &str) -> bool {
        key.strip_prefix(&*self.namespace).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The next events of the ring for this watcher; empty if there are none.
    fn following_chunk(&mut self, cursor: u64) -> Bytes {
        let found = if self.shares() {
            let (cache, namespace) = (self.cache.clone(), self.namespace.clone());
            let place = ChunkKey { cursor, encoding: self.encoding(), namespace: &namespace };
            cache.joined(place, || self.read_chunk(cursor))
        } else {
            self.read_chunk(cursor)
        };
        let Some((chunk, next)) = found else { return Bytes::new() };
        self.stage = Stage::Following { cursor: next };
        chunk
    }

    /// Whether other watchers may get the same bytes: selections and table columns are specific to a watcher.
    fn shares(&self) -> bool {
        let own =
            self.pieces.is_some() || self.registry.is_some() || matches!(self.accepted.shape, Representation::Table(_));
        self.selection.everything() && self.name.is_empty() && !own
    }

    fn read_chunk(&mut self, cursor: u64) -> Option<(Bytes, u64)> {
        match self.cache.read(cursor, CHUNK_BYTES) {
            RingRead::Empty => None,
            RingRead::Lost => {
                // Too slow: the client has to list and watch again.
                self.stage = Stage::Ended;
                None
            }
            RingRead::Changes(changes, next) => {
                let frames: Vec<Bytes> = changes.iter().filter_map(|change| self.change_frame(change)).collect();
                Some((join(&frames), next))
            }
        }
    }

    /// The event for this watcher: an object that leaves the selection is deleted, an object that enters it is added.
    fn change_frame(&mut self, change: &Change) -> Option<Bytes> {
        if !self.covers(&change.key) {
            return None;
        }
        let was = change.old.as_ref().filter(|item| self.selection.matches(item, &self.resource));
        let is = change.new.as_ref().filter(|item| self.selection.matches(item, &self.resource));
        let (event, item) = match (was, is) {
            (None, Some(new)) => ("ADDED", new),
            (Some(_), Some(new)) => ("MODIFIED", new),
            (Some(old), None) => ("DELETED", old),
            (None, None) => return None,
        };
        if matches!(self.accepted.shape, Representation::Table(_)) {
            return Some(self.table_frame(event, item, change.revision));
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.extend([Bytes::from_static(event.as_bytes()), with_revision(item, change.revision)]);
            return None;
        }
        let format = Format { event, encoding: self.encoding() };
        Some(change.frame(format, || self.plain_frame(event, item, change.revision)))
    }

    /// Kinds over the same ring differ in version: the resource's address distinguishes them.
    fn encoding(&self) -> u32 {
        self.accepted.code() + 64 * self.resource.code()
    }

    /// The revision up to which the ring has been read.
    fn progress(&self, cursor: u64) -> Option<u64> {
        let revision = self.cache.global_revision();
        matches!(self.cache.read(cursor, 1), RingRead::Empty).then_some(revision)
    }

    /// Waits for a change, a bookmark's time or the end. False ends the watch.
    async fn wait(&mut self) -> bool {
        if *self.closing.borrow() {
            return false;
        }
        tokio::select! {
            biased;
            changed = self.wake.changed() => changed.is_ok(),
            () = &mut self.timer => Instant::now() < self.deadline,
        }
    }
}

impl Source for Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        if self.pieces.is_none() {
            return self.next_chunk().await;
        }
        loop {
            if let Some(piece) = self.pieces.as_mut().and_then(VecDeque::pop_front) {
                return Some(piece);
            }
            // Bytes are a line; objects are already among the pieces.
            let line = self.next_chunk().await?;
            if !line.is_empty() {
                self.pieces.get_or_insert_default().push_back(line);
                return Some(Bytes::from_static(LINE.as_bytes()));
            }
        }
    }
}

impl Watcher {
    fn stage_chunk(&mut self) -> Bytes {
        match &self.stage {
            Stage::Initial { .. } => self.initial_chunk(),
            Stage::Following { cursor } => self.following_chunk(*cursor),
            Stage::Failed(_) | Stage::Ended => Bytes::new(),
        }
    }

    /// The next bytes; None if the stream has pieces instead.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match &self.stage {
                Stage::Ended => return None,
                Stage::Failed(status) => {
                    let frame = self.tree_frame("ERROR", &status.to_tree());
                    self.stage = Stage::Ended;
                    return Some(frame);
                }
                Stage::Initial { .. } | Stage::Following { .. } => {
                    self.wake.mark_unchanged();
                    match self.convert_ahead().await {
                        Ok(()) => self.stage_chunk(),
                        Err(status) => {
                            self.stage = Stage::Failed(Box::new(status));
                            continue;
                        }
                    }
                }
            };
            if !chunk.is_empty() || self.pieces.as_ref().is_some_and(|pieces| !pieces.is_empty()) {
                return Some(chunk);
            }
            let Stage::Following { cursor } = self.stage else { continue };
            // The initial objects are sent: from here on the watch holds no seat.
            self.held = None;
            if self.bookmark_at.is_some_and(|at| Instant::now() >= at) {
                let next = Instant::now() + BOOKMARK_INTERVAL;
                self.bookmark_at = Some(next);
                self.timer.as_mut().reset(next.min(self.deadline));
                if let Some(revision) = self.progress(cursor) {
                    return Some(self.bookmark(revision, false));
                }
            }
            if !self.wait().await {
                return None;
            }
        }
    }
}

/// A watch whose initial objects cannot be converted does not begin: the client retries.
fn uninitialized(why: Status) -> Status {
    let text = format!("storage is (re)initializing: failed to list <unspecified>: {}", why.message);
    Status::too_many_requests(text, 1)
}

fn too_old(requested: u64, floor: u64) -> Status {
    Status::gone(format!("too old resource version: {requested} ({floor})"))
}

fn parse_version(version: &str) -> Result<u64, Status> {
    if version.is_empty() {
        return Ok(0);
    }
    version.parse().map_err(|_| {
        let why = format!(
            "resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"
        );
        Status::new(500, "", why)
    })
}
