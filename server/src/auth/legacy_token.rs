//! Tokens without an end that are kept in secrets: they hold while secret and account do, and are no
//! others than the secret has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Tree, base64, json, time, tree};
use aws_lc_rs::constant_time;
use bytes::Bytes;
use http::{Request, header};
use kinds::User;

use super::{Question, Verdict, finished};
use crate::{Server, bootstrap, local};

pub const ISSUER: &str = "kubernetes/serviceaccount";
const PREFIX: &str = "kubernetes.io/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID: &str = "service account token has been invalidated";

pub fn judge(server: &Server, claims: &Tree, question: Question<'_>) -> Verdict {
    let claim = |name: &str| claims.get(&format!("{PREFIX}/{name}")).and_then(Tree::as_str).unwrap_or("");
    let (namespace, account) = (claim("namespace"), claim("service-account.name"));
    let secret = server.object("secrets", &format!("{namespace}/{}", claim("secret.name")));
    let there = server.object("serviceaccounts", &format!("{namespace}/{account}"));
    let uid = claim("service-account.uid");
    if let Err(why) = check(secret.as_deref(), there.as_deref(), uid, question.token) {
        return Verdict::refused(why);
    }
    let name = format!("system:serviceaccount:{namespace}:{account}");
    if claims.str("sub") != name {
        return Verdict::refused("service account token has another subject".to_string());
    }
    let today = date(question.now);
    if secret.as_deref().is_some_and(|secret| secret.map("metadata.labels").str(LAST_USED) != today) {
        server.auth.legacy_uses.note(&format!("{namespace}/{}", claim("secret.name")), today);
    }
    let groups = vec!["system:serviceaccounts".to_string(), format!("system:serviceaccounts:{namespace}")];
    let user = User { name, uid: uid.to_string(), groups, ..User::default() };
    server.auth.for_any_audience(finished(user), question.audiences)
}

fn check(secret: Option<&Tree>, account: Option<&Tree>, uid: &str, token: &str) -> Result<(), String> {
    let lives = |object: &&Tree| !object.at("metadata").has("deletionTimestamp");
    let secret = secret.filter(lives).ok_or(INVALID)?;
    let kept = base64::decode(secret.map("data").str("token")).unwrap_or_default();
    constant_time::verify_slices_are_equal(&kept, token.as_bytes()).map_err(|_| INVALID)?;
    let since = secret.map("metadata.labels").str(INVALID_SINCE);
    if !since.is_empty() {
        return Err(format!("service account token is marked as invalid since {since}"));
    }
    let is_same = |account: &&Tree| !uid.is_empty() && account.str("metadata.uid") == uid;
    account.filter(lives).filter(is_same).map(|_| ()).ok_or_else(|| INVALID.to_string())
}

fn date(seconds: i64) -> String {
    time::format_seconds(seconds).chars().take("2026-01-01".len()).collect()
}

/// As many are remembered; then some are written once more.
const MAX_USES: usize = 1000;

/// Which secrets were used on which day: each is labelled once a day, so that somebody can find those that
/// nobody uses.
#[derive(Default)]
pub struct Uses(Mutex<State>);

#[derive(Default)]
struct State {
    noted: BTreeMap<String, String>,
    waiting: Vec<(String, String)>,
}

impl Uses {
    fn note(&self, secret: &str, today: String) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.noted.get(secret) == Some(&today) {
            return;
        }
        if state.noted.len() >= MAX_USES {
            state.noted.clear();
        }
        state.noted.insert(secret.to_string(), today.clone());
        state.waiting.push((secret.to_string(), today));
    }

    fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting)
    }
}

/// Labels what was used since the last time. Nobody waits for it.
pub fn label_used(server: &Arc<Server>) {
    for (secret, today) in server.auth.legacy_uses.take() {
        let server = server.clone();
        tokio::spawn(async move {
            let Some((namespace, name)) = secret.split_once('/') else { return };
            let labels = tree! { "metadata" => tree! { "labels" => tree! { LAST_USED => today } } };
            let request = Request::patch(format!("/api/v1/namespaces/{namespace}/secrets/{name}"))
                .header(header::CONTENT_TYPE, "application/merge-patch+json")
                .body(Bytes::from(json::encode(&labels, None)));
            let Ok(request) = request else { return };
            let answer = local::handle(&server, request, Arc::new(bootstrap::system_user())).await;
            if !answer.status().is_success() {
                tracing::debug!(secret, code = answer.status().as_u16(), "the use of a token is not noted");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn a_use_is_noted_once_a_day() {
        let uses = Uses::default();
        for day in ["1", "1", "2"] {
            uses.note("a/b", day.to_string());
        }
        let noted = |day: &str| ("a/b".to_string(), day.to_string());
        assert_eq!(uses.take(), [noted("1"), noted("2")]);
        assert_eq!(uses.take(), []);
        assert_eq!(date(86_400), "1970-01-02");
    }

    #[test]
    fn a_token_holds_while_its_secret_and_account_do() {
        let secret = tree! { "metadata" => tree! {}, "data" => tree! { "token" => base64::encode(b"token") } };
        let account = tree! { "metadata" => tree! { "uid" => "u" } };
        let (mut ending, mut marked) = (secret.clone(), secret.clone());
        ending.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
        marked.child("metadata.labels").set(INVALID_SINCE, "2026-01-01");
        let check = |secret: Option<&Tree>, account: Option<&Tree>, uid: &str, token: &str| {
            super::check(secret, account, uid, token).err().unwrap_or_default()
        };
        assert_eq!(check(Some(&secret), Some(&account), "u", "token"), "");
        assert_eq!(check(Some(&secret), Some(&account), "u", "other"), INVALID);
        assert_eq!(check(Some(&secret), Some(&account), "v", "token"), INVALID);
        assert_eq!(check(Some(&secret), None, "u", "token"), INVALID);
        assert_eq!(check(None, Some(&account), "u", "token"), INVALID);
        assert_eq!(check(Some(&ending), Some(&account), "u", "token"), INVALID);
        assert!(check(Some(&marked), Some(&account), "u", "token").contains("2026-01-01"));
    }
}
