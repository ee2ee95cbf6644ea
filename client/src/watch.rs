//! Reads watch events from the response stream.

use api::{Tree, json};
use bytes::{Bytes, BytesMut};

use crate::transport::LINE;
use crate::{Body, Error, Result};

/// The size of the largest object that can be stored.
const MAX_LINE_BYTES: usize = 8 << 20;

/// A change of an object, or of the position in the watch.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// Added or modified: the object's JSON.
    Put(Bytes),
    Deleted(Bytes),
    /// Everything up to this version was received.
    Bookmark(String),
}

/// A running watch.
pub struct Watch {
    body: Body,
    buffer: BytesMut,
    /// No line ends before this.
    searched: usize,
}

impl Watch {
    /// Decodes the events of a response body.
    pub fn new(body: Body) -> Watch {
        Watch { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next event; None when the server ends the watch.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        if self.body.pieces {
            return self.next_piece().await;
        }
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                return Some(read_event(&line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Some(Err(Error::Answer("incomplete watch event".to_string())));
            }
            match self.body.next().await? {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Watch {
    async fn next_piece(&mut self) -> Option<Result<Event>> {
        let kind = match self.body.next().await? {
            Ok(kind) => kind,
            Err(error) => return Some(Err(error)),
        };
        let piece = self.body.next().await?;
        Some(piece.and_then(|piece| match &*kind {
            b"ADDED" | b"MODIFIED" => Ok(Event::Put(piece)),
            b"DELETED" => Ok(Event::Deleted(piece)),
            LINE => read_event(&piece),
            other => Err(Error::Answer(format!("unknown frame type {:?}", String::from_utf8_lossy(other)))),
        }))
    }
}

fn read_event(line: &[u8]) -> Result<Event> {
    let bad = |error: json::Error| Error::Answer(error.to_string());
    let (event, object) = json::decode_around(line, "object").map_err(bad)?;
    let object = object.map(|range| &line[range]).unwrap_or_default();
    // The object is copied: a slice would keep everything received with it alive.
    match event.str("type") {
        "ADDED" | "MODIFIED" => Ok(Event::Put(Bytes::copy_from_slice(object))),
        "DELETED" => Ok(Event::Deleted(Bytes::copy_from_slice(object))),
        "BOOKMARK" => {
            let bookmark = json::decode(object).map_err(bad)?;
            Ok(Event::Bookmark(bookmark.str("metadata.resourceVersion").to_string()))
        }
        "ERROR" => Err(status_error(&json::decode(object).map_err(bad)?)),
        other => Err(Error::Answer(format!("unknown watch event type {other:?}"))),
    }
}

fn status_error(status: &Tree) -> Error {
    Error::status(status.int("code").and_then(|code| u16::try_from(code).ok()).unwrap_or(500), status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn reads_events_from_lines() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            "\n",
            r#"{"type":"DELETED","object":{"metadata":{"name":"a"}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}"#,
            "\n{\"type\"",
        );
        let mut watch = Watch::new(Body::new(Full::new(Bytes::from(text))));
        assert_eq!(watch.next().await, Some(Ok(Event::Put(Bytes::from(r#"{"metadata":{"name":"a"}}"#)))));
        assert!(matches!(watch.next().await, Some(Ok(Event::Deleted(_)))));
        assert_eq!(watch.next().await, Some(Ok(Event::Bookmark("7".to_string()))));
        assert!(matches!(watch.next().await, Some(Err(error)) if error.is_expired()));
        assert_eq!(watch.next().await, None, "half a line is no event");
    }

    struct Frames(std::vec::IntoIter<&'static str>);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<std::result::Result<http_body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Ready(
                self.0.next().map(|text| Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))),
            )
        }
    }

    #[tokio::test]
    async fn reads_events_from_object_frames() {
        let line = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        let frames = Frames(vec!["ADDED", "{}", "LINE", line, "DELETED", "{}", "else", "{}"].into_iter());
        let mut watch = Watch::new(Body::new(frames).with_object_frames());
        assert_eq!(watch.next().await, Some(Ok(Event::Put(Bytes::from("{}")))));
        assert_eq!(watch.next().await, Some(Ok(Event::Bookmark("7".to_string()))));
        assert_eq!(watch.next().await, Some(Ok(Event::Deleted(Bytes::from("{}")))));
        assert!(matches!(watch.next().await, Some(Err(_))));
        assert_eq!(watch.next().await, None);
    }
}
