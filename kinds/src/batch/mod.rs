//! The kinds of the `batch` group, one file per kind.

pub mod cron;
pub(crate) mod cron_job;
pub mod job;
