//! Deletes finished jobs when their time is over.

mod plan;
