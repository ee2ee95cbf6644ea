//! Writes documents incrementally: only one path or schema at a time is a tree.

use api::{Tree, json};

use crate::Encoding;
use crate::proto::{Field, FieldType, Message, write_bytes, write_entry};

pub(crate) trait Writer {
    /// Starts an object under a key; `put` and `open` add to it until `close`.
    fn open(&mut self, key: &str);
    fn put(&mut self, key: &str, value: &Tree);
    /// Adds what `entries` has encoded to the open object.
    fn put_entries(&mut self, entries: &[u8]);
    fn close(&mut self);
    fn finish(self: Box<Self>) -> Vec<u8>;
}

/// The writer of an encoding; `message` is the protobuf form of the document.
pub(crate) fn writer(encoding: Encoding, message: &'static Message) -> Box<dyn Writer> {
    match encoding {
        Encoding::Json => Box::new(JsonWriter { out: vec![b'{'] }),
        Encoding::Protobuf => Box::new(ProtoWriter::new(message)),
    }
}

/// The encoded entries of an object that a document has under a key.
pub(crate) fn entries(
    encoding: Encoding,
    document: &'static Message,
    key: &str,
    fill: impl FnOnce(&mut dyn Writer),
) -> Vec<u8> {
    let message = match document.field(key) {
        Some(Field { shape: FieldType::Message(message), .. }) => message,
        _ => &NOTHING,
    };
    let mut out = writer(encoding, message);
    fill(&mut *out);
    let bytes = out.finish();
    match encoding {
        // Without the braces.
        Encoding::Json => bytes[1..bytes.len() - 1].to_vec(),
        Encoding::Protobuf => bytes,
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
    fn put_entries(&mut self, entries: &[u8]) {
        if !entries.is_empty() && self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        self.out.extend_from_slice(entries);
    }

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

struct ProtoWriter {
    /// The messages that are open, the document first.
    open: Vec<OpenMessage>,
}

struct OpenMessage {
    message: &'static Message,
    number: u32,
    out: Vec<u8>,
}

impl ProtoWriter {
    fn new(message: &'static Message) -> ProtoWriter {
        ProtoWriter { open: vec![OpenMessage { message, number: 0, out: Vec::new() }] }
    }
}

static NOTHING: Message = Message { fields: &[], extensions: None, named: None };

impl Writer for ProtoWriter {
    fn put_entries(&mut self, entries: &[u8]) {
        if let Some(open) = self.open.last_mut() {
            open.out.extend_from_slice(entries);
        }
    }

    fn open(&mut self, key: &str) {
        let found = self.open.last().and_then(|open| open.message.field(key));
        let (number, message) = match found {
            Some(Field { number, shape: FieldType::Message(message), .. }) => (*number, *message),
            _ => (0, &NOTHING),
        };
        self.open.push(OpenMessage { message, number, out: Vec::new() });
    }

    fn put(&mut self, key: &str, value: &Tree) {
        if let Some(open) = self.open.last_mut() {
            write_entry(&mut open.out, open.message, key, value);
        }
    }

    fn close(&mut self) {
        let Some(done) = self.open.pop() else { return };
        if let Some(open) = self.open.last_mut() {
            write_bytes(&mut open.out, done.number, &done.out);
        }
    }

    fn finish(mut self: Box<Self>) -> Vec<u8> {
        while self.open.len() > 1 {
            self.close();
        }
        self.open.pop().map(|open| open.out).unwrap_or_default()
    }
}
