//! Tokens without an end that are kept in secrets: they hold while secret and account do, and are no
//! others than the secret has.

use api::{Tree, base64};
use aws_lc_rs::constant_time;
use kinds::User;

use super::{Question, Verdict, finished};
use crate::Server;

pub const ISSUER: &str = "kubernetes/serviceaccount";
const PREFIX: &str = "kubernetes.io/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
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

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

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
