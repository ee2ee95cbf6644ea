//! Runs jobs.

mod back_off;
mod failure_policy;
mod indexes;
mod plan;
mod pods;
mod status;
#[cfg(test)]
mod tests;
mod track;
mod view;
