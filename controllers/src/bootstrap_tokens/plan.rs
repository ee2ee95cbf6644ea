//! Signatures of `cluster-info`, and the expiration of tokens.

use std::sync::Arc;

use api::base64::encode_url;
use api::{Tree, json, time, tree};
use aws_lc_rs::{constant_time, hmac};

const PREFIX: &str = "bootstrap-token-";
const SIGNATURE: &str = "jws-kubeconfig-";

fn data(secret: &Tree, key: &str) -> String {
    let bytes = api::base64::decode(secret.map("data").str(key)).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// The Unix time at which a token expires. A token with an invalid expiration has expired.
pub(super) fn end_of(secret: &Tree) -> Option<i64> {
    match data(secret, "expiration").as_str() {
        "" => None,
        text => Some(time::parse(text).map_or(0, |time| time.seconds)),
    }
}

/// The id and secret of a token that may be used for signing.
fn signing(secret: &Tree, now: i64) -> Option<(String, String)> {
    let (id, key) = (data(secret, "token-id"), data(secret, "token-secret"));
    let named = secret.str("metadata.name").strip_prefix(PREFIX) == Some(id.as_str()) && id.len() == 6;
    let lives = end_of(secret).is_none_or(|end| end > now);
    (named && lives && !key.is_empty() && data(secret, "usage-bootstrap-signing") == "true").then_some((id, key))
}

/// Whether `cluster-info` has a valid signature of a token; None if it has no signature of that token.
pub fn is_signed(map: &Tree, id: &str, secret: &str) -> Option<bool> {
    let found = map.map("data").get(&format!("{SIGNATURE}{id}"))?.as_str()?;
    let wanted = signature(map.map("data").str("kubeconfig"), id, secret);
    Some(constant_time::verify_slices_are_equal(found.as_bytes(), wanted.as_bytes()).is_ok())
}

/// Whether `cluster-info` has the signature of any token.
pub fn has_signature(map: &Tree) -> bool {
    map.map("data").iter().any(|(key, _)| key.starts_with(SIGNATURE))
}

/// A JWS with detached content.
pub fn signature(text: &str, id: &str, secret: &str) -> String {
    let header = encode_url(&json::encode(&tree! { "alg" => "HS256", "kid" => id }, None));
    let signed = format!("{header}.{}", encode_url(text.as_bytes()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{header}..{}", encode_url(tag.as_ref()))
}

/// The ConfigMap with one signature for each token; None if it is up to date.
pub(super) fn signed(map: &Tree, tokens: &[Arc<Tree>], now: i64) -> Option<Tree> {
    let text = map.map("data").get("kubeconfig")?.as_str()?;
    let mut data = map.map("data").clone();
    data.retain(|key, _| !key.starts_with(SIGNATURE));
    for (id, secret) in tokens.iter().filter_map(|token| signing(token, now)) {
        data.insert(format!("{SIGNATURE}{id}"), signature(text, &id, &secret));
    }
    (data != *map.map("data")).then(|| {
        let mut changed = map.clone();
        changed.set("data", data);
        changed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, end: &str, signs: &str) -> Arc<Tree> {
        let id = name.trim_start_matches(PREFIX);
        let coded = |text: &str| Tree::from(api::base64::encode(text.as_bytes()));
        let data = tree! {
            "token-id" => coded(id),
            "token-secret" => coded("0123456789abcdef"),
            "expiration" => coded(end),
            "usage-bootstrap-signing" => coded(signs),
        };
        Arc::new(tree! { "metadata" => tree! { "name" => name }, "data" => data })
    }

    #[test]
    fn signs_with_each_valid_token() {
        let map = tree! { "data" => tree! { "kubeconfig" => "text", "jws-kubeconfig-oldold" => "x", "other" => "y" } };
        let tokens = [
            token("bootstrap-token-abcdef", "", "true"),
            token("bootstrap-token-endend", "1970-01-01T00:00:05Z", "true"),
            token("bootstrap-token-silent", "", "false"),
            token("other", "", "true"),
        ];
        let changed = signed(&map, &tokens, 9).expect("it changes");
        let keys: Vec<&str> = changed.map("data").keys().collect();
        assert_eq!(keys, ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
        // Computed with openssl: HMAC-SHA256 of header.payload.
        assert_eq!(
            changed.map("data").str("jws-kubeconfig-abcdef"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..v28Ea_KqmHOtFWksJ_4tbV6AFRNzMkrRUG_jsuLJz-4"
        );
        assert_eq!(signed(&changed, &tokens, 9), None);
        assert_eq!(signed(&tree! { "data" => tree! {} }, &tokens, 9), None, "there is nothing to sign");
        assert_eq!(signed(&map, &tokens, 4).expect("it changes").map("data").len(), 4, "one lives longer");
    }

    #[test]
    fn tokens_expire() {
        assert_eq!(end_of(&token("a", "", "")), None);
        assert_eq!(end_of(&token("a", "1970-01-01T00:00:05Z", "")), Some(5));
        assert_eq!(end_of(&token("a", "soon", "")), Some(0));
    }
}
