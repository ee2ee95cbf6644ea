//! How claims and volumes come together, as decisions: for a claim, for a volume, and what is written.

pub mod claim;
pub mod matching;
pub mod volume;
pub mod writes;
