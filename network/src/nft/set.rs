//! Sets and maps, and their elements.

use std::time::Duration;

use super::batch::LIST_ELEMENT;
use crate::netlink::message::{Attributes, Message, attribute, text};

const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DATA_TYPE: u16 = 6;
const SET_DATA_LENGTH: u16 = 7;
const SET_DESCRIPTION: u16 = 9;
const SET_ID: u16 = 10;
const DESCRIPTION_CONCATENATION: u16 = 2;
const DESCRIPTION_SIZE: u16 = 1;
const FIELD_LENGTH: u16 = 1;
const FLAG_INTERVAL: u32 = 0x4;
const FLAG_MAP: u32 = 0x8;
const FLAG_TIMEOUT: u32 = 0x10;
const FLAG_DYNAMIC: u32 = 0x20;
const FLAG_CONCATENATION: u32 = 0x80;

const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const ELEMENT_FLAGS: u16 = 3;
const ELEMENT_TIMEOUT: u16 = 4;
const ELEMENT_EXPIRATION: u16 = 5;
const ELEMENT_USERDATA: u16 = 6;
const ELEMENT_KEY_END: u16 = 10;
const ELEMENT_INTERVAL_END: u32 = 1;
pub(super) const DATA_VALUE: u16 = 1;
pub(super) const DATA_VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
pub(super) const VERDICT_CHAIN: u16 = 2;
const DATA_IS_VERDICT: u32 = 0xffff_ff00;
/// The type of userdata in which the nft command stores a comment.
const USERDATA_COMMENT: u8 = 0;
/// The nft command stores the length in one byte and ends the comment with a zero byte.
const COMMENT_BYTES: usize = 128;

/// The type of a part of a key or of data, with the numbers that the nft command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ipv4,
    Ipv6,
    Protocol,
    Port,
    Mark,
    Mac,
    InterfaceName,
}

impl Kind {
    const fn number(self) -> u32 {
        match self {
            Kind::Ipv4 => 7,
            Kind::Ipv6 => 8,
            Kind::Protocol => 12,
            Kind::Port => 13,
            Kind::Mark => 19,
            Kind::Mac => 9,
            Kind::InterfaceName => 41,
        }
    }

    const fn length(self) -> u32 {
        match self {
            Kind::Ipv4 | Kind::Mark => 4,
            Kind::Ipv6 | Kind::InterfaceName => 16,
            Kind::Mac => 6,
            Kind::Protocol => 1,
            Kind::Port => 2,
        }
    }
}

/// A set, or a map if it has data.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    pub name: &'a str,
    /// More than one type is a concatenation, whose parts are aligned to four bytes.
    pub key: &'a [Kind],
    pub data: Option<MapType<'a>>,
    /// Whether elements are the starts and ends of intervals.
    pub interval: bool,
    /// The greatest number of elements, if packets add elements with timeouts.
    pub dynamic: Option<u32>,
}

/// The type of a map's values.
#[derive(Clone, Copy)]
pub enum MapType<'a> {
    Verdict,
    Values(&'a [Kind]),
}

impl<'a> Set<'a> {
    /// A set of keys.
    pub const fn of(name: &'a str, key: &'a [Kind]) -> Set<'a> {
        Set { name, key, data: None, interval: false, dynamic: None }
    }

    /// A set of ranges of keys.
    pub const fn intervals(name: &'a str, key: &'a [Kind]) -> Set<'a> {
        Set { name, key, data: None, interval: true, dynamic: None }
    }

    /// A map from keys to values.
    pub const fn map(name: &'a str, key: &'a [Kind], values: &'a [Kind]) -> Set<'a> {
        Set { name, key, data: Some(MapType::Values(values)), interval: false, dynamic: None }
    }

    /// A map from keys to verdicts.
    pub const fn verdicts(name: &'a str, key: &'a [Kind]) -> Set<'a> {
        Set { name, key, data: Some(MapType::Verdict), interval: false, dynamic: None }
    }
}

/// The data of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    None,
    Value(Vec<u8>),
    /// A jump to a chain.
    Jump(String),
    /// A jump to a chain that does not return.
    Goto(String),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// In network byte order; the parts of a concatenation are combined by [`Element::join`].
    pub key: Vec<u8>,
    pub data: Data,
    /// Shown by the nft command; see [`comment`].
    pub comment: String,
    /// Marks the first value after an interval.
    pub interval_end: bool,
    /// The last key of a range, in a set of intervals whose key is a concatenation.
    pub key_end: Option<Vec<u8>>,
    /// The timeout and the rest of it, of an element of a dynamic set.
    pub timeout: Option<(Duration, Duration)>,
}

impl Element {
    /// An element with a comment.
    pub fn new(key: Vec<u8>, data: Data, comment: &str) -> Element {
        Element { key, data, comment: comment.to_string(), interval_end: false, key_end: None, timeout: None }
    }

    /// Joins the parts of a concatenation, aligned to four bytes.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

pub(super) fn put_set(message: &mut Message, set: &Set<'_>, number: u32) {
    let map = if set.data.is_some() { FLAG_MAP } else { 0 };
    let interval = if set.interval { FLAG_INTERVAL } else { 0 };
    let concatenation = if set.interval && set.key.len() > 1 { FLAG_CONCATENATION } else { 0 };
    let dynamic = if set.dynamic.is_some() { FLAG_DYNAMIC | FLAG_TIMEOUT } else { 0 };
    message.put_be32(SET_FLAGS, map | interval | concatenation | dynamic);
    message.put_be32(SET_KEY_TYPE, type_of(set.key));
    message.put_be32(SET_KEY_LENGTH, length_of(set.key));
    match set.data {
        Some(MapType::Verdict) => {
            message.put_be32(SET_DATA_TYPE, DATA_IS_VERDICT);
            message.put_be32(SET_DATA_LENGTH, 0);
        }
        Some(MapType::Values(kinds)) => {
            message.put_be32(SET_DATA_TYPE, type_of(kinds));
            message.put_be32(SET_DATA_LENGTH, length_of(kinds));
        }
        None => {}
    }
    message.put_be32(SET_ID, number);
    if let Some(size) = set.dynamic {
        message.nest(SET_DESCRIPTION, |description| description.put_be32(DESCRIPTION_SIZE, size));
    }
    if concatenation != 0 {
        message.nest(SET_DESCRIPTION, |description| {
            description.nest(DESCRIPTION_CONCATENATION, |fields| {
                for kind in set.key {
                    fields.nest(LIST_ELEMENT, |field| field.put_be32(FIELD_LENGTH, kind.length()));
                }
            });
        });
    }
}

/// The nft command packs the types of a concatenation into six bits each.
fn type_of(kinds: &[Kind]) -> u32 {
    kinds.iter().fold(0, |packed, kind| packed << 6 | kind.number())
}

fn length_of(kinds: &[Kind]) -> u32 {
    match kinds {
        [one] => one.length(),
        many => many.iter().map(|kind| kind.length().next_multiple_of(4)).sum(),
    }
}

pub(super) fn put_elements(message: &mut Message, table: &str, set: &str, elements: &[Element]) {
    message.put_text(LIST_TABLE, table);
    message.put_text(LIST_SET, set);
    message.nest(LIST_ELEMENTS, |list| {
        for element in elements {
            list.nest(LIST_ELEMENT, |nest| put_element(nest, element));
        }
    });
}

fn put_element(message: &mut Message, element: &Element) {
    message.nest(ELEMENT_KEY, |key| key.put(DATA_VALUE, &element.key));
    match &element.data {
        Data::None => {}
        Data::Value(value) => message.nest(ELEMENT_DATA, |data| data.put(DATA_VALUE, value)),
        Data::Jump(chain) => message.nest(ELEMENT_DATA, |data| put_jump(data, chain)),
        Data::Goto(chain) => message.nest(ELEMENT_DATA, |data| put_goto(data, chain)),
    }
    if let Some(end) = &element.key_end {
        message.nest(ELEMENT_KEY_END, |key| key.put(DATA_VALUE, end));
    }
    if let Some((timeout, rest)) = element.timeout {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        message.put_be64(ELEMENT_TIMEOUT, millis(timeout));
        message.put_be64(ELEMENT_EXPIRATION, millis(rest));
    }
    if element.interval_end {
        message.put_be32(ELEMENT_FLAGS, ELEMENT_INTERVAL_END);
    }
    if !element.comment.is_empty() {
        message.put(ELEMENT_USERDATA, &userdata(&element.comment));
    }
}

const JUMP: i32 = -3;
const GOTO: i32 = -4;

pub(super) fn put_jump(data: &mut Message, chain: &str) {
    put_chain(data, JUMP, chain);
}

pub(super) fn put_goto(data: &mut Message, chain: &str) {
    put_chain(data, GOTO, chain);
}

fn put_chain(data: &mut Message, code: i32, chain: &str) {
    data.nest(DATA_VERDICT, |verdict| {
        verdict.put_be32(VERDICT_CODE, code.cast_unsigned());
        verdict.put_text(VERDICT_CHAIN, chain);
    });
}

/// Truncates a comment to the length that is stored.
pub fn comment(text: &str) -> &str {
    let mut end = text.len().min(COMMENT_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn userdata(text: &str) -> Vec<u8> {
    let kept = comment(text);
    let mut bytes = vec![USERDATA_COMMENT, kept.len() as u8 + 1];
    bytes.extend_from_slice(kept.as_bytes());
    bytes.push(0);
    bytes
}

/// The elements of a message that lists them.
pub(super) fn parse_elements(attributes: &[u8]) -> Vec<Element> {
    let Some(list) = attribute(attributes, LIST_ELEMENTS) else { return Vec::new() };
    Attributes(list).filter_map(|(_, element)| parse_element(element)).collect()
}

fn parse_element(element: &[u8]) -> Option<Element> {
    let value = |nest| attribute(nest, DATA_VALUE).map(<[u8]>::to_vec);
    let data = match attribute(element, ELEMENT_DATA) {
        None => Data::None,
        Some(nest) => match attribute(nest, DATA_VERDICT) {
            Some(verdict) => {
                let chain = text(attribute(verdict, VERDICT_CHAIN).unwrap_or_default());
                let goes = attribute(verdict, VERDICT_CODE) == Some(&GOTO.to_be_bytes()[..]);
                if goes { Data::Goto(chain) } else { Data::Jump(chain) }
            }
            None => Data::Value(value(nest)?),
        },
    };
    let flags = attribute(element, ELEMENT_FLAGS).unwrap_or_default();
    Some(Element {
        key: value(attribute(element, ELEMENT_KEY)?)?,
        data,
        comment: attribute(element, ELEMENT_USERDATA).and_then(comment_of).unwrap_or_default(),
        interval_end: flags.last().is_some_and(|byte| u32::from(*byte) & ELEMENT_INTERVAL_END != 0),
        key_end: attribute(element, ELEMENT_KEY_END).and_then(value),
        timeout: millis(element, ELEMENT_TIMEOUT).zip(millis(element, ELEMENT_EXPIRATION)),
    })
}

fn millis(element: &[u8], kind: u16) -> Option<Duration> {
    let bytes = attribute(element, kind)?.try_into().ok()?;
    Some(Duration::from_millis(u64::from_be_bytes(bytes)))
}

fn comment_of(userdata: &[u8]) -> Option<String> {
    match userdata {
        [USERDATA_COMMENT, length, rest @ ..] => rest.get(..usize::from(*length)).map(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_a_round_trip() {
        let long = "ü".repeat(100);
        let elements = [
            Element::new(vec![10, 0, 0, 1], Data::Jump("there".to_string()), "net pod eth0"),
            Element::new(Element::join(&[&[6], &[0x1f, 0x90]]), Data::Value(vec![10, 0, 0, 1, 0, 80, 0, 0]), ""),
            Element { interval_end: true, ..Element::new(vec![10, 1, 0, 0], Data::None, &long) },
            Element {
                key_end: Some(vec![10, 1, 255, 255]),
                timeout: Some((Duration::from_secs(9), Duration::from_millis(7))),
                ..Element::new(vec![10, 1, 0, 0], Data::Goto("there".to_string()), "")
            },
        ];
        let mut message = Message::new(0, 0, &[]);
        put_elements(&mut message, "table", "set", &elements);
        let bytes = message.finish(1).unwrap();
        let mut read = parse_elements(&bytes[16..]);
        assert_eq!(read[2].comment, "ü".repeat(63));
        read[2].comment = long;
        assert_eq!(read, elements);
        assert_eq!(read[1].key, [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
    }
}
