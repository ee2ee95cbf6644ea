//! Who callers are, and what connections and answers carry.

mod authentication;
mod issuers;
mod jwt;
mod reload;
mod remote;
mod secured;
