//! Tokens that another server authenticates, by a TokenReview. Its responses are cached.

use std::collections::HashMap;
use std::time::Duration;

use api::{Tree, json, tree};
use aws_lc_rs::digest;
use kinds::User;
use stdx::sync::Mutex;
use tokio::time::Instant;

use super::union::Identity;
use super::{TokenRequest, TokenVerdict, Verdict, common};
use crate::authentication::Authenticator;
use crate::common::users::with_authenticated_group;
use crate::outbound::callout::{self, kubeconfig::Remote};

/// The timeout of a token review.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 8192;

/// A version of TokenReview that the webhook cannot be called with.
#[derive(Debug, thiserror::Error)]
#[error("unknown version {0:?}: use v1 or v1beta1")]
pub struct UnknownVersion(String);

/// Why the webhook returned no decision.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error("the webhook responded with {0}")]
    Code(u16),
    #[error("the webhook's response is not JSON")]
    NotJson,
    #[error("the webhook's response has no status")]
    NoStatus,
    #[error("the webhook refuses: {0}")]
    Refused(String),
    #[error("the webhook accepts the token but names no user")]
    NoUser,
}

/// The server that reviews tokens, with a cache of its responses.
pub struct Webhook {
    remote: Remote,
    /// `v1` or `v1beta1` of authentication.k8s.io.
    version: &'static str,
    cache_ttl: Duration,
    cache: Mutex<HashMap<Fingerprint, CachedIdentity>>,
}

/// The hash of a token and its audiences: the token itself is not stored.
type Fingerprint = [u8; 32];

struct CachedIdentity {
    until: Instant,
    /// None if the webhook does not recognise the token.
    identity: Option<Identity>,
}

impl Webhook {
    /// `version` is v1 or v1beta1 of TokenReview.
    pub fn new(remote: Remote, version: &str, cache_ttl: Duration) -> Result<Webhook, UnknownVersion> {
        let version = match version {
            "v1" => "v1",
            "v1beta1" => "v1beta1",
            other => return Err(UnknownVersion(other.to_string())),
        };
        Ok(Webhook { remote, version, cache_ttl, cache: Mutex::default() })
    }

    fn cached(&self, key: &Fingerprint) -> Option<Option<Identity>> {
        let cache = self.cache.lock();
        let cached = cache.get(key).filter(|cached| cached.until > Instant::now())?;
        Some(cached.identity.clone())
    }

    fn cache_identity(&self, key: Fingerprint, identity: Option<Identity>) {
        let now = Instant::now();
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, cached| cached.until > now);
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(key, CachedIdentity { until: now + self.cache_ttl, identity });
    }

    async fn post(&self, own: &[String], request: TokenRequest<'_>) -> Result<Option<Identity>, ReviewError> {
        let body = json::encode(&review(self.version, request), None);
        let response = self.remote.client.post_json(&self.remote.url, body, TIMEOUT).await?;
        if !response.is_success() {
            return Err(ReviewError::Code(response.code));
        }
        let response = json::decode(&response.body).map_err(|_| ReviewError::NotJson)?;
        read_review(&response, own, request.audiences)
    }
}

pub(crate) fn authenticate<'a>(auth: &'a Authenticator, request: TokenRequest<'a>) -> TokenVerdict<'a> {
    let Some(webhook) = &auth.config.webhook else { return TokenVerdict::Now(Verdict::Unknown) };
    let key = fingerprint(request);
    if let Some(identity) = webhook.cached(&key) {
        return TokenVerdict::Now(identity.map_or(Verdict::Unknown, Verdict::Known));
    }
    TokenVerdict::Later(Box::pin(async move {
        match webhook.post(&auth.config.audiences, request).await {
            Ok(identity) => {
                webhook.cache_identity(key, identity.clone());
                identity.map_or(Verdict::Unknown, Verdict::Known)
            }
            // A failure is not cached: the next request may succeed.
            Err(why) => {
                tracing::warn!(%why, "token review by webhook failed");
                Verdict::refused(why)
            }
        }
    }))
}

fn fingerprint(request: TokenRequest<'_>) -> Fingerprint {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in request.audiences.iter().map(String::as_str).chain([request.token]) {
        context.update(&part.len().to_le_bytes());
        context.update(part.as_bytes());
    }
    let mut fingerprint = Fingerprint::default();
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}

fn review(version: &str, request: TokenRequest<'_>) -> Tree {
    let audiences: Vec<Tree> = request.audiences.iter().map(Tree::from).collect();
    tree! {
        "kind" => "TokenReview",
        "apiVersion" => format!("authentication.k8s.io/{version}"),
        "metadata" => tree! { "creationTimestamp" => Tree::Null },
        "spec" => tree! { "token" => request.token, "audiences" => audiences },
        "status" => tree! { "user" => tree! {} },
    }
}

/// The identity in a response; None if the token is not authenticated. A response without audiences is valid for the
/// audiences of the server.
fn read_review(response: &Tree, own: &[String], requested: &[String]) -> Result<Option<Identity>, ReviewError> {
    let status = response.at("status");
    if status.as_map().is_none() {
        return Err(ReviewError::NoStatus);
    }
    let named: Vec<String> = status.list("audiences").iter().filter_map(Tree::as_str).map(str::to_string).collect();
    let audiences = common(requested, if named.is_empty() { own } else { &named });
    if audiences.is_empty() {
        return Ok(None);
    }
    if !status.bool("authenticated") {
        let error = status.str("error");
        return if error.is_empty() { Ok(None) } else { Err(ReviewError::Refused(error.to_string())) };
    }
    let user = user(status.at("user"));
    if user.name.is_empty() {
        return Err(ReviewError::NoUser);
    }
    Ok(Some(Identity::new(with_authenticated_group(user), audiences)))
}

fn user(tree: &Tree) -> User {
    let texts = |list: &[Tree]| list.iter().filter_map(Tree::as_str).map(str::to_string).collect();
    User {
        name: tree.str("username").to_string(),
        uid: tree.str("uid").to_string(),
        groups: texts(tree.list("groups")),
        extra: tree.map("extra").clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn answers_are_judged() {
        let cases = [
            (r#"{"status":{"authenticated":true,"user":{"username":"u","groups":["g"]}}}"#, Ok("u own")),
            (r#"{"status":{"authenticated":true,"user":{"username":"u"},"audiences":["x"]}}"#, Ok("u x")),
            (r#"{"status":{"authenticated":true,"user":{"username":"u"},"audiences":["y"]}}"#, Ok("nobody")),
            (r#"{"status":{"authenticated":true}}"#, Err("the webhook accepts the token but names no user")),
            (r#"{"status":{"authenticated":false}}"#, Ok("nobody")),
            (r#"{"status":{"error":"bad"}}"#, Err("the webhook refuses: bad")),
            (r#"{"kind":"Other"}"#, Err("the webhook's response has no status")),
            ("[]", Err("the webhook's response has no status")),
        ];
        for (response, want) in cases {
            let answer_tree = json::decode(response.as_bytes()).expect("JSON");
            let judged =
                read_review(&answer_tree, &named(&["own"]), &named(&["own", "x"])).map_err(|error| error.to_string());
            let shown = judged.map(|identity| {
                identity
                    .map_or("nobody".to_string(), |known| format!("{} {}", known.user.name, known.audiences.join(",")))
            });
            assert_eq!(shown.as_deref().map_err(String::as_str), want, "{response}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_token_and_audiences() {
        let of = |token: &str, audiences: &[&str]| {
            let audiences = named(audiences);
            fingerprint(TokenRequest { token, audiences: &audiences, now: 0 })
        };
        assert_eq!(of("t", &["a"]), of("t", &["a"]));
        assert_ne!(of("t", &["a"]), of("t", &["b"]));
        assert_ne!(of("at", &[]), of("t", &["a"]));
    }
}
