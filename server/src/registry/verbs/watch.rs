//! Watches: a cursor into the resource's ring, written as the client takes it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use api::{Tree, json, tree};
use bytes::{Bytes, BytesMut};
use http::header;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::list::ListOptions;
use crate::call::{Answer, Call, answer};
use crate::fairness::Held;
use crate::registry::Registry;
use crate::registry::shape::{self, Shaping};
use crate::registry::{respond, websocket};
use crate::request::body::{Body, CHUNK_BYTES, Source, StreamBody};
use crate::request::head::RequestHead;
use crate::request::in_process::{LINE, Pieces};
use crate::request::negotiate::{self, Accepted, Media, NotAcceptable, Shape};
use crate::storage::cache::{Cache, Change, Format, Item, Position, Read, Selection, Snapshot};
use crate::storage::resource::{Resource, fill_hole};

/// A bookmark is sent this often.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn watch(registry: &Registry, resource: &Arc<Resource>, call: &mut Call) -> Result<Answer, Status> {
    let accepted = accepted(&call.head)?;
    let shaping = respond::shaping(&call.head, accepted)?;
    let options = ListOptions::parse(&call.head.query, resource.kind, true)?;
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
    let mut answer = answer(200, content_type, Body::Stream(StreamBody::new(watcher)));
    if pieces {
        answer.extensions_mut().insert(Pieces);
    }
    Ok(answer)
}

fn accepted(head: &RequestHead) -> Result<Accepted, Status> {
    let mut accepted = negotiate::accept(head.header(header::ACCEPT), true).map_err(|error| match error {
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
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &Call,
    options: &ListOptions,
    accepted: Accepted,
    shaping: Shaping,
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
    };
    let whole = matches!(accepted.shape, Shape::Plain | Shape::PartialObjectMetadata(_));
    if call.delivery.pieces && whole && accepted.media == Media::Json && resource.serves_stored_bytes() {
        watcher.pieces = Some(VecDeque::new());
    }
    watcher.begin(registry, options).await?;
    Ok(watcher)
}

/// The longest watch: clocks cannot count as far as a client can request.
const MAX_WATCH_SECONDS: u64 = 365 * 24 * 3600;

/// A watch that names no timeout gets between once and twice of the least, so that not all end at once.
fn deadline(registry: &Registry, options: &ListOptions) -> Instant {
    let least = registry.config.min_request_timeout.as_secs().max(1);
    let seconds = options.timeout_seconds.unwrap_or_else(|| least + crate::common::ids::below(least));
    Instant::now() + Duration::from_secs(seconds.min(MAX_WATCH_SECONDS))
}

/// How far a watch has come.
enum Stage {
    /// Objects that were there at the start, from this place on; then the ring.
    Initial {
        snapshot: Snapshot,
        next: Option<Arc<str>>,
        cursor: u64,
        end_bookmark: bool,
    },
    Following {
        cursor: u64,
    },
    /// One last event, then the end.
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
    shaping: Shaping,
    stage: Stage,
    bookmark_at: Option<Instant>,
    deadline: Instant,
    /// Fires at the next bookmark or at the deadline; reset only when it has fired.
    timer: Pin<Box<Sleep>>,
    wake: watch::Receiver<u64>,
    /// The sender wakes the watchers.
    closing: watch::Receiver<bool>,
    first_table: bool,
    /// Seats, until what was there at the start is sent.
    held: Option<Held>,
    /// The next piece, if objects are handed over as they are stored.
    pieces: Option<VecDeque<Bytes>>,
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
        self.covers(&item.key) && self.selection.matches(item, self.resource.stored)
    }

    /// The next piece of what was there at the start.
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

    /// What the ring has for this watcher; empty if nothing.
    fn following_chunk(&mut self, cursor: u64) -> Bytes {
        let found = if self.shares() {
            let (cache, namespace) = (self.cache.clone(), self.namespace.clone());
            let place = Position { cursor, encoding: self.encoding(), namespace: &namespace };
            cache.joined(place, || self.read_chunk(cursor))
        } else {
            self.read_chunk(cursor)
        };
        let Some((chunk, next)) = found else { return Bytes::new() };
        self.stage = Stage::Following { cursor: next };
        chunk
    }

    /// Whether other watchers may get the same bytes: selections and the columns of tables are each watcher's own.
    fn shares(&self) -> bool {
        let own = self.pieces.is_some() || matches!(self.accepted.shape, Shape::Table(_));
        self.selection.everything() && self.name.is_empty() && !own
    }

    fn read_chunk(&mut self, cursor: u64) -> Option<(Bytes, u64)> {
        match self.cache.read(cursor, CHUNK_BYTES) {
            Read::Empty => None,
            Read::Lost => {
                // Too slow: the client has to list and watch again.
                self.stage = Stage::Ended;
                None
            }
            Read::Changes(changes, next) => {
                let frames: Vec<Bytes> = changes.iter().filter_map(|change| self.change_frame(change)).collect();
                Some((join(&frames), next))
            }
        }
    }

    /// An object that leaves the selection is deleted for this watcher, one that enters it is added.
    fn change_frame(&mut self, change: &Change) -> Option<Bytes> {
        if !self.covers(&change.key) {
            return None;
        }
        let was = change.old.as_ref().filter(|item| self.selection.matches(item, self.resource.stored));
        let is = change.new.as_ref().filter(|item| self.selection.matches(item, self.resource.stored));
        let (event, item) = match (was, is) {
            (None, Some(new)) => ("ADDED", new),
            (Some(_), Some(new)) => ("MODIFIED", new),
            (Some(old), None) => ("DELETED", old),
            (None, None) => return None,
        };
        if matches!(self.accepted.shape, Shape::Table(_)) {
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
        let version = if self.resource.serves_stored_bytes() { 0 } else { 64 };
        self.accepted.code() + version
    }

    fn object_frame(&mut self, event: &'static str, item: &Item) -> Bytes {
        if matches!(self.accepted.shape, Shape::Table(_)) {
            return self.table_frame(event, item, item.revision);
        }
        self.plain_frame(event, item, item.revision)
    }

    fn plain_frame(&self, event: &str, item: &Item, revision: u64) -> Bytes {
        if self.accepted == Accepted::JSON && self.resource.serves_stored_bytes() {
            return json_frame(event, &with_revision(item, revision));
        }
        let mut object = self.resource.read(item);
        object.child("metadata").set("resourceVersion", revision.to_string());
        match shape::object(self.resource.kind, object, self.shaping) {
            Ok(tree) => self.tree_frame(event, &tree),
            Err(status) => self.tree_frame("ERROR", &status.to_tree()),
        }
    }

    fn table_frame(&mut self, event: &str, item: &Item, revision: u64) -> Bytes {
        let Shape::Table(version) = self.accepted.shape else { return Bytes::new() };
        let mut object = self.resource.read(item);
        object.child("metadata").set("resourceVersion", revision.to_string());
        let metadata = tree! { "resourceVersion" => revision.to_string() };
        let rows = vec![shape::row(self.resource.kind, object, version, self.shaping)];
        let columns = std::mem::take(&mut self.first_table);
        let table = shape::table(self.resource.kind, version, metadata, rows, columns);
        self.tree_frame(event, &table)
    }

    fn tree_frame(&self, event: &str, object: &Tree) -> Bytes {
        let (group, version) = crate::storage::resource::split_api_version(object.str("apiVersion"));
        let ty = api::schema::type_of(&group, &version, object.str("kind"));
        match (self.accepted.media, ty) {
            (Media::Protobuf, Some(ty)) => {
                Bytes::from(api::protobuf::watch_frame(event, &api::protobuf::encode(object, ty)))
            }
            _ => json_frame(event, &json::encode(object, ty)),
        }
    }

    fn bookmark(&mut self, revision: u64, end: bool) -> Bytes {
        let mut metadata = tree! { "resourceVersion" => revision.to_string() };
        if end {
            metadata.set("annotations", tree! { "k8s.io/initial-events-end" => "true" });
        }
        let kind = self.resource.kind;
        let mut object =
            tree! { "kind" => kind.kind, "apiVersion" => self.resource.api_version, "metadata" => metadata };
        if let Shape::Table(version) = self.accepted.shape {
            let metadata = tree! { "resourceVersion" => revision.to_string() };
            let row = shape::row(kind, object, version, self.shaping);
            let columns = std::mem::take(&mut self.first_table);
            let table = shape::table(kind, version, metadata, vec![row], columns);
            return self.tree_frame("BOOKMARK", &table);
        }
        if self.accepted.shape == Shape::Plain {
            api::typed::fill(&mut object, kind.schema());
        }
        match shape::object(kind, object, self.shaping) {
            Ok(tree) => self.tree_frame("BOOKMARK", &tree),
            Err(_) => Bytes::new(),
        }
    }

    /// The revision up to which the ring has been read.
    fn progress(&self, cursor: u64) -> Option<u64> {
        let revision = self.cache.global_revision();
        matches!(self.cache.read(cursor, 1), Read::Empty).then_some(revision)
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
            // What comes as bytes is a line; objects are among the pieces already.
            let line = self.next_chunk().await?;
            if !line.is_empty() {
                self.pieces.get_or_insert_default().push_back(line);
                return Some(Bytes::from_static(LINE.as_bytes()));
            }
        }
    }
}

impl Watcher {
    /// The next bytes; none where there are pieces instead.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match &self.stage {
                Stage::Ended => return None,
                Stage::Failed(status) => {
                    let frame = self.tree_frame("ERROR", &status.to_tree());
                    self.stage = Stage::Ended;
                    return Some(frame);
                }
                Stage::Initial { .. } => self.initial_chunk(),
                Stage::Following { cursor } => {
                    let cursor = *cursor;
                    self.wake.mark_unchanged();
                    self.following_chunk(cursor)
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

/// One frame is sent as it is.
fn join(frames: &[Bytes]) -> Bytes {
    if let [one] = frames {
        return one.clone();
    }
    let mut chunk = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
    frames.iter().for_each(|frame| chunk.extend_from_slice(frame));
    chunk.freeze()
}

fn too_old(asked: u64, floor: u64) -> Status {
    Status::gone(format!("too old resource version: {asked} ({floor})"))
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

fn json_frame(event: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + event.len() + 24);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(event.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    Bytes::from(frame)
}

/// The item's JSON with another revision: a deleted object carries that of its deletion.
fn with_revision(item: &Item, revision: u64) -> Bytes {
    if item.revision == revision {
        return item.bytes.clone();
    }
    const MARK: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    let Some(at) = memchr::memmem::find(&item.bytes, MARK) else { return item.bytes.clone() };
    let hole = at + MARK.len();
    let digits = item.bytes[hole..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut bytes = item.bytes[..hole].to_vec();
    bytes.extend_from_slice(&item.bytes[hole + digits..]);
    fill_hole(&bytes, hole, revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_object_carries_the_new_revision() {
        let item = Item::new("a", 7, Bytes::from(r#"{"kind":"A","metadata":{"resourceVersion":"7","name":"a"}}"#));
        assert_eq!(with_revision(&item, 1234), r#"{"kind":"A","metadata":{"resourceVersion":"1234","name":"a"}}"#);
        assert_eq!(json_frame("ADDED", b"{}"), "{\"type\":\"ADDED\",\"object\":{}}\n");
    }
}
