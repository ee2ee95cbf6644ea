//! Who a caller is: a union of ways to know one, asked in the order of one list. What they may do is
//! decided for now by everything or nothing.

pub mod anonymous;
mod basic;
mod bootstrap_token;
pub mod config;
mod csv;
pub mod discovery;
pub mod impersonate;
mod jwt;
pub mod oidc;
pub mod request_header;
pub mod token;
mod token_file;
mod union;
pub mod webhook;
pub mod x509;

use std::sync::Arc;

use api::status::Status;
use api::{Tree, list, tree};
use kinds::User;

use crate::Server;
use crate::call::Call;
use crate::request::percent_decode;

pub use anonymous::Anonymous;
pub use basic::PasswordFile;
pub use jwt::ALGORITHMS;
pub use request_header::RequestHeader;
pub use token_file::TokenFile;
pub(crate) use union::{Answered, Ask, Authenticator, Credentials, Question, Verdict};
pub use union::{authenticate, review};
pub use x509::{Authorities, ClientChain};

pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The first that knows the caller wins. What fails on the way is kept for the log, and keeps the caller
/// from being taken for one without credentials.
static AUTHENTICATORS: &[Authenticator] = &[
    // A proxy's certificate speaks for others: it must not be taken for the proxy's own request.
    Authenticator { name: "request-header", ask: Ask::Request(request_header::authenticate) },
    Authenticator { name: "basic", ask: Ask::Request(basic::authenticate) },
    Authenticator { name: "x509", ask: Ask::Request(x509::authenticate) },
    // Tokens: what can be decided here first, what asks others last.
    Authenticator { name: "token-file", ask: Ask::Token(token_file::authenticate) },
    Authenticator { name: "service-account", ask: Ask::Token(token::authenticate) },
    Authenticator { name: "bootstrap-token", ask: Ask::Token(bootstrap_token::authenticate) },
    Authenticator { name: "oidc", ask: Ask::Token(oidc::authenticate) },
    Authenticator { name: "webhook", ask: Ask::Token(webhook::authenticate) },
];

/// What the authenticators were given at the start. What is None does not take part.
#[derive(Default)]
pub struct Authentication {
    /// Who signs the certificates of clients.
    pub clients: Option<Authorities>,
    pub request_header: Option<RequestHeader>,
    pub passwords: Option<PasswordFile>,
    pub token_file: Option<TokenFile>,
    /// None where no key was given: then there are no service account tokens.
    pub tokens: Option<token::Tokens>,
    pub bootstrap_tokens: bool,
    pub issuers: Vec<oidc::Issuer>,
    pub webhook: Option<webhook::Webhook>,
    pub anonymous: Anonymous,
    /// Whom a token must be meant for.
    pub audiences: Vec<String>,
}

impl Authentication {
    /// An identity of a way that knows no audiences: it is good for those of the server.
    fn for_any_audience(&self, user: Arc<User>, asked: &[String]) -> Verdict {
        let audiences = common(asked, &self.audiences);
        if audiences.is_empty() { Verdict::Unknown } else { Verdict::Known(union::Identity { user, audiences }) }
    }
}

fn common(asked: &[String], there: &[String]) -> Vec<String> {
    asked.iter().filter(|audience| there.contains(audience)).cloned().collect()
}

/// The user with the group that all have who are known.
fn finished(mut user: User) -> Arc<User> {
    let there = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != anonymous::NAME && !user.groups.iter().any(there) {
        user.groups.push(AUTHENTICATED.to_string());
    }
    Arc::new(user)
}

/// The key of an extra value, as the end of a header's name has it.
fn extra_key(name: &str) -> String {
    percent_decode(name).into_owned()
}

/// Paths that anyone may read: probes and the version.
fn is_open(call: &Call) -> bool {
    let path = call.path.as_str();
    let below = |open: &&str| path.strip_prefix(*open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let probe = ["/healthz", "/livez", "/readyz"].iter().any(below);
    (probe || path == "/version" || path == "/version/")
        && matches!(call.method, http::Method::GET | http::Method::HEAD | http::Method::POST)
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
    let user = call.user.as_deref().cloned().unwrap_or_default();
    let info = &call.info;
    let path = (!info.is_resource).then(|| call.path.clone());
    let check = impersonate::Check {
        verb: info.verb.to_string(),
        group: info.group.clone(),
        version: info.version.clone(),
        namespace: info.namespace.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        name: info.name.clone(),
        path,
    };
    refusal(&user, &check, "")
}

/// Whether a user may do what the check says.
async fn check(_: &Server, user: &User, check: &impersonate::Check) -> Result<(), Status> {
    if is_master(user) { Ok(()) } else { Err(refusal(user, check, "")) }
}

fn refusal(user: &User, check: &impersonate::Check, why: &str) -> Status {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    if let Some(path) = &check.path {
        let text = format!("forbidden: User {:?} cannot {} path {path:?}{why}", user.name, check.verb);
        let mut status = Status::new(403, "Forbidden", text);
        status.details = Some(api::status::Details::default());
        return status;
    }
    let resource = match check.subresource.as_str() {
        "" => check.resource.clone(),
        subresource => format!("{}/{subresource}", check.resource),
    };
    let place = match check.namespace.as_str() {
        "" => "at the cluster scope".to_string(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let text = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {place}{why}",
        user.name, check.verb, check.group
    );
    Status::forbidden(&check.group, &check.resource, &check.name, &text)
}
