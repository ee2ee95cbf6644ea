//! Who a caller is. For now: client certificates and the tokens of service accounts.

pub mod discovery;
pub mod token;
mod x509;

use std::sync::Arc;

use api::status::Status;
use http::header;
use kinds::User;

use crate::Server;
use crate::call::Call;

pub use x509::{Authenticator, ClientChain};

/// Paths that anyone may read: probes and the version.
pub fn is_open(call: &Call) -> bool {
    let path = call.path.as_str();
    let below = |open: &&str| path.strip_prefix(*open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let probe = ["/healthz", "/livez", "/readyz"].iter().any(below);
    (probe || path == "/version" || path == "/version/")
        && matches!(call.method, http::Method::GET | http::Method::HEAD | http::Method::POST)
}

/// Puts the caller's identity into the call. The credentials do not travel on.
pub fn authenticate(server: &Server, call: &mut Call) -> Result<(), Status> {
    let bearer = call.headers.remove(header::AUTHORIZATION);
    call.user = server.auth.identify(&call.peer.certificates, call.now);
    if call.user.is_none() {
        call.user = bearer.and_then(|value| bearer_user(server, value.to_str().ok()?, call.now)).map(Arc::new);
    }
    if call.user.is_none() && !is_open(call) {
        return Err(Status::unauthorized());
    }
    Ok(())
}

/// The owner of a service account's token that is meant for this server.
fn bearer_user(server: &Server, header: &str, now: i64) -> Option<User> {
    let (scheme, token) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    token::authenticate(server, token.trim(), &[&server.config.issuer], now).ok().map(|verified| verified.user)
}
