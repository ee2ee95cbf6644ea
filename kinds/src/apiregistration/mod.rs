//! The kinds of the `apiregistration` group, a file a kind.

pub mod api_service;
