//! Sockets, TLS and HTTP: what is the same for every request.

pub mod accept;
pub mod body;
pub mod component;
pub mod compress;
pub mod cors;
pub mod io;
pub mod received;
mod request_line;
pub mod serve;
pub mod sources;
pub mod tls;
