//! kubectl: the command line client of the API, with upstream's commands, flags, outputs and exit codes.
//!
//! [`main`] runs a command line. The modules are layers: `flags`, `kubeconfig` and `transport`; `discovery`; `context`,
//! which a command gets; `objects` and `print`; `commands`; and on top `cli`. Nothing here knows the server.

#![warn(unreachable_pub)]

mod cli;
mod clock;
mod command;
mod commands;
mod context;
mod describe;
mod discovery;
mod error;
mod flags;
mod globals;
mod help;
mod kubeconfig;
mod kuberc;
mod objects;
mod plugins;
mod preferences;
mod print;
mod transport;

pub use cli::{main, main_of_past};
