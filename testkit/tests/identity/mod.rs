//! Who callers are, and what connections and answers carry.

mod authentication;
mod bound;
mod hints;
mod issuers;
pub mod jwt;
mod reload;
mod remote;
mod secured;
