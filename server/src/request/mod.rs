//! What a request and a response are made of: plain types that know no server.

pub mod accept;
pub mod body;
pub mod codec;
pub mod compress;
pub mod info;
pub mod limits;
pub(crate) mod negotiate;
pub mod received;
pub mod sources;
pub mod turns;
