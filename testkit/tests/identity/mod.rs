//! Who callers are, and what connections and answers carry.

mod authentication;
mod jwt;
mod remote;
mod secured;
