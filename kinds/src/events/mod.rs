//! The kinds of the `events` group, a file a kind.

pub mod event;
