//! Authentication, and what connections and responses contain.

mod authentication;
mod bound;
mod hints;
mod issuers;
pub mod jwt;
mod reload;
mod remote;
mod secured;
