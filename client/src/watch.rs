//! The events of a watch, read from its stream of lines.

use api::{Tree, json};
use bytes::BytesMut;

use crate::{Body, Error, Result};

/// An event may be as large as the largest object that can be stored.
const MAX_LINE_BYTES: usize = 8 << 20;

#[derive(Debug, PartialEq)]
pub enum Event {
    /// Added or changed.
    Put(Tree),
    Deleted(Tree),
    /// Everything up to this version has been seen.
    Bookmark(String),
}

pub struct Watch {
    body: Body,
    buffer: BytesMut,
}

impl Watch {
    pub fn new(body: Body) -> Watch {
        Watch { body, buffer: BytesMut::new() }
    }

    /// The next event; None where the server has ended the watch.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Some(read_event(&self.buffer.split_to(at + 1)));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Some(Err(Error::Answer("an event without an end".to_string())));
            }
            match self.body.next().await? {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn read_event(line: &[u8]) -> Result<Event> {
    let mut event = json::decode(line).map_err(|error| Error::Answer(error.to_string()))?;
    let object = event.remove("object").unwrap_or_default();
    match event.str("type") {
        "ADDED" | "MODIFIED" => Ok(Event::Put(object)),
        "DELETED" => Ok(Event::Deleted(object)),
        "BOOKMARK" => Ok(Event::Bookmark(object.str("metadata.resourceVersion").to_string())),
        "ERROR" => {
            Err(Error::status(object.int("code").and_then(|code| u16::try_from(code).ok()).unwrap_or(500), &object))
        }
        other => Err(Error::Answer(format!("an event of type {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;

    #[tokio::test]
    async fn events_are_lines() {
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
        assert!(matches!(watch.next().await, Some(Ok(Event::Put(object))) if object.str("metadata.name") == "a"));
        assert!(matches!(watch.next().await, Some(Ok(Event::Deleted(_)))));
        assert_eq!(watch.next().await, Some(Ok(Event::Bookmark("7".to_string()))));
        assert!(matches!(watch.next().await, Some(Err(error)) if error.is_expired()));
        assert_eq!(watch.next().await, None, "half a line is no event");
    }
}
