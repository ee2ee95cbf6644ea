//! D-Bus messages as bytes, limited to basic values and variants of them. Lengths that a peer sends are checked against
//! the bytes.

/// The limit of a message; ours are much shorter.
pub(crate) const MOST: usize = 64 << 10;
/// The bytes that are needed to know the length of a message.
pub(crate) const HEAD: usize = 16;
/// Variants in variants.
const DEEPEST: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Byte(u8),
    Bool(bool),
    Int(i32),
    Uint(u32),
    Long(u64),
    Text(String),
    Path(String),
    Signature(String),
    /// The index of a passed file descriptor.
    Handle(u32),
    Variant(Box<Value>),
}

impl Value {
    pub(crate) fn text(text: &str) -> Value {
        Value::Text(text.to_string())
    }

    fn signature(&self) -> char {
        match self {
            Value::Byte(_) => 'y',
            Value::Bool(_) => 'b',
            Value::Int(_) => 'i',
            Value::Uint(_) => 'u',
            Value::Long(_) => 't',
            Value::Text(_) => 's',
            Value::Path(_) => 'o',
            Value::Signature(_) => 'g',
            Value::Handle(_) => 'h',
            Value::Variant(_) => 'v',
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    #[default]
    Call = 1,
    Return = 2,
    Error = 3,
    Signal = 4,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) serial: u32,
    /// The serial number of the call that this replies to.
    pub(crate) reply_to: Option<u32>,
    pub(crate) path: String,
    pub(crate) interface: String,
    pub(crate) member: String,
    pub(crate) error: String,
    pub(crate) destination: String,
    /// Written by the bus, and true.
    pub(crate) sender: String,
    /// The number of file descriptors in the message.
    pub(crate) handles: u32,
    /// Empty for values that are not needed here.
    pub(crate) body: Vec<Value>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

type Result<T> = std::result::Result<T, Malformed>;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR: u8 = 4;
const REPLY_TO: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
const HANDLES: u8 = 9;

/// A message in little endian.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let mut body = Writer::default();
    message.body.iter().for_each(|value| body.value(value));
    let mut writer = Writer::default();
    writer.bytes.extend([b'l', message.kind as u8, 0, 1]);
    writer.uint(u32::try_from(body.bytes.len()).unwrap_or(u32::MAX));
    writer.uint(message.serial);
    // The length of the fields is known after they are written.
    writer.uint(0);
    fields(message).into_iter().for_each(|(code, value)| writer.field(code, value));
    let length = u32::try_from(writer.bytes.len() - HEAD).unwrap_or(u32::MAX);
    writer.bytes[HEAD - 4..HEAD].copy_from_slice(&length.to_le_bytes());
    writer.align(8);
    writer.bytes.extend(body.bytes);
    writer.bytes
}

fn fields(message: &Message) -> Vec<(u8, Value)> {
    let texts = [
        (INTERFACE, &message.interface),
        (MEMBER, &message.member),
        (ERROR, &message.error),
        (DESTINATION, &message.destination),
        (SENDER, &message.sender),
    ];
    let signature: String = message.body.iter().map(Value::signature).collect();
    let path = (!message.path.is_empty()).then(|| (PATH, Value::Path(message.path.clone())));
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(code, text)| (code, Value::text(text)));
    let reply = message.reply_to.map(|serial| (REPLY_TO, Value::Uint(serial)));
    let signature = (!signature.is_empty()).then_some((SIGNATURE, Value::Signature(signature)));
    let handles = (message.handles > 0).then_some((HANDLES, Value::Uint(message.handles)));
    path.into_iter().chain(texts).chain(reply).chain(signature).chain(handles).collect()
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn uint(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn field(&mut self, code: u8, value: Value) {
        self.align(8);
        self.bytes.push(code);
        self.value(&Value::Variant(Box::new(value)));
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Byte(byte) => self.bytes.push(*byte),
            Value::Bool(holds) => self.uint(u32::from(*holds)),
            Value::Int(number) => self.uint(number.cast_unsigned()),
            Value::Uint(number) | Value::Handle(number) => self.uint(*number),
            Value::Long(number) => {
                self.align(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Value::Text(text) | Value::Path(text) => {
                self.uint(u32::try_from(text.len()).unwrap_or(u32::MAX));
                self.bytes.extend(text.bytes().chain([0]));
            }
            Value::Signature(text) => {
                self.bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                self.bytes.extend(text.bytes().chain([0]));
            }
            Value::Variant(inner) => {
                self.value(&Value::Signature(inner.signature().to_string()));
                self.value(inner);
            }
        }
    }
}

/// How long a whole message is, from its first bytes.
pub(crate) fn length(head: &[u8]) -> Result<usize> {
    let mut reader = Reader::of(head)?;
    reader.at = 4;
    let body = reader.size()?;
    reader.at = HEAD - 4;
    let fields = reader.size()?;
    let whole = HEAD + fields.next_multiple_of(8) + body;
    if whole > MOST { Err(Malformed("it is too long")) } else { Ok(whole) }
}

/// The message of exactly these bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Message> {
    if length(bytes)? != bytes.len() {
        return Err(Malformed("it is not as long as it says"));
    }
    let mut reader = Reader::of(bytes)?;
    let kind = match bytes[1] {
        1 => Kind::Call,
        2 => Kind::Return,
        3 => Kind::Error,
        4 => Kind::Signal,
        _ => return Err(Malformed("no such kind")),
    };
    reader.at = 8;
    let mut message = Message { kind, serial: reader.uint()?, ..Message::default() };
    let end = HEAD + reader.size()?;
    let mut signature = String::new();
    while reader.at < end {
        reader.align(8)?;
        let code = reader.byte()?;
        let value = reader.variant(0)?;
        take(&mut message, &mut signature, code, value);
    }
    if reader.at != end {
        return Err(Malformed("its fields do not end where they say"));
    }
    reader.align(8)?;
    if is_plain(&signature) {
        message.body = signature.chars().map(|kind| reader.value(kind, 0)).collect::<Result<_>>()?;
    }
    Ok(message)
}

/// Unknown fields are ignored.
fn take(message: &mut Message, signature: &mut String, code: u8, value: Value) {
    match (code, value) {
        (PATH, Value::Path(text)) => message.path = text,
        (INTERFACE, Value::Text(text)) => message.interface = text,
        (MEMBER, Value::Text(text)) => message.member = text,
        (ERROR, Value::Text(text)) => message.error = text,
        (DESTINATION, Value::Text(text)) => message.destination = text,
        (SENDER, Value::Text(text)) => message.sender = text,
        (REPLY_TO, Value::Uint(serial)) => message.reply_to = Some(serial),
        (HANDLES, Value::Uint(handles)) => message.handles = handles,
        (SIGNATURE, Value::Signature(text)) => *signature = text,
        _ => {}
    }
}

fn is_plain(signature: &str) -> bool {
    signature.chars().all(|kind| "ybiutsoghv".contains(kind))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
}

impl<'a> Reader<'a> {
    /// The first byte of a message is its byte order.
    fn of(bytes: &'a [u8]) -> Result<Reader<'a>> {
        match bytes.first() {
            Some(b'l') => Ok(Reader { bytes, at: 0, is_big: false }),
            Some(b'B') => Ok(Reader { bytes, at: 0, is_big: true }),
            _ => Err(Malformed("no such order of bytes")),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Malformed("it ends too soon"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<()> {
        self.take(self.at.next_multiple_of(to) - self.at).map(drop)
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn uint(&mut self) -> Result<u32> {
        self.align(4)?;
        let taken: [u8; 4] = self.take(4)?.try_into().map_err(|_| Malformed("it ends too soon"))?;
        Ok(if self.is_big { u32::from_be_bytes(taken) } else { u32::from_le_bytes(taken) })
    }

    fn long(&mut self) -> Result<u64> {
        self.align(8)?;
        let taken: [u8; 8] = self.take(8)?.try_into().map_err(|_| Malformed("it ends too soon"))?;
        Ok(if self.is_big { u64::from_be_bytes(taken) } else { u64::from_le_bytes(taken) })
    }

    /// A length, which cannot be more than a message's.
    fn size(&mut self) -> Result<usize> {
        let size = usize::try_from(self.uint()?).unwrap_or(usize::MAX);
        if size > MOST { Err(Malformed("it is too long")) } else { Ok(size) }
    }

    fn text(&mut self, length: usize) -> Result<String> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| Malformed("no text"))?;
        match self.byte()? {
            0 => Ok(text.to_string()),
            _ => Err(Malformed("a text without its end")),
        }
    }

    fn variant(&mut self, depth: usize) -> Result<Value> {
        let length = usize::from(self.byte()?);
        let signature = self.text(length)?;
        let mut kinds = signature.chars();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) if depth < DEEPEST => self.value(kind, depth + 1),
            _ => Err(Malformed("a variant of something else than a plain value")),
        }
    }

    fn value(&mut self, kind: char, depth: usize) -> Result<Value> {
        match kind {
            'y' => self.byte().map(Value::Byte),
            'b' => self.uint().map(|number| Value::Bool(number != 0)),
            'i' => self.uint().map(|number| Value::Int(number.cast_signed())),
            'u' => self.uint().map(Value::Uint),
            't' => self.long().map(Value::Long),
            'h' => self.uint().map(Value::Handle),
            's' | 'o' => {
                let length = self.size()?;
                let text = self.text(length)?;
                Ok(if kind == 's' { Value::Text(text) } else { Value::Path(text) })
            }
            'g' => {
                let length = usize::from(self.byte()?);
                self.text(length).map(Value::Signature)
            }
            'v' => self.variant(depth).map(|value| Value::Variant(Box::new(value))),
            _ => Err(Malformed("no plain value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Message {
        Message {
            serial: 7,
            path: "/org/freedesktop/login1".into(),
            interface: "org.freedesktop.login1.Manager".into(),
            member: "Inhibit".into(),
            destination: "org.freedesktop.login1".into(),
            body: ["shutdown", "kubelet", "", "delay"].map(Value::text).to_vec(),
            ..Message::default()
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let all = vec![
            Value::Byte(3),
            Value::Long(u64::MAX),
            Value::Bool(true),
            Value::Int(-1),
            Value::Handle(2),
            Value::Path("/a".into()),
            Value::Signature("as".into()),
            Value::Variant(Box::new(Value::Variant(Box::new(Value::Long(5))))),
        ];
        let answer = Message { kind: Kind::Return, reply_to: Some(7), handles: 1, body: all, ..Message::default() };
        let error = Message { kind: Kind::Error, error: "a.b.C".into(), sender: ":1.2".into(), ..call() };
        for message in [call(), answer, error, Message::default()] {
            let bytes = encode(&message);
            assert_eq!(length(&bytes), Ok(bytes.len()));
            assert_eq!(decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn hello_matches_the_protocol() {
        let hello = Message { serial: 1, path: "/o".into(), member: "Hello".into(), ..Message::default() };
        let bytes = encode(&hello);
        let fields = b"\x01\x01o\0\x02\0\0\0/o\0\0\0\0\0\0\x03\x01s\0\x05\0\0\0Hello\0";
        assert_eq!(&bytes[..HEAD], b"l\x01\0\x01\0\0\0\0\x01\0\0\0\x1e\0\0\0");
        assert_eq!(&bytes[HEAD..HEAD + 0x1e], fields);
        assert_eq!(bytes.len(), 48);
    }

    #[test]
    fn reads_big_endian_messages() {
        let mut bytes = b"B\x04\0\x01\0\0\0\x04\0\0\0\x09\0\0\0\x0f".to_vec();
        bytes.extend(b"\x08\x01g\0\x01b\0\0\x05\x01u\0\0\0\0\x02");
        // The last field is one byte shorter than its length: fields end at the length of the header.
        assert_eq!(
            decode(&[bytes.clone(), vec![0, 0, 0, 1]].concat()),
            Err(Malformed("its fields do not end where they say"))
        );
        bytes[15] = 16;
        let message = decode(&[bytes, vec![0, 0, 0, 1]].concat()).expect("a message");
        assert_eq!((message.serial, message.reply_to, message.body), (9, Some(2), vec![Value::Bool(true)]));
    }

    #[test]
    fn checks_lengths_against_the_bytes() {
        let good = encode(&call());
        // The offset of a changed byte, and its value.
        let cases = [(0, b'x'), (1, 9), (7, 0xff), (4, 0xff), (12, 0), (14, 1), (15, 0xff), (20, 0xff), (17, 0xff)];
        for (at, byte) in cases {
            let mut bytes = good.clone();
            bytes[at] = byte;
            assert!(decode(&bytes).is_err(), "{at} {byte}");
        }
        for end in 0..good.len() {
            assert!(decode(&good[..end]).is_err(), "{end}");
        }
        let mut deep = Value::Byte(1);
        for _ in 0..20 {
            deep = Value::Variant(Box::new(deep));
        }
        assert!(decode(&encode(&Message { body: vec![deep], ..Message::default() })).is_err());
    }

    #[test]
    fn survives_any_wrong_byte() {
        let good = encode(&call());
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                // Any input ends without a panic.
                let _ = (length(&bytes), decode(&bytes));
            }
        }
    }

    #[test]
    fn skips_unneeded_values() {
        let mut message = call();
        message.body = vec![Value::Uint(0), Value::Uint(0)];
        let mut bytes = encode(&message);
        let at = bytes.windows(4).position(|part| part == b"\x02uu\0").expect("the signature");
        bytes[at + 1] = b'a';
        assert_eq!(decode(&bytes).map(|message| message.body), Ok(Vec::new()));
    }
}
