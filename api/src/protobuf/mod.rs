//! Protobuf to and from the tree, driven by the schema table, byte for byte as upstream: fields in ascending order,
//! zero scalars and empty structs written, maps sorted. An object is in an envelope with its kind; nested objects
//! have no kind.

mod decode;
mod encode;
mod wire;

use std::fmt;

use crate::schema::{self, Ty, Type};
use crate::tree::{Str, Tree};
use crate::{json, typed};

pub(crate) use encode::encode_message;

/// The prefix of every enveloped object.
pub const PREFIX: &[u8; 4] = b"k8s\0";

/// An invalid message, with Go's error messages where clients receive them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    NoPrefix,
    Empty,
    UnexpectedEnd,
    Overflow,
    IllegalTag,
    WrongWireType {
        wire_type: u8,
        field: &'static str,
    },
    TooDeep,
    NotUtf8,
    /// A nested object is not valid JSON.
    Json(json::Error),
    UnknownKind {
        api_version: Str,
        kind: Str,
    },
    Typed(typed::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoPrefix => {
                f.write_str("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
            }
            Error::Empty => f.write_str("empty body"),
            Error::UnexpectedEnd => f.write_str("unexpected EOF"),
            Error::Overflow => f.write_str("proto: integer overflow"),
            Error::IllegalTag => f.write_str("proto: illegal tag"),
            Error::WrongWireType { wire_type, field } => {
                write!(f, "proto: wrong wireType = {wire_type} for field {field}")
            }
            Error::TooDeep => f.write_str("exceeded max depth"),
            Error::NotUtf8 => f.write_str("proto: string field contains invalid UTF-8"),
            Error::Json(error) => error.fmt(f),
            Error::UnknownKind { api_version, kind } => {
                write!(f, "no kind {kind:?} is registered for version {api_version:?}")
            }
            Error::Typed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// A decoded envelope: the type of the object, and its message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Envelope<'a> {
    pub api_version: Str,
    pub kind: Str,
    pub raw: &'a [u8],
    pub content_encoding: Str,
    pub content_type: Str,
}

impl Envelope<'_> {
    /// The type named by the envelope.
    pub(crate) fn ty(&self) -> Option<&'static Type> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        schema::type_of(group, version, &self.kind).or_else(|| of_any_group(&self.kind))
    }
}

/// Options are registered in every group with the same meaning.
fn of_any_group(kind: &str) -> Option<&'static Type> {
    let known = matches!(kind, "DeleteOptions" | "CreateOptions" | "UpdateOptions" | "PatchOptions" | "WatchEvent");
    if known { schema::type_named("meta/v1", kind) } else { None }
}

/// Decodes only the envelope.
pub(crate) fn open(bytes: &[u8]) -> Result<Envelope<'_>, Error> {
    match bytes.strip_prefix(PREFIX) {
        None => Err(Error::NoPrefix),
        Some([]) => Err(Error::Empty),
        Some(unknown) => decode::envelope(unknown),
    }
}

/// A conformed enveloped object. `default` is used if the envelope has no kind.
pub fn decode(bytes: &[u8], default: Option<&'static Type>) -> Result<Tree, Error> {
    let envelope = open(bytes)?;
    decode_envelope(&envelope, default, 0)
}

fn decode_envelope(envelope: &Envelope<'_>, default: Option<&'static Type>, depth: usize) -> Result<Tree, Error> {
    let ty = if envelope.kind.is_empty() { default } else { envelope.ty() };
    let Some(ty) = ty else {
        return Err(Error::UnknownKind { api_version: envelope.api_version.clone(), kind: envelope.kind.clone() });
    };
    let mut tree = decode::message(envelope.raw, ty, depth)?;
    for (key, value) in [("kind", &envelope.kind), ("apiVersion", &envelope.api_version)] {
        if !value.is_empty() && ty.field(key).is_some() {
            tree.set(key, value.clone());
        }
    }
    shape(tree, ty)
}

/// A conformed message of a known type.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_message(bytes: &[u8], ty: &'static Type) -> Result<Tree, Error> {
    shape(decode::message(bytes, ty, 0)?, ty)
}

fn shape(mut tree: Tree, ty: &'static Type) -> Result<Tree, Error> {
    typed::conform(&mut tree, ty, &mut json::Strict::default()).map_err(Error::Typed)?;
    Ok(tree)
}

/// An object in its envelope. If the tree has no kind, that of the type is used.
pub fn encode(tree: &Tree, ty: &'static Type) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let (mut api_version, mut kind) = (Str::new(tree.str("apiVersion")), Str::new(tree.str("kind")));
    if let (Some(gvk), true) = (&ty.gvk, kind.is_empty()) {
        kind = Str::const_new(gvk.kind);
        let slash = if gvk.group.is_empty() { "" } else { "/" };
        api_version = Str::from(format!("{}{slash}{}", gvk.group, gvk.version));
    }
    encode::envelope(&mut out, &api_version, &kind, |out| encode_message(out, tree, ty));
    out
}

/// An envelope around a message that is already encoded.
pub fn wrap(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + api_version.len() + kind.len() + 32);
    encode::envelope(&mut out, api_version, kind, |out| out.extend_from_slice(message));
    out
}

/// A watch frame: its length in four bytes, then an event with an enveloped object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend_from_slice(&[0; 4]);
    wire::write_bytes(&mut out, 1, event.as_bytes());
    wire::write_message(&mut out, 2, |out| wire::write_bytes(out, 1, object));
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The type in the wrappers of loose JSON schema fields.
fn json_schema() -> Ty {
    match schema::type_named("apiextensions/v1", "JSONSchemaProps") {
        Some(ty) => Ty::Struct(ty),
        None => Ty::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::type_of;

    fn tree(text: &str) -> Tree {
        json::decode(text.as_bytes()).expect("valid JSON")
    }

    /// Written by upstream's server.
    const STATUS: &str = "azhzAAoMCgJ2MRIGU3RhdHVzEk8KBgoAEgAaABIHRmFpbHVyZRoYY29uZmlnbWFwcyAieCIgbm90IGZvdW5kIghOb3RGb3VuZCoVCgF4EgAaCmNvbmZpZ21hcHMoADIAMJQDGgAiAA==";
    const STATUS_JSON: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"configmaps"},"code":404}"#;
    const CONFIG_MAP: &str = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEqoBCp8BCgdmcm9tcGIyEgAaCGRlZmF1bHRzIgAqJGVhYzBmOTU3LTdlZTctNGNmNi1hNWEwLThjYjVmYzI0ZmY2ODIDNDE2OABCCAjdvOjXBhAAigFOCgp0cmFuc2NyaXB0EgZVcGRhdGUaAnYxIggI3bzo1wYQADIIRmllbGRzVjE6HgoceyJmOmRhdGEiOnsiLiI6e30sImY6YSI6e319fUIAEgYKAWESATEaACIA";
    const CONFIG_MAP_JSON: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"frompb2","namespace":"defaults","uid":"eac0f957-7ee7-4cf6-a5a0-8cb5fc24ff68","resourceVersion":"416","creationTimestamp":"2026-11-15T21:04:29Z","managedFields":[{"manager":"transcript","operation":"Update","apiVersion":"v1","time":"2026-11-15T21:04:29Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{}}}}]},"data":{"a":"1"}}"#;

    #[test]
    fn round_trips_upstream_bytes() {
        for (kind, bytes, text) in [("Status", STATUS, STATUS_JSON), ("ConfigMap", CONFIG_MAP, CONFIG_MAP_JSON)] {
            let bytes = crate::base64::decode(bytes).expect("base64");
            assert_eq!(decode(&bytes, None), Ok(tree(text)), "{kind}");
            assert_eq!(encode(&tree(text), type_of("", "v1", kind).expect("a kind")), bytes, "{kind}");
        }
    }

    #[test]
    fn round_trips_special_values() {
        let text = r#"{"kind":"Service","apiVersion":"v1","metadata":{},"spec":{"ports":[{"port":80,"targetPort":"web"},{"port":81,"targetPort":8080}]},"status":{"loadBalancer":{}}}"#;
        let bytes = encode(&tree(text), type_of("", "v1", "Service").expect("Service"));
        assert_eq!(decode(&bytes, None), Ok(tree(text)));
        let text = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"extra":{"a":["b","c"]}},"status":{"allowed":false}}"#;
        let ty = type_of("authorization.k8s.io", "v1", "SubjectAccessReview").expect("a kind");
        assert_eq!(decode(&encode(&tree(text), ty), None), Ok(tree(text)));
    }

    #[test]
    fn watch_frames_contain_an_enveloped_object() {
        let object = wrap("v1", "ConfigMap", &[]);
        let frame = watch_frame("ADDED", &object);
        assert_eq!(frame[..4], u32::to_be_bytes(frame.len() as u32 - 4));
        let event = type_of("", "v1", "WatchEvent").expect("WatchEvent");
        let read = decode_message(&frame[4..], event).expect("an event");
        assert_eq!(read.str("type"), "ADDED");
        assert_eq!(read.str("object.kind"), "ConfigMap");
    }

    #[test]
    fn bad_messages_are_refused() {
        let config_map = type_of("", "v1", "ConfigMap");
        let cases: [(&[u8], &str); 9] = [
            (b"nope", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
            (b"k8s\0", "empty body"),
            (b"k8s\0\xff\xff", "unexpected EOF"),
            (b"k8s\0\x12\x05\x0a", "unexpected EOF"),
            (b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "proto: integer overflow"),
            (b"k8s\0\x12\x02\x08\x01", "proto: wrong wireType = 0 for field metadata"),
            (b"k8s\0\x12\x04\x12\x02\x0a\x05", "unexpected EOF"),
            (b"k8s\0\x12\x05\x0a\x03\x0a\x01\xff", "proto: string field contains invalid UTF-8"),
            (b"k8s\0\x0a\x07\x0a\x02v1\x12\x01X", "no kind \"X\" is registered for version \"v1\""),
        ];
        for (bytes, want) in cases {
            let error = decode(bytes, config_map).expect_err(want);
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn unknown_fields_are_skipped_and_depth_is_limited() {
        let config_map = type_of("", "v1", "ConfigMap").expect("ConfigMap");
        // A varint, eight bytes, four bytes, a string and a group with a varint.
        let unknown = b"\xa0\x06\x01\xa1\x0612345678\xa5\x061234\xa2\x06\x01x\xa3\x06\x08\x01\xa4\x06";
        assert_eq!(decode_message(unknown, config_map), Ok(tree(r#"{"metadata":{}}"#)));
        let mut deep = Vec::new();
        for _ in 0..1000 {
            // `not` of a schema, nested in itself.
            let inner = std::mem::take(&mut deep);
            wire::write_bytes(&mut deep, 28, &inner);
        }
        let Ty::Struct(props) = json_schema() else { panic!("a struct") };
        assert_eq!(decode_message(&deep, props), Err(Error::TooDeep));
    }
}
