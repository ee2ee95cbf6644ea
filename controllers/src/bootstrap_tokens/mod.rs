//! Bootstrap tokens, by which machines join. One controller signs `cluster-info` with each token, the other deletes
//! expired tokens.

mod cleaner;
mod plan;
mod signer;

use client::{Resource, Selection};

pub(crate) use cleaner::start as start_cleaner;
pub use plan::{has_signature, is_signed, signature};
pub(crate) use signer::start as start_signer;

const TOKENS: Selection = Selection {
    resource: Resource::core("secrets"),
    query: "fieldSelector=metadata.namespace%3Dkube-system,type%3Dbootstrap.kubernetes.io%2Ftoken",
};
