//! The kinds of the `apiregistration` group, one file per kind.

pub mod api_service;
