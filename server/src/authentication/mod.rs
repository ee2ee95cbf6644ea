//! Authentication: the user of a request, from a union of authenticators in the order of one list.

pub mod anonymous;
mod basic;
mod bootstrap_token;
pub mod config;
pub mod csv;
mod jwt;
pub(crate) mod legacy_token;
pub mod oidc;
mod public_keys;
pub mod request_header;
pub mod token;
mod token_file;
mod union;
pub mod webhook;
mod websocket;
mod x509;

use std::sync::Arc;

use kinds::User;

use crate::metrics::Metrics;
use crate::request::info::percent_decode;
use crate::storage::Storage;

pub(crate) use crate::common::users::{AUTHENTICATED, UNAUTHENTICATED};
pub use crate::tls::client::CaBundle;
pub(crate) use crate::tls::client::ClientChain;
pub use anonymous::Anonymous;
pub use basic::PasswordFile;
pub use jwt::ALGORITHMS;
pub use request_header::RequestHeader;
pub use token_file::TokenFile;
pub(crate) use union::{Credentials, Entry, Method, TokenRequest, TokenVerdict, Verdict};
pub(crate) use union::{authenticate, review};

/// The first authenticator that recognises the caller wins. An error is kept for the log, and the caller is then not
/// treated as anonymous.
static AUTHENTICATORS: &[Entry] = &[
    // A proxy's certificate authenticates other users: the request must not be attributed to the proxy itself.
    Entry { name: "request-header", method: Method::Request(request_header::authenticate) },
    Entry { name: "basic", method: Method::Request(basic::authenticate) },
    Entry { name: "x509", method: Method::Request(x509::authenticate) },
    // Tokens: authenticators that decide locally first, those that call other servers last.
    Entry { name: "token-file", method: Method::Token(token_file::authenticate) },
    Entry { name: "service-account", method: Method::Token(token::authenticate) },
    Entry { name: "bootstrap-token", method: Method::Token(bootstrap_token::authenticate) },
    Entry { name: "oidc", method: Method::Token(oidc::authenticate) },
    Entry { name: "webhook", method: Method::Token(webhook::authenticate) },
];

/// The configuration of the authenticators. A value of None disables the authenticator.
#[derive(Default)]
pub struct Authentication {
    /// The CAs of client certificates.
    pub clients: Option<CaBundle>,
    pub request_header: Option<RequestHeader>,
    pub passwords: Option<PasswordFile>,
    pub token_file: Option<TokenFile>,
    /// None without a key: service account tokens are then disabled.
    pub tokens: Option<token::Tokens>,
    pub bootstrap_tokens: bool,
    pub issuers: oidc::Issuers,
    pub webhook: Option<webhook::Webhook>,
    pub anonymous: Anonymous,
    /// The audiences of the API server, for tokens.
    pub audiences: Vec<String>,
    pub legacy_uses: legacy_token::UsedSecrets,
}

impl Authentication {
    /// The identity from an authenticator without audiences: it is valid for the audiences of the server.
    fn for_any_audience(&self, user: Arc<User>, requested: &[String]) -> Verdict {
        let audiences = common(requested, &self.audiences);
        if audiences.is_empty() { Verdict::Unknown } else { Verdict::Known(union::Identity::new(user, audiences)) }
    }
}

/// The configured authenticators, with the objects that they look up.
pub struct Authenticator {
    pub config: Authentication,
    storage: Arc<Storage>,
    metrics: Arc<Metrics>,
    /// The issuers of service account tokens: the first one signs, all are accepted.
    issuers: Vec<String>,
}

impl Authenticator {
    pub(crate) fn new(
        config: Authentication,
        storage: Arc<Storage>,
        metrics: Arc<Metrics>,
        issuers: Vec<String>,
    ) -> Authenticator {
        Authenticator { config, storage, metrics, issuers }
    }
}

fn common(requested: &[String], there: &[String]) -> Vec<String> {
    requested.iter().filter(|audience| there.contains(audience)).cloned().collect()
}

/// The key of an extra value, as the end of a header's name has it.
pub(crate) fn extra_key(name: &str) -> String {
    percent_decode(name).into_owned()
}
