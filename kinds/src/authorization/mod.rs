//! The kinds of the `authorization` group, one file per kind.

pub(crate) mod local_subject_access_review;
mod rules;
pub(crate) mod self_subject_access_review;
pub(crate) mod self_subject_rules_review;
pub(crate) mod subject_access_review;
