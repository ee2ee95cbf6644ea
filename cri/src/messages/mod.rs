//! The messages, a line a field: `name: type = number`. Written by hand, so that no build needs protoc.

/// Turns lines of fields into protobuf messages.
macro_rules! messages {
    ($($name:ident { $($fields:tt)* })*) => { $( messages!(@ $name {} $($fields)*); )* };
    (@ $name:ident { $($done:tt)* }) => {
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name { $($done)* }
    };
    (@ $name:ident $done:tt $field:ident: map($key:ident, $value:ident) = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [btree_map = "string, string", tag = $tag] $field
            [std::collections::BTreeMap<String, String>] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: repeated message($of:ident) = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [message, repeated, tag = $tag] $field [Vec<$of>] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: repeated $of:ident = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [$of, repeated, tag = $tag] $field [Vec<scalar!($of)>] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: message($of:ident) = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [message, optional, tag = $tag] $field [Option<$of>] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: enumeration($of:ident) = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [enumeration($of), tag = $tag] $field [i32] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: bytes = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [bytes = "vec", tag = $tag] $field [Vec<u8>] $($($rest)*)?);
    };
    (@ $name:ident $done:tt $field:ident: $of:ident = $tag:tt $(, $($rest:tt)*)?) => {
        messages!(+ $name $done [$of, tag = $tag] $field [scalar!($of)] $($($rest)*)?);
    };
    (+ $name:ident { $($done:tt)* } [$($attribute:tt)*] $field:ident [$type:ty] $($rest:tt)*) => {
        messages!(@ $name { $($done)* #[prost($($attribute)*)] pub $field: $type, } $($rest)*);
    };
}

macro_rules! scalar {
    (string) => {
        String
    };
    (bool) => {
        bool
    };
    (double) => {
        f64
    };
    (int32) => {
        i32
    };
    (int64) => {
        i64
    };
    (uint32) => {
        u32
    };
    (uint64) => {
        u64
    };
}

macro_rules! enumerations {
    ($($name:ident { $($value:ident = $number:literal),* $(,)? })*) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
        #[repr(i32)]
        pub enum $name { $($value = $number),* }
    )* };
}

mod container;
mod enumerations;
mod image;
mod runtime;
mod sandbox;
mod stats;
mod windows;

pub use container::*;
pub use enumerations::*;
pub use image::*;
pub use runtime::*;
pub use sandbox::*;
pub use stats::*;
pub use windows::*;
