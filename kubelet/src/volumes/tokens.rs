//! Tokens of service accounts for pods, kept until they are due to be replaced.

use std::collections::BTreeMap;

use api::{Tree, list, tree};
use client::{Client, Resource};
use stdx::clock::Clock;
use stdx::sync::Mutex;

use crate::model::pod;

const ACCOUNTS: Resource = Resource::core("serviceaccounts");
/// The longest use of a token, whatever its expiration.
const LONGEST_USE_SECONDS: i64 = 24 * 3600;
const DEFAULT_SECONDS: i64 = 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// When the token should be replaced, in seconds since the epoch.
    pub(crate) due: i64,
    /// `status.expirationTimestamp` of the response.
    pub(crate) expiration: String,
    expires: i64,
    /// The lifetime in seconds.
    seconds: i64,
}

impl Token {
    /// A remaining time longer than the allowed use means that the clock was set back: the token's age is unknown then.
    fn is_fresh(&self, now: i64) -> bool {
        (1..=use_seconds(self.seconds)).contains(&(self.due - now))
    }
}

/// A token is one pod's, for one audience and one length of life.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: String,
    account: String,
    audience: Vec<String>,
    seconds: i64,
}

/// A token that the API server has not issued.
#[derive(Debug, thiserror::Error)]
#[error("failed to fetch token: {}", .0.message())]
pub(crate) struct TokenError(#[source] client::Error);

#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<Key, Token>>);

impl Tokens {
    /// The token of a `serviceAccountToken` source.
    pub(crate) async fn get(
        &self,
        client: &Client,
        clock: &dyn Clock,
        pod: &Tree,
        source: &Tree,
    ) -> Result<Token, TokenError> {
        let audience = source.str("audience");
        let audience = if audience.is_empty() { Vec::new() } else { vec![audience.to_string()] };
        let seconds = source.int("expirationSeconds").unwrap_or(DEFAULT_SECONDS);
        self.request(client, clock, pod, audience, seconds).await
    }

    pub(crate) async fn request(
        &self,
        client: &Client,
        clock: &dyn Clock,
        pod: &Tree,
        audience: Vec<String>,
        seconds: i64,
    ) -> Result<Token, TokenError> {
        let account = pod.str("spec.serviceAccountName").to_string();
        let key = Key { uid: pod::uid(pod).to_string(), account, audience, seconds };
        let now = clock.now().seconds;
        let kept = self.0.lock().get(&key).cloned();
        if let Some(token) = kept.as_ref().filter(|token| token.is_fresh(now)) {
            return Ok(token.clone());
        }
        match request_token(client, pod, &key, now).await {
            Ok(token) => {
                self.0.lock().insert(key, token.clone());
                Ok(token)
            }
            // A token that has not expired is better than none.
            Err(error) => kept.filter(|token| now < token.expires).ok_or(TokenError(error)),
        }
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.0.lock().retain(|key, _| key.uid != uid);
    }
}

async fn request_token(client: &Client, pod: &Tree, key: &Key, now: i64) -> client::Result<Token> {
    let response =
        client.create_subresource(ACCOUNTS, pod::namespace(pod), &key.account, "token", &request(pod, key)).await;
    let response = response?;
    let text = response.str("status.token").to_string();
    // The server may have shortened its life. Its clock may differ from ours: only the length counts.
    let seconds = response.int("spec.expirationSeconds").unwrap_or(key.seconds);
    let expiration = response.str("status.expirationTimestamp").to_string();
    Ok(Token { text, due: now + use_seconds(seconds), expiration, expires: now.saturating_add(seconds), seconds })
}

fn request(pod: &Tree, key: &Key) -> Tree {
    let bound = tree! { "apiVersion" => "v1", "kind" => "Pod", "name" => pod::name(pod), "uid" => pod::uid(pod) };
    let mut spec = tree! { "expirationSeconds" => key.seconds, "boundObjectRef" => bound, "audiences" => list![] };
    for audience in &key.audience {
        spec.list_entry("audiences").push(audience.into());
    }
    tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => spec }
}

/// Four fifths of its life, or a day.
fn use_seconds(seconds: i64) -> i64 {
    (seconds - seconds / 5).clamp(1, LONGEST_USE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_tokens_in_time() {
        for (seconds, wanted) in [(3600, 2880), (600, 480), (7 * 86_400, 86_400), (0, 1)] {
            assert_eq!(use_seconds(seconds), wanted, "{seconds}");
        }
    }

    #[test]
    fn replaces_tokens_of_unknown_age() {
        let token =
            Token { text: String::new(), due: 10_000, expiration: String::new(), expires: 10_720, seconds: 3600 };
        for (now, fresh) in [(7_120, true), (9_999, true), (10_000, false), (7_119, false), (100, false)] {
            assert_eq!(token.is_fresh(now), fresh, "{now}");
        }
    }

    #[test]
    fn binds_tokens_to_their_pod() {
        let pod = api::yaml::decode(b"metadata: {name: p, uid: u}").unwrap();
        let key = Key { uid: "u".into(), account: "a".into(), audience: vec!["x".into()], seconds: 600 };
        let token_request = request(&pod, &key);
        assert_eq!(token_request.list("spec.audiences"), [Tree::from("x")]);
        assert_eq!(token_request.str("spec.boundObjectRef.uid"), "u");
        assert_eq!(token_request.int("spec.expirationSeconds"), Some(600));
    }
}
