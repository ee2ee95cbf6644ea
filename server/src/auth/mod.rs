//! Who a caller is and what they may do. For now: client certificates, and everything or nothing.

pub mod discovery;
pub mod token;
mod x509;

use std::sync::Arc;

use api::status::Status;
use api::{Tree, list, tree};
use http::header;
use kinds::User;

use crate::Server;
use crate::call::Call;

pub use x509::{Authenticator, ClientChain};

/// Paths that anyone may read: probes and the version.
fn is_open(call: &Call) -> bool {
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

/// What an access review is told.
#[derive(Debug, Clone, Default)]
pub struct Access {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
}

/// Whether a user may do what the spec of an access review says. This and `rules` are all that reviews
/// ask.
pub fn access(_: &Server, user: &User, _spec: &Tree) -> Access {
    Access { allowed: is_master(user), ..Access::default() }
}

/// What a user may do in a namespace, as a rules review lists it: rules for resources, then for paths.
pub fn rules(_: &Server, user: &User, _namespace: &str) -> (Tree, Tree) {
    if !is_master(user) {
        return (list![], list![]);
    }
    (
        list![tree! { "verbs" => list!["*"], "apiGroups" => list!["*"], "resources" => list!["*"] }],
        list![tree! { "verbs" => list!["*"], "nonResourceURLs" => list!["*"] }],
    )
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
}

/// `system:masters` may do everything; nobody else anything but the open paths.
pub fn authorize(_: &Server, call: &mut Call) -> Result<(), Status> {
    match &call.user {
        Some(user) if is_master(user) => Ok(()),
        _ if is_open(call) => Ok(()),
        Some(_) => Err(forbidden(call)),
        None => Err(Status::unauthorized()),
    }
}

fn forbidden(call: &Call) -> Status {
    let user = call.user_name();
    let info = &call.info;
    if !info.is_resource {
        let mut status = Status::new(
            403,
            "Forbidden",
            format!("forbidden: User {user:?} cannot {} path {:?}", info.verb, call.path),
        );
        status.details = Some(api::status::Details::default());
        return status;
    }
    let resource = if info.subresource.is_empty() {
        info.resource.clone()
    } else {
        format!("{}/{}", info.resource, info.subresource)
    };
    let place = if info.namespace.is_empty() {
        "at the cluster scope".to_string()
    } else {
        format!("in the namespace {:?}", info.namespace)
    };
    let why = format!("User {user:?} cannot {} resource {resource:?} in API group {:?} {place}", info.verb, info.group);
    Status::forbidden(&info.group, &info.resource, &info.name, &why)
}
