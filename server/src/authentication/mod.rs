//! Who a caller is: a union of ways to know one, asked in the order of one list.

pub mod anonymous;
mod basic;
mod bootstrap_token;
pub mod config;
mod csv;
mod jwt;
pub mod legacy_token;
pub mod oidc;
mod public_keys;
pub mod request_header;
pub mod token;
mod token_file;
mod union;
pub mod webhook;
mod websocket;
pub mod x509;

use std::sync::Arc;

use kinds::User;

use crate::request::info::percent_decode;

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
    pub issuers: oidc::Issuers,
    pub webhook: Option<webhook::Webhook>,
    pub anonymous: Anonymous,
    /// Whom a token must be meant for.
    pub audiences: Vec<String>,
    pub legacy_uses: legacy_token::Uses,
}

impl Authentication {
    /// An identity of a way that knows no audiences: it is good for those of the server.
    fn for_any_audience(&self, user: Arc<User>, asked: &[String]) -> Verdict {
        let audiences = common(asked, &self.audiences);
        if audiences.is_empty() { Verdict::Unknown } else { Verdict::Known(union::Identity::new(user, audiences)) }
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
pub(crate) fn extra_key(name: &str) -> String {
    percent_decode(name).into_owned()
}
