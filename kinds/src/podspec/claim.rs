//! Volume claim templates in pods, validated like claims.

pub use crate::core::persistent_volume_claim::validate_spec;
