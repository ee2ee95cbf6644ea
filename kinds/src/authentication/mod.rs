//! The kinds of the `authentication` group, one file per kind.

pub mod self_subject_review;
pub mod token_review;
