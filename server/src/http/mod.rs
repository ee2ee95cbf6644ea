//! Listeners and connections: TLS and HTTP on a socket.

mod activity;
pub mod component;
pub mod io;
mod request_line;
pub mod serve;
