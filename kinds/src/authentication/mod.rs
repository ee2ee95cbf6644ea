//! The kinds of the `authentication` group, one file per kind.

pub(crate) mod self_subject_review;
pub(crate) mod token_review;
