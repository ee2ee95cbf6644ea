//! The kinds of the `authentication` group, a file a kind.

pub mod self_subject_review;
pub mod token_review;
