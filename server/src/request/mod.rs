//! What a request and a response are made of: plain types that know no server.

pub mod accept;
pub mod audit;
pub mod body;
pub mod codec;
pub mod compress;
pub mod cors;
pub mod head;
pub mod in_process;
pub mod info;
pub mod limits;
pub(crate) mod negotiate;
pub mod received;
pub mod turns;
pub mod watched;
