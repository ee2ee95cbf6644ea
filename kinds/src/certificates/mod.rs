//! The kinds of the `certificates` group, one file per kind.

pub mod certificate_signing_request;
pub(crate) mod cluster_trust_bundle;
pub(crate) mod pod_certificate_request;
