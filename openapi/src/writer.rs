//! Documents are written part by part, so that only one path or schema at a time is a tree.

use api::{Tree, json};

use crate::Encoding;
use crate::proto::{Message, ProtoWriter};

pub(crate) trait Writer {
    /// Begins an object under a key; `put` and `open` then go into it until `close`.
    fn open(&mut self, key: &str);
    fn put(&mut self, key: &str, value: &Tree);
    fn close(&mut self);
    fn finish(self: Box<Self>) -> Vec<u8>;
}

/// A writer for an encoding; `message` is the protobuf form of the document.
pub(crate) fn writer(encoding: Encoding, message: &'static Message) -> Box<dyn Writer> {
    match encoding {
        Encoding::Json => Box::new(JsonWriter { out: vec![b'{'] }),
        Encoding::Protobuf => Box::new(ProtoWriter::new(message)),
    }
}

struct JsonWriter {
    out: Vec<u8>,
}

impl JsonWriter {
    fn key(&mut self, key: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        json::write_string(&mut self.out, key);
        self.out.push(b':');
    }
}

impl Writer for JsonWriter {
    fn open(&mut self, key: &str) {
        self.key(key);
        self.out.push(b'{');
    }

    fn put(&mut self, key: &str, value: &Tree) {
        self.key(key);
        json::encode_into(&mut self.out, value, None);
    }

    fn close(&mut self) {
        self.out.push(b'}');
    }

    fn finish(mut self: Box<Self>) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}
