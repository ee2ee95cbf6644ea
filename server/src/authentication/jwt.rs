//! Signed tokens: their three parts, and the signatures of upstream's list of algorithms.

use api::base64::decode_url;
use api::{Tree, json};
use aws_lc_rs::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// The limits of a token's size.
const MAX_BYTES: usize = 64 << 10;

/// A well-formed token whose signature was not verified yet.
pub(crate) struct Unverified<'a> {
    pub header: Tree,
    pub claims: Tree,
    /// The signed part of the token.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

pub(super) fn split(token: &str) -> Option<Unverified<'_>> {
    if token.len() > MAX_BYTES {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    Some(Unverified {
        header: json::decode(&decode_url(header).ok()?).ok()?,
        claims: json::decode(&decode_url(claims).ok()?).ok()?,
        signed,
        signature: decode_url(signature).ok()?,
    })
}

impl Unverified<'_> {
    /// The algorithm in the header. The client chooses it, so the caller must check it against a list of allowed
    /// algorithms.
    pub(super) fn algorithm(&self) -> &str {
        self.header.str("alg")
    }

    /// A single audience may be a string.
    pub(super) fn audiences(&self) -> Vec<&str> {
        match self.claims.get("aud") {
            Some(Tree::List(all)) => all.iter().filter_map(Tree::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }
}

/// All algorithms that a provider may use.
pub const ALGORITHMS: &[&str] = &["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

/// A public key of a JSON web key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub id: String,
    /// The only algorithm of the key, if it names one.
    algorithm: String,
    material: KeyMaterial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyMaterial {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The curve's name and an uncompressed point.
    Ec {
        curve: String,
        point: Vec<u8>,
    },
}

impl Key {
    /// Reads a key; None for other key types and for keys that are not for signatures.
    pub(super) fn read(jwk: &Tree) -> Option<Key> {
        if !matches!(jwk.str("use"), "" | "sig") {
            return None;
        }
        // Keys may have the padding that tokens must not have.
        let number = |key: &str| {
            let bytes = decode_url(jwk.str(key).trim_end_matches('='));
            bytes.ok().filter(|bytes| !bytes.is_empty())
        };
        let material = match jwk.str("kty") {
            "RSA" => KeyMaterial::Rsa { n: number("n")?, e: number("e")? },
            "EC" => {
                let point = [vec![4], number("x")?, number("y")?].concat();
                KeyMaterial::Ec { curve: jwk.str("crv").to_string(), point }
            }
            _ => return None,
        };
        Some(Key { id: jwk.str("kid").to_string(), algorithm: jwk.str("alg").to_string(), material })
    }

    pub(super) fn verifies(&self, token: &Unverified<'_>) -> bool {
        let algorithm = token.algorithm();
        if !self.algorithm.is_empty() && self.algorithm != algorithm {
            return false;
        }
        let signed = token.signed.as_bytes();
        match &self.material {
            KeyMaterial::Rsa { n, e } => rsa(algorithm)
                .is_some_and(|rsa| RsaPublicKeyComponents { n, e }.verify(rsa, signed, &token.signature).is_ok()),
            KeyMaterial::Ec { curve, point } => ecdsa(algorithm, curve)
                .is_some_and(|ecdsa| UnparsedPublicKey::new(ecdsa, point).verify(signed, &token.signature).is_ok()),
        }
    }
}

fn rsa(algorithm: &str) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
        "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
        "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// Each ECDSA algorithm belongs to one curve.
fn ecdsa(algorithm: &str, curve: &str) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (algorithm, curve) {
        ("ES256", "P-256") => &signature::ECDSA_P256_SHA256_FIXED,
        ("ES384", "P-384") => &signature::ECDSA_P384_SHA384_FIXED,
        ("ES512", "P-521") => &signature::ECDSA_P521_SHA512_FIXED,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use api::base64::encode_url;
    use api::tree;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

    use super::*;

    #[test]
    fn signature_is_valid_only_for_its_algorithm_and_key() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, pkcs8.as_ref()).expect("a pair");
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let jwk = tree! { "kty" => "EC", "crv" => "P-384", "x" => encode_url(x), "y" => encode_url(y) };
        let key = Key::read(&jwk).expect("a key");
        let token = |algorithm: &str, signed_as: &str| {
            let part = |alg: &str| encode_url(format!("{{\"alg\":\"{alg}\"}}").as_bytes());
            let text = |alg: &str| format!("{}.{}", part(alg), encode_url(b"{\"aud\":\"a\"}"));
            let signature = pair.sign(&random, text(signed_as).as_bytes()).expect("a signature");
            format!("{}.{}", text(algorithm), encode_url(signature.as_ref()))
        };
        let judged = |token: &str| split(token).is_some_and(|token| key.verifies(&token));
        assert!(judged(&token("ES384", "ES384")));
        for algorithm in ["ES256", "ES512", "RS256", "HS384", "none", ""] {
            assert!(!judged(&token(algorithm, algorithm)), "{algorithm}");
        }
        assert!(!judged(&token("ES384", "ES256")));
        assert_eq!(split(&token("ES384", "ES384")).expect("a token").audiences(), ["a"]);
        let other = Key { algorithm: "ES256".to_string(), ..key.clone() };
        assert!(!split(&token("ES384", "ES384")).is_some_and(|token| other.verifies(&token)));
    }

    #[test]
    fn rejects_malformed_tokens() {
        for bad in ["", "a", "a.b", "a.b.c", "..", &"x".repeat(MAX_BYTES + 1)] {
            assert!(split(bad).is_none(), "{bad}");
        }
        assert!(Key::read(&tree! { "kty" => "oct", "k" => "AAAA" }).is_none());
        assert!(Key::read(&tree! { "kty" => "RSA", "use" => "enc", "n" => "AAAA", "e" => "AQAB" }).is_none());
    }
}
