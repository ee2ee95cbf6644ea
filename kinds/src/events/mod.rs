//! The kinds of the `events` group, one file per kind.

pub mod event;
