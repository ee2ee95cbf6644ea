//! The kinds of the `events` group, one file per kind.

pub(crate) mod event;
