//! Valid and invalid tokens that tests sign themselves.

use api::{Tree, base64, json, tree};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

pub struct Signer {
    pair: EcdsaKeyPair,
    pub id: String,
}

impl Signer {
    pub fn new(id: &str) -> Signer {
        let key = EcdsaKeyPair::generate_pkcs8(&ES256, &SystemRandom::new()).expect("a key");
        Signer { pair: EcdsaKeyPair::from_pkcs8(&ES256, key.as_ref()).expect("a key"), id: id.to_string() }
    }

    /// With a foreign key.
    pub fn of_file(path: &std::path::Path) -> Signer {
        let key = PrivatePkcs8KeyDer::from_pem_file(path).expect("a key");
        Signer { pair: EcdsaKeyPair::from_pkcs8(&ES256, key.secret_pkcs8_der()).expect("a key"), id: String::new() }
    }

    pub fn jwk(&self) -> Tree {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        tree! { "kty" => "EC", "crv" => "P-256", "kid" => &self.id, "use" => "sig", "x" => encode(x), "y" => encode(y) }
    }

    pub fn token(&self, claims: &Tree) -> String {
        self.token_as("ES256", claims)
    }

    /// With another word for the algorithm in its header.
    pub fn token_as(&self, algorithm: &str, claims: &Tree) -> String {
        let header = tree! { "alg" => algorithm, "kid" => &self.id };
        let text = format!("{}.{}", part(&header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).expect("a signature");
        format!("{text}.{}", encode(signature.as_ref()))
    }
}

/// Without any signature.
pub fn unsigned(algorithm: &str, claims: &Tree) -> String {
    format!("{}.{}.", part(&tree! { "alg" => algorithm }), part(claims))
}

pub fn claims_of(token: &str) -> Tree {
    let part = token.split('.').nth(1).expect("three parts");
    json::decode(&base64::decode_url(part).expect("base64")).expect("claims")
}

fn part(tree: &Tree) -> String {
    encode(&json::encode(tree, None))
}

fn encode(bytes: &[u8]) -> String {
    base64::encode_url(bytes)
}
