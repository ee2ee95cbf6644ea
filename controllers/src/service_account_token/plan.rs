//! Secrets with a service account token, valid as long as both exist.

use api::{Tree, base64, json, tree};

use crate::support::keys::{Key, KeyError};

pub(super) const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const ISSUER: &str = "kubernetes/serviceaccount";

/// The action for a secret.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Nothing,
    /// Delete it: its account does not exist or is a different one.
    End,
    Fill,
}

pub(crate) fn account_of(secret: &Tree) -> &str {
    secret.map("metadata.annotations").str(NAME)
}

/// Whether the secret belongs to this account.
pub(super) fn belongs_to(secret: &Tree, account: &Tree) -> bool {
    let uid = secret.map("metadata.annotations").str(UID);
    uid.is_empty() || uid == account.str("metadata.uid")
}

pub(super) fn plan_action(secret: &Tree, account: Option<&Tree>, root_ca: &str) -> Action {
    if secret.at("metadata").has("deletionTimestamp") || account_of(secret).is_empty() {
        return Action::Nothing;
    }
    if !account.is_some_and(|account| belongs_to(secret, account)) {
        return Action::End;
    }
    let data = secret.map("data");
    let has_ca = root_ca.is_empty() || data.str("ca.crt") == base64::encode(root_ca.as_bytes());
    let is_full = has_ca && !data.str("namespace").is_empty() && !data.str("token").is_empty();
    if is_full { Action::Nothing } else { Action::Fill }
}

/// The populated secret.
pub(super) fn filled(secret: &Tree, account: &Tree, root_ca: &str, key: &Key) -> Result<Tree, KeyError> {
    let namespace = secret.str("metadata.namespace");
    let mut filled = secret.clone();
    let set = |filled: &mut Tree, field: &str, value: &str| {
        filled.child("data").set(field, base64::encode(value.as_bytes()));
    };
    if !root_ca.is_empty() {
        set(&mut filled, "ca.crt", root_ca);
    }
    if secret.map("data").str("namespace").is_empty() {
        set(&mut filled, "namespace", namespace);
    }
    if secret.map("data").str("token").is_empty() {
        set(&mut filled, "token", &token(secret, account, key)?);
    }
    let annotations = filled.child("metadata.annotations");
    annotations.set(NAME, account.str("metadata.name"));
    annotations.set(UID, account.str("metadata.uid"));
    Ok(filled)
}

/// A token without expiration: it is valid as long as its secret exists.
fn token(secret: &Tree, account: &Tree, key: &Key) -> Result<String, KeyError> {
    let (namespace, name) = (account.str("metadata.namespace"), account.str("metadata.name"));
    let claims = tree! {
        "iss" => ISSUER,
        "kubernetes.io/serviceaccount/namespace" => namespace,
        "kubernetes.io/serviceaccount/secret.name" => secret.str("metadata.name"),
        "kubernetes.io/serviceaccount/service-account.name" => name,
        "kubernetes.io/serviceaccount/service-account.uid" => account.str("metadata.uid"),
        "sub" => format!("system:serviceaccount:{namespace}:{name}"),
    };
    let header = tree! { "alg" => key.algorithm(), "kid" => key.id()? };
    let part = |tree: &Tree| base64::encode_url(&json::encode(tree, None));
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = key.sign(text.as_bytes())?;
    Ok(format!("{text}.{}", base64::encode_url(&signature)))
}

/// The account without the reference to a deleted secret.
pub(super) fn without(account: &Tree, secret: &str) -> Option<Tree> {
    let secrets = account.list("secrets");
    let others: Vec<Tree> = secrets.iter().filter(|other| other.str("name") != secret).cloned().collect();
    (others.len() < secrets.len()).then(|| {
        let mut changed = account.clone();
        changed.set("secrets", others);
        changed
    })
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;
    use crate::support::keys::SignatureEncoding;

    const KEY: &str = include_str!("../certificates/testdata/ca.key");

    fn secret(name: &str, uid: &str) -> Tree {
        let annotations = tree! { NAME => name, UID => uid };
        tree! { "metadata" => tree! { "name" => "s", "namespace" => "ns", "annotations" => annotations } }
    }

    fn account() -> Tree {
        let metadata = tree! { "name" => "a", "namespace" => "ns", "uid" => "u" };
        tree! { "metadata" => metadata, "secrets" => list![tree! { "name" => "s" }, tree! { "name" => "t" }] }
    }

    #[test]
    fn populates_a_secret_once() {
        let key = Key::read(KEY, SignatureEncoding::Fixed).expect("a key");
        let empty = secret("a", "");
        assert_eq!(plan_action(&empty, Some(&account()), "ca"), Action::Fill);
        let full = filled(&empty, &account(), "ca", &key).expect("a token");
        assert_eq!(plan_action(&full, Some(&account()), "ca"), Action::Nothing);
        assert_eq!(full.map("metadata.annotations").str(UID), "u");
        assert_eq!(plan_action(&full, Some(&account()), "other"), Action::Fill, "another CA");
        let again = filled(&full, &account(), "other", &key).expect("a token");
        assert_eq!(again.map("data").str("token"), full.map("data").str("token"), "the token stays");
        let text = String::from_utf8(base64::decode(full.map("data").str("token")).expect("base64")).expect("text");
        let claims = text.split('.').nth(1).expect("claims");
        let claims = json::decode(&base64::decode_url(claims).expect("base64")).expect("JSON");
        assert_eq!((claims.str("sub"), claims.str("iss")), ("system:serviceaccount:ns:a", ISSUER));
    }

    #[test]
    fn deletes_secrets_with_their_account() {
        assert_eq!(plan_action(&secret("a", "u"), Some(&account()), ""), Action::Fill);
        assert_eq!(plan_action(&secret("a", "other"), Some(&account()), ""), Action::End);
        assert_eq!(plan_action(&secret("a", ""), None, ""), Action::End);
        assert_eq!(plan_action(&secret("", ""), None, ""), Action::Nothing, "it names no account");
        let left = without(&account(), "s").expect("it changes");
        assert_eq!(left.list("secrets").len(), 1);
        assert_eq!(without(&left, "s"), None);
    }
}
