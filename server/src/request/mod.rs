//! What a request and a response are made of: plain types that know no server.

pub mod accept;
pub mod audit;
pub mod body;
pub(crate) mod codec;
pub(crate) mod compress;
pub mod cors;
pub mod head;
pub mod in_process;
pub mod info;
pub mod limits;
pub(crate) mod negotiate;
pub(crate) mod received;
pub(crate) mod turns;
pub mod watched;
