//! The kinds of the `authorization` group, one file per kind.

pub mod local_subject_access_review;
mod rules;
pub mod self_subject_access_review;
pub mod self_subject_rules_review;
pub mod subject_access_review;
