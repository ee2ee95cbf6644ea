//! The kinds of the `apiregistration` group, one file per kind.

pub(crate) mod api_service;
