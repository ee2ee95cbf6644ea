//! Claims for volumes, as pods hold them in templates: judged as the claims themselves are.

pub use crate::core::persistent_volume_claim::validate_spec;
