//! Deletes pods that nobody else ends.

mod plan;
