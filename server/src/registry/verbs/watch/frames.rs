//! The frames of a watch: one event each, in the client's media type and representation.

use api::{Tree, json, tree};
use bytes::{Bytes, BytesMut};

use super::Watcher;
use crate::registry::shape;
use crate::request::negotiate::{Accepted, Media, Representation};
use crate::storage::cache::Item;
use crate::storage::resource::fill_hole;

impl Watcher {
    pub(super) fn object_frame(&mut self, event: &'static str, item: &Item) -> Bytes {
        if matches!(self.accepted.shape, Representation::Table(_)) {
            return self.table_frame(event, item, item.revision);
        }
        self.plain_frame(event, item, item.revision)
    }

    pub(super) fn plain_frame(&self, event: &str, item: &Item, revision: u64) -> Bytes {
        if self.accepted == Accepted::JSON && self.resource.serves_bytes_of(item) {
            return json_frame(event, &with_revision(item, revision));
        }
        let mut object = self.object_of(item);
        object.child("metadata").set("resourceVersion", revision.to_string());
        match shape::object(&self.resource.kind, object, self.shaping) {
            Ok(tree) => self.tree_frame(event, &tree),
            Err(status) => self.tree_frame("ERROR", &status.to_tree()),
        }
    }

    pub(super) fn table_frame(&mut self, event: &str, item: &Item, revision: u64) -> Bytes {
        let Representation::Table(version) = self.accepted.shape else { return Bytes::new() };
        let mut object = self.object_of(item);
        object.child("metadata").set("resourceVersion", revision.to_string());
        let metadata = tree! { "resourceVersion" => revision.to_string() };
        let rows = vec![shape::row(&self.resource.kind, object, version, self.shaping)];
        let columns = std::mem::take(&mut self.first_table);
        let table = shape::table(&self.resource.kind, version, metadata, rows, columns);
        self.tree_frame(event, &table)
    }

    pub(super) fn tree_frame(&self, event: &str, object: &Tree) -> Bytes {
        let (group, version) = crate::storage::resource::split_api_version(object.str("apiVersion"));
        let ty = api::schema::type_of(&group, &version, object.str("kind"));
        match (self.accepted.media, ty) {
            (Media::Protobuf, Some(ty)) => {
                Bytes::from(api::protobuf::watch_frame(event, &api::protobuf::encode(object, ty)))
            }
            _ => json_frame(event, &json::encode(object, ty)),
        }
    }

    pub(super) fn bookmark(&mut self, revision: u64, end: bool) -> Bytes {
        let mut metadata = tree! { "resourceVersion" => revision.to_string() };
        if end {
            metadata.set("annotations", tree! { "k8s.io/initial-events-end" => "true" });
        }
        let kind = &self.resource.kind;
        let mut object =
            tree! { "kind" => kind.kind(), "apiVersion" => self.resource.api_version(), "metadata" => metadata };
        if let Representation::Table(version) = self.accepted.shape {
            let metadata = tree! { "resourceVersion" => revision.to_string() };
            let row = shape::row(kind, object, version, self.shaping);
            let columns = std::mem::take(&mut self.first_table);
            let table = shape::table(kind, version, metadata, vec![row], columns);
            return self.tree_frame("BOOKMARK", &table);
        }
        if self.accepted.shape == Representation::Plain {
            kind.fill(&mut object);
        }
        match shape::object(kind, object, self.shaping) {
            Ok(tree) => self.tree_frame("BOOKMARK", &tree),
            Err(_) => Bytes::new(),
        }
    }
}

/// A single frame is sent without a copy.
pub(super) fn join(frames: &[Bytes]) -> Bytes {
    if let [one] = frames {
        return one.clone();
    }
    let mut chunk = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
    frames.iter().for_each(|frame| chunk.extend_from_slice(frame));
    chunk.freeze()
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

/// The item's JSON with another revision: a deleted object has the revision of its deletion.
pub(super) fn with_revision(item: &Item, revision: u64) -> Bytes {
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
