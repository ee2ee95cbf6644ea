//! Who a caller is and what they may do. For now: client certificates, and everything or nothing.

mod x509;

use api::status::Status;
use http::header;

use crate::Server;
use crate::call::Call;

pub use x509::Authenticator;

/// Paths that anyone may read: probes and the version.
fn is_open(call: &Call) -> bool {
    let path = call.path.as_str();
    let probe =
        ["/healthz", "/livez", "/readyz"].iter().any(|open| path == *open || path.starts_with(&format!("{open}/")));
    (probe || path == "/version" || path == "/version/")
        && matches!(call.method, http::Method::GET | http::Method::HEAD | http::Method::POST)
}

/// Puts the caller's identity into the call. The credentials do not travel on.
pub fn authenticate(server: &Server, call: &mut Call) -> Result<(), Status> {
    call.headers.remove(header::AUTHORIZATION);
    call.user = server.auth.identify(&call.peer.certificates, call.now);
    if call.user.is_none() && !is_open(call) {
        return Err(Status::unauthorized());
    }
    Ok(())
}

/// `system:masters` may do everything; nobody else anything but the open paths.
pub fn authorize(_: &Server, call: &mut Call) -> Result<(), Status> {
    if is_open(call) {
        return Ok(());
    }
    match &call.user {
        Some(user) if user.groups.iter().any(|group| group == "system:masters") => Ok(()),
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
