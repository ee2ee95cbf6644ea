//! Service account tokens: signed and verified with the cluster's own key.

use std::sync::Arc;

use api::base64::encode_url;
use api::{Map, Tree, json, tree};
use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair, VerificationAlgorithm};
use kinds::User;
use rustls::pki_types::PrivateKeyDer;

use super::jwt;
use super::union::Identity as Known;
use super::{Authenticator, TokenRequest, TokenVerdict, Verdict, legacy_token};
use crate::metrics::TokenUse;

/// A name and a uid.
type Identity = (String, String);

/// Objects that a token is bound to: it is invalid once one of them is deleted.
#[derive(Debug, Clone, Default)]
pub struct BoundObjects {
    pub pod: Option<Identity>,
    pub secret: Option<Identity>,
    pub node: Option<Identity>,
}

/// The audiences of a token.
pub struct Subject<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub bound: BoundObjects,
    pub audiences: Vec<&'a str>,
    pub seconds: i64,
    /// When a use of the token counts as stale, in seconds since the Unix epoch.
    pub warn_after: Option<i64>,
}

enum Key {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// The key that signs tokens.
pub struct Tokens {
    key: Key,
    id: String,
    /// Other public keys whose tokens are accepted.
    trusted: Vec<PublicKey>,
}

/// A public key as SubjectPublicKeyInfo.
struct PublicKey {
    der: Vec<u8>,
    algorithm: &'static str,
}

impl PublicKey {
    fn new(der: Vec<u8>) -> Option<PublicKey> {
        let algorithm = match super::public_keys::public_key(&der)? {
            // An uncompressed point of P-256.
            [4, point @ ..] if point.len() == 64 => "ES256",
            key => super::public_keys::rsa_numbers(key).map(|_| "RS256")?,
        };
        Some(PublicKey { der, algorithm })
    }

    fn id(&self) -> String {
        encode_url(digest::digest(&digest::SHA256, &self.der).as_ref())
    }

    /// As a JSON web key.
    fn jwk(&self) -> Tree {
        let mut jwk = tree! { "use" => "sig", "kid" => self.id(), "alg" => self.algorithm };
        let key = super::public_keys::public_key(&self.der).unwrap_or_default();
        if self.algorithm == "ES256" {
            // A mark, then both coordinates.
            let (x, y) = key.get(1..).unwrap_or_default().split_at(key.len() / 2);
            jwk.set("kty", "EC");
            jwk.set("crv", "P-256");
            jwk.set("x", encode_url(x));
            jwk.set("y", encode_url(y));
        } else {
            let (n, e) = super::public_keys::rsa_numbers(key).unwrap_or_default();
            jwk.set("kty", "RSA");
            jwk.set("n", encode_url(n));
            jwk.set("e", encode_url(e));
        }
        jwk
    }
}

/// A key that cannot sign or verify tokens, or a signature that failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the service account key is neither P-256 nor RSA")]
    SigningKey,
    #[error("the service account key has no public part")]
    NoPublicPart,
    #[error("the key is neither P-256 nor RSA")]
    PublicKey,
    #[error(transparent)]
    Crypto(#[from] aws_lc_rs::error::Unspecified),
}

/// Why a token with a valid signature is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TokenError {
    #[error("token audiences [{}] is invalid for the target audiences [{}]", quoted(own), quoted(wanted))]
    Audiences { own: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token has been invalidated")]
    Invalidated,
}

fn quoted(list: &[String]) -> String {
    list.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ")
}

impl Tokens {
    /// Takes a P-256 or an RSA key.
    pub fn new(key: &PrivateKeyDer<'_>) -> Result<Tokens, KeyError> {
        let key = Key::read(key).ok_or(KeyError::SigningKey)?;
        let public = PublicKey::new(key.public_der()?).ok_or(KeyError::NoPublicPart)?;
        Ok(Tokens { key, id: public.id(), trusted: vec![public] })
    }

    /// The algorithms of all keys, without duplicates.
    pub fn algorithms(&self) -> Vec<Tree> {
        let mut all: Vec<&str> = self.trusted.iter().map(|key| key.algorithm).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(Tree::from).collect()
    }

    /// The public keys as JSON web keys, the signing key first.
    pub fn jwks(&self) -> Vec<Tree> {
        self.trusted.iter().map(PublicKey::jwk).collect()
    }

    /// Accepts tokens of another key, given as SubjectPublicKeyInfo.
    pub fn trust(&mut self, public_key: Vec<u8>) -> Result<(), KeyError> {
        let key = PublicKey::new(public_key).ok_or(KeyError::PublicKey)?;
        if !self.trusted.iter().any(|known| known.der == key.der) {
            self.trusted.push(key);
        }
        Ok(())
    }

    /// The public part of a key.
    pub fn public_der(key: &PrivateKeyDer<'_>) -> Option<Vec<u8>> {
        Key::read(key)?.public_der().ok()
    }

    /// The token, and its `jti`.
    pub(crate) fn sign(&self, subject: &Subject<'_>, issuer: &str, now: i64) -> Result<(String, String), KeyError> {
        let header = tree! { "alg" => self.key.algorithm(), "kid" => self.id.as_str() };
        let claims = claims(subject, issuer, now);
        let part = |tree: &Tree| encode_url(&json::encode(tree, None));
        let text = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(text.as_bytes())?;
        Ok((format!("{text}.{}", encode_url(&signature)), claims.str("jti").to_string()))
    }

    /// The claims of a token that a known key has signed.
    fn verify(&self, token: &str) -> Option<Tree> {
        let token = jwt::split(token)?;
        let algorithm: &dyn VerificationAlgorithm = match token.algorithm() {
            "ES256" => &signature::ECDSA_P256_SHA256_FIXED,
            "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
            _ => return None,
        };
        let (text, signature) = (token.signed.as_bytes(), &token.signature);
        let fits = |key: &&PublicKey| key.algorithm == token.algorithm();
        let mut keys = self.trusted.iter().filter(fits);
        keys.any(|key| algorithm.verify_sig(&key.der, text, signature).is_ok()).then_some(token.claims)
    }
}

impl Key {
    fn read(key: &PrivateKeyDer<'_>) -> Option<Key> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        match key {
            PrivateKeyDer::Pkcs8(key) => {
                let der = key.secret_pkcs8_der();
                let ecdsa = EcdsaKeyPair::from_pkcs8(algorithm, der).map(Key::Ecdsa);
                ecdsa.or_else(|_| RsaKeyPair::from_pkcs8(der).map(Key::Rsa)).ok()
            }
            PrivateKeyDer::Sec1(key) => {
                EcdsaKeyPair::from_private_key_der(algorithm, key.secret_sec1_der()).map(Key::Ecdsa).ok()
            }
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).map(Key::Rsa).ok(),
            _ => None,
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Key::Ecdsa(_) => "ES256",
            Key::Rsa(_) => "RS256",
        }
    }

    fn public_der(&self) -> Result<Vec<u8>, KeyError> {
        let der: Result<PublicKeyX509Der<'_>, _> = match self {
            Key::Ecdsa(key) => key.public_key().as_der(),
            Key::Rsa(key) => key.public_key().as_der(),
        };
        Ok(der?.as_ref().to_vec())
    }

    fn sign(&self, text: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match self {
            Key::Ecdsa(key) => Ok(key.sign(&random, text)?.as_ref().to_vec()),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, text, &mut signature)?;
                Ok(signature)
            }
        }
    }
}

fn claims(subject: &Subject<'_>, issuer: &str, now: i64) -> Tree {
    let named = |(name, uid): &Identity| tree! { "name" => name.as_str(), "uid" => uid.as_str() };
    let mut private = tree! { "namespace" => subject.namespace };
    for (key, identity) in
        [("node", &subject.bound.node), ("pod", &subject.bound.pod), ("secret", &subject.bound.secret)]
    {
        if let Some(identity) = identity {
            private.set(key, named(identity));
        }
    }
    private.set("serviceaccount", tree! { "name" => subject.name, "uid" => subject.uid });
    if let Some(seconds) = subject.warn_after {
        private.set("warnafter", seconds);
    }
    tree! {
        "aud" => subject.audiences.iter().map(|audience| Tree::from(*audience)).collect::<Vec<_>>(),
        "exp" => now + subject.seconds,
        "iat" => now,
        "iss" => issuer,
        "jti" => crate::common::ids::uid(),
        "kubernetes.io" => private,
        "nbf" => now,
        "sub" => format!("system:serviceaccount:{}:{}", subject.namespace, subject.name),
    }
}

/// Judges a token now: its signature, its time, its audiences, and the objects that it is bound to.
pub(crate) fn authenticate<'a>(auth: &'a Authenticator, request: TokenRequest<'a>) -> TokenVerdict<'a> {
    let claims = auth.config.tokens.as_ref().and_then(|tokens| tokens.verify(request.token));
    TokenVerdict::Now(match claims {
        Some(claims) if auth.issuers.iter().any(|issuer| claims.str("iss") == issuer) => {
            check_claims(auth, &claims, request).map_or_else(Verdict::refused, Verdict::Known)
        }
        Some(claims) if claims.str("iss") == legacy_token::ISSUER => legacy_token::verify_token(auth, &claims, request),
        _ => Verdict::Unknown,
    })
}

fn check_claims(auth: &Authenticator, claims: &Tree, request: TokenRequest<'_>) -> Result<Known, TokenError> {
    let audiences = check_audiences(claims, request.audiences)?;
    check_time(claims, request.now)?;
    check_objects(auth, claims, request.now)?;
    let notes = stale_note(auth, claims, request.now).into_iter().collect();
    Ok(Known { notes, ..Known::new(Arc::new(user_of(claims)), audiences) })
}

/// A token with an extended lifetime contains the time at which it should have been renewed.
fn stale_note(auth: &Authenticator, claims: &Tree, now: i64) -> Option<(&'static str, String)> {
    let due = claims.get("kubernetes.io")?.int("warnafter").filter(|due| *due != 0)?;
    let late = now - due;
    auth.metrics.count_token(if late > 0 { TokenUse::Stale } else { TokenUse::Valid });
    let note = || format!("subject: {}, seconds after warning threshold: {late}", claims.str("sub"));
    (late > 0).then(|| ("authentication.k8s.io/stale-token", note()))
}

fn check_audiences(claims: &Tree, wanted: &[String]) -> Result<Vec<String>, TokenError> {
    let own: Vec<String> = claims.list("aud").iter().filter_map(Tree::as_str).map(str::to_string).collect();
    let common = super::common(&own, wanted);
    if common.is_empty() {
        return Err(TokenError::Audiences { own, wanted: wanted.to_vec() });
    }
    Ok(common)
}

fn check_time(claims: &Tree, now: i64) -> Result<(), TokenError> {
    // Clocks may differ by this much, as upstream allows.
    const LEEWAY_SECONDS: i64 = 60;
    if claims.int("exp").is_none_or(|end| now > end + LEEWAY_SECONDS) {
        return Err(TokenError::Expired);
    }
    if claims.int("nbf").is_some_and(|start| now + LEEWAY_SECONDS < start) {
        return Err(TokenError::NotYetValid);
    }
    Ok(())
}

/// The account and all bound objects must still exist, with the same uid.
fn check_objects(auth: &Authenticator, claims: &Tree, now: i64) -> Result<(), TokenError> {
    let private = claims.get("kubernetes.io").unwrap_or(&Tree::Null);
    let namespace = private.str("namespace");
    for (key, storage) in
        [("serviceaccount", "serviceaccounts"), ("secret", "secrets"), ("pod", "pods"), ("node", "minions")]
    {
        let claim = private.at(key);
        // A pod's token merely names the pod's node.
        if claim.is_null() || (key == "node" && private.has("pod")) {
            continue;
        }
        let name = claim.str("name");
        let place = if key == "node" { name.to_string() } else { format!("{namespace}/{name}") };
        let object = auth.storage.object(storage, &place);
        if !object.is_some_and(|object| object.str("metadata.uid") == claim.str("uid") && is_alive(&object, now)) {
            return Err(TokenError::Invalidated);
        }
    }
    Ok(())
}

/// An object that is being deleted stays valid for one more minute.
fn is_alive(object: &Tree, now: i64) -> bool {
    let Some(stamp) = object.at("metadata.deletionTimestamp").as_str() else { return true };
    api::time::parse(stamp).is_ok_and(|time| time.seconds + 60 > now)
}

fn user_of(claims: &Tree) -> User {
    let private = claims.get("kubernetes.io").unwrap_or(&Tree::Null);
    let namespace = private.str("namespace");
    let mut extra = Map::new();
    let mut add = |key: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), Tree::List(vec![Tree::from(value)]));
    };
    add("credential-id", format!("JTI={}", claims.str("jti")));
    for key in ["pod", "node"] {
        for (field, end) in [("name", "name"), ("uid", "uid")] {
            let value = private.at(key).str(field);
            if !value.is_empty() {
                add(&format!("{key}-{end}"), value.to_string());
            }
        }
    }
    User {
        name: claims.str("sub").to_string(),
        uid: private.str("serviceaccount.uid").to_string(),
        groups: vec![
            "system:serviceaccounts".to_string(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_string(),
        ],
        extra,
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    fn tokens() -> Tokens {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let der = pkcs8.expect("a key").as_ref().to_vec();
        Tokens::new(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))).expect("a P-256 key")
    }

    fn subject() -> Subject<'static> {
        Subject {
            namespace: "n",
            name: "a",
            uid: "u",
            bound: BoundObjects { pod: Some(("p".to_string(), "v".to_string())), ..BoundObjects::default() },
            audiences: vec!["x", "y"],
            seconds: 600,
            warn_after: None,
        }
    }

    #[test]
    fn accepts_only_signed_tokens() {
        let tokens = tokens();
        let (token, id) = tokens.sign(&subject(), "https://issuer", 1000).expect("a token");
        let claims = tokens.verify(&token).expect("our token");
        assert_eq!(claims.str("jti"), id);
        assert_eq!(claims.str("sub"), "system:serviceaccount:n:a");
        assert_eq!(claims.get("kubernetes.io").map(|private| private.str("pod.name")), Some("p"));
        let (text, signature) = token.rsplit_once('.').expect("a signature");
        let (header, _) = text.split_once('.').expect("a header");
        let forged = encode_url(br#"{"sub":"admin"}"#);
        for bad in [format!("{header}.{forged}.{signature}"), format!("{text}."), text.to_string(), "x".to_string()] {
            assert_eq!(tokens.verify(&bad), None, "{bad}");
        }
        let mut other = self::tokens();
        assert_eq!(other.verify(&token), None);
        let public = tokens.key.public_der().expect("a public key");
        assert_eq!((other.trust(public.clone()), other.trust(public)), (Ok(()), Ok(())));
        assert!(other.trust(b"no key".to_vec()).is_err());
        let ids: Vec<String> = other.jwks().iter().map(|key| key.str("kid").to_string()).collect();
        assert_eq!(ids, [other.id.clone(), tokens.id.clone()], "each once, the own one first");
        assert_eq!(other.algorithms(), [Tree::from("ES256")]);
        assert_eq!(other.verify(&token).expect("a trusted token").str("sub"), "system:serviceaccount:n:a");
        assert_eq!(other.verify(&format!("{text}.")), None);
    }

    #[test]
    fn time_and_audiences_are_judged() {
        let claims = claims(&subject(), "i", 1000);
        let text = |refusal: TokenError| refusal.to_string();
        assert_eq!(check_time(&claims, 1600), Ok(()));
        assert_eq!(check_time(&claims, 1661).map_err(text), Err("service account token has expired".to_string()));
        assert_eq!(check_time(&claims, 900).map_err(text), Err("service account token is not valid yet".to_string()));
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(check_audiences(&claims, &named(&["y", "z"])), Ok(named(&["y"])));
        let want = r#"token audiences ["x" "y"] is invalid for the target audiences ["z"]"#;
        assert_eq!(check_audiences(&claims, &named(&["z"])).map_err(text), Err(want.to_string()));
    }

    #[test]
    fn users_carry_what_they_are_bound_to() {
        let user = user_of(&claims(&subject(), "i", 0));
        assert_eq!(user.uid, "u");
        assert_eq!(user.groups[1], "system:serviceaccounts:n");
        let names: Vec<&str> = user.extra.keys().collect();
        let want = ["credential-id", "pod-name", "pod-uid"].map(|end| format!("authentication.kubernetes.io/{end}"));
        assert_eq!(names, want);
    }
}
