//! The kinds of the `batch` group, a file a kind.

pub mod cron;
pub mod cron_job;
pub mod job;
