//! Requests and responses: plain types that do not depend on a server.

pub mod accept;
pub mod audit;
pub mod body;
pub(crate) mod codec;
pub(crate) mod compress;
pub mod cors;
pub(crate) mod cpu_permits;
pub mod head;
pub mod in_process;
pub mod info;
pub mod limits;
pub(crate) mod negotiate;
pub(crate) mod request_body;
pub mod watch_flag;
