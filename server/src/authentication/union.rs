//! Runs the authenticators one after the other, without a future as long as none of them has to wait.

use std::pin::Pin;
use std::sync::Arc;

use api::status::Status;
use http::{HeaderMap, header};
use kinds::User;

use super::{AUTHENTICATORS, Authenticator, websocket};
use crate::call::{Call, Peer, StageResult};
use crate::request::head::RequestHead;

/// One authentication method.
pub(crate) struct Entry {
    pub name: &'static str,
    pub method: Method,
}

pub(crate) enum Method {
    /// Authenticates the connection and its headers.
    Request(fn(&Authenticator, &mut RequestHead, &Peer, &Credentials) -> Verdict),
    /// Authenticates a bearer token; TokenReviews use these.
    Token(for<'a> fn(&'a Authenticator, TokenRequest<'a>) -> TokenVerdict<'a>),
}

/// A token, its requested audiences, and the time.
#[derive(Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub token: &'a str,
    pub audiences: &'a [String],
    pub now: i64,
}

pub(crate) enum TokenVerdict<'a> {
    Now(Verdict),
    Later(Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>),
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Known(Identity),
    /// The request has no credentials for this authenticator.
    Unknown,
    /// The credentials are for this authenticator and are invalid. The text contains no secret.
    Refused(String),
}

/// An authenticated user, and which of the requested audiences the token is for.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
    /// Audit annotations about the credentials.
    pub notes: Vec<(&'static str, String)>,
}

impl Identity {
    pub(crate) fn new(user: Arc<User>, audiences: Vec<String>) -> Identity {
        Identity { user, audiences, notes: Vec::new() }
    }
}

impl Verdict {
    pub(crate) fn known(user: Arc<User>) -> Verdict {
        Verdict::Known(Identity::new(user, Vec::new()))
    }

    /// Adds annotations if the user is authenticated.
    pub(crate) fn with_annotations(mut self, notes: Vec<(&'static str, String)>) -> Verdict {
        if let Verdict::Known(identity) = &mut self {
            identity.notes = notes;
        }
        self
    }

    pub(crate) fn refused(why: impl std::fmt::Display) -> Verdict {
        Verdict::Refused(why.to_string())
    }
}

/// The content of the Authorization header.
#[derive(Default)]
pub(crate) struct Credentials(String);

impl Credentials {
    /// The header does not travel on. Two of them could be read differently by two readers: none counts.
    fn take(headers: &mut HeaderMap) -> Result<Credentials, Status> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or("").trim().to_string());
        let many = values.next().is_some();
        if first.is_some() {
            headers.remove(header::AUTHORIZATION);
        }
        if many { Err(Status::unauthorized()) } else { Ok(Credentials(first.unwrap_or_default())) }
    }

    /// The text after the name of the scheme, up to the next space.
    pub(crate) fn parameters_of(&self, scheme: &str) -> Option<&str> {
        let mut words = self.0.split(' ');
        let named = words.next()?.eq_ignore_ascii_case(scheme);
        words.next().filter(|word| named && !word.is_empty())
    }
}

/// The authenticators that rejected the credentials, and why; as an error, the message in a TokenReview.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(&'static str, String)>);

impl Failures {
    /// The identity of a verdict; a rejection is recorded.
    fn take_identity(&mut self, name: &'static str, verdict: Verdict) -> Option<Identity> {
        match verdict {
            Verdict::Known(identity) => return Some(identity),
            Verdict::Refused(why) => self.0.push((name, why)),
            Verdict::Unknown => {}
        }
        None
    }
}

impl std::fmt::Display for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("invalid bearer token");
        }
        let all: Vec<&str> = self.0.iter().map(|(_, why)| why.as_str()).collect();
        write!(f, "[invalid bearer token, {}]", all.join(", "))
    }
}

impl std::error::Error for Failures {}

/// Puts the caller's identity into the call. The credentials do not travel on.
pub(crate) fn authenticate<'a>(auth: &'a Authenticator, call: &'a mut Call) -> StageResult<'a> {
    // Only an in-process request already has its user.
    if call.caller.user.is_some() {
        return StageResult::Done(Ok(()));
    }
    let credentials = match Credentials::take(&mut call.head.headers) {
        Ok(credentials) => credentials,
        Err(status) => return StageResult::Done(Err(status)),
    };
    let mut failures = Failures::default();
    if let Some(identity) = authenticate_request(auth, &mut call.head, &call.peer, &credentials, &mut failures) {
        call.caller.user = Some(identity.user);
        return StageResult::Done(Ok(()));
    }
    let Some(token) = bearer(&mut call.head.headers, &credentials, &mut failures) else {
        return StageResult::Done(conclude(auth, call, None, &failures));
    };
    let request = TokenRequest { token: &token, audiences: &auth.config.audiences, now: call.head.now };
    let left = match authenticate_token(auth, request, AUTHENTICATORS, &mut failures) {
        Progress::Done(found) => {
            return StageResult::Done(conclude_token(auth, call, found, failures));
        }
        Progress::Waiting { from, .. } => from,
    };
    StageResult::Later(Box::pin(async move {
        let request = TokenRequest { token: &token, audiences: &auth.config.audiences, now: call.head.now };
        let found = await_token(auth, request, left, &mut failures).await;
        conclude_token(auth, call, found, failures)
    }))
}

/// The token of the header, or of a WebSocket's subprotocol.
fn bearer(headers: &mut HeaderMap, credentials: &Credentials, failures: &mut Failures) -> Option<String> {
    let of_browser = websocket::take_token(headers).unwrap_or_else(|why| {
        failures.0.push(("websocket", why.to_string()));
        None
    });
    credentials.parameters_of("bearer").map(str::to_string).or(of_browser)
}

/// The user of a token, for a TokenReview, from the same list.
pub(crate) async fn review(
    auth: &Authenticator,
    token: &str,
    audiences: &[String],
    now: i64,
) -> Result<Identity, Failures> {
    let mut failures = Failures::default();
    let request = TokenRequest { token, audiences, now };
    let found = await_token(auth, request, AUTHENTICATORS, &mut failures).await;
    found.ok_or(failures)
}

fn authenticate_request(
    auth: &Authenticator,
    head: &mut RequestHead,
    peer: &Peer,
    credentials: &Credentials,
    failures: &mut Failures,
) -> Option<Identity> {
    AUTHENTICATORS.iter().find_map(|way| match way.method {
        Method::Request(ask) => failures.take_identity(way.name, ask(auth, head, peer, credentials)),
        Method::Token(_) => None,
    })
}

enum Progress<'a> {
    Done(Option<Identity>),
    /// The first authenticator of `from` has to wait; it can be called again.
    Waiting {
        from: &'static [Entry],
        wait: Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>,
    },
}

fn authenticate_token<'a>(
    auth: &'a Authenticator,
    request: TokenRequest<'a>,
    mut left: &'static [Entry],
    failures: &mut Failures,
) -> Progress<'a> {
    while let Some((way, rest)) = left.split_first() {
        if let Method::Token(ask) = way.method {
            match ask(auth, request) {
                TokenVerdict::Later(wait) => return Progress::Waiting { from: left, wait },
                TokenVerdict::Now(verdict) => {
                    if let Some(identity) = failures.take_identity(way.name, verdict) {
                        return Progress::Done(Some(identity));
                    }
                }
            }
        }
        left = rest;
    }
    Progress::Done(None)
}

async fn await_token(
    auth: &Authenticator,
    request: TokenRequest<'_>,
    mut left: &'static [Entry],
    failures: &mut Failures,
) -> Option<Identity> {
    loop {
        match authenticate_token(auth, request, left, failures) {
            Progress::Done(found) => return found,
            Progress::Waiting { from, wait } => {
                let (way, rest) = from.split_first()?;
                if let Some(identity) = failures.take_identity(way.name, wait.await) {
                    return Some(identity);
                }
                left = rest;
            }
        }
    }
}

fn conclude_token(
    auth: &Authenticator,
    call: &mut Call,
    found: Option<Identity>,
    mut failures: Failures,
) -> Result<(), Status> {
    if found.is_none() {
        failures.0.push(("bearer", "no authenticator accepts the token".to_string()));
    }
    conclude(auth, call, found, &failures)
}

/// A request with invalid credentials is never anonymous.
fn conclude(auth: &Authenticator, call: &mut Call, found: Option<Identity>, failures: &Failures) -> Result<(), Status> {
    call.caller.user = match found {
        Some(identity) => {
            for (key, note) in identity.notes {
                call.audit.annotations.add(key, note);
            }
            Some(identity.user)
        }
        None if failures.0.is_empty() => auth.config.anonymous.user(&call.head.path),
        None => None,
    };
    if call.caller.user.is_some() {
        return Ok(());
    }
    tracing::debug!(failures = ?failures.0, path = call.head.path, "authentication failed");
    Err(Status::unauthorized())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_once_and_goes() {
        type Case = (&'static [&'static str], Result<Option<&'static str>, ()>);
        let cases: [Case; 8] = [
            (&[], Ok(None)),
            (&["Bearer abc"], Ok(Some("abc"))),
            (&["  bearer abc def "], Ok(Some("abc"))),
            (&["Bearer "], Ok(None)),
            (&["Bearer  abc"], Ok(None)),
            (&["Basic YTpi"], Ok(None)),
            (&["Bearer abc", "Bearer def"], Err(())),
            (&["Bearer abc", "Basic YTpi"], Err(())),
        ];
        for (values, want) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().expect("a value"));
            }
            let taken = Credentials::take(&mut headers);
            let got = taken.as_ref().map(|credentials| credentials.parameters_of("bearer")).map_err(|_| ());
            assert_eq!(got, want, "{values:?}");
            assert!(headers.is_empty(), "{values:?}");
        }
    }

    #[test]
    fn failures_are_reported_together() {
        let mut failures = Failures::default();
        assert_eq!(failures.to_string(), "invalid bearer token");
        assert!(failures.take_identity("a", Verdict::Unknown).is_none() && failures.0.is_empty());
        failures.take_identity("a", Verdict::refused("one"));
        failures.take_identity("b", Verdict::refused("two"));
        assert_eq!(failures.to_string(), "[invalid bearer token, one, two]");
    }
}
