//! Private keys for signing, in PEM.

use api::base64::encode_url;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use aws_lc_rs::{digest, encoding};
use thiserror::Error;

/// The encoding of ECDSA signatures: certificates use DER, tokens fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureEncoding {
    Der,
    Fixed,
}

/// Why a key cannot be loaded or used.
#[derive(Debug, Error)]
pub(crate) enum KeyError {
    #[error("no PEM-encoded private key found")]
    NotFound,
    #[error("the private key is neither RSA nor of the curves P-256 and P-384")]
    Unsupported,
    #[error(transparent)]
    Crypto(#[from] aws_lc_rs::error::Unspecified),
}

pub(crate) enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    /// Parses PEM: PKCS#8, or the traditional RSA and EC formats.
    pub(crate) fn read(pem: &str, form: SignatureEncoding) -> Result<Key, KeyError> {
        let blocks = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).filter_map(Result::ok);
        // EC parameters may precede the key.
        let block = blocks.into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        let der = block.ok_or(KeyError::NotFound)?.contents;
        let curve = |algorithm: &'static EcdsaSigningAlgorithm| {
            EcdsaKeyPair::from_pkcs8(algorithm, &der).or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, &der))
        };
        let (p256, p384) = match form {
            SignatureEncoding::Der => {
                (&signature::ECDSA_P256_SHA256_ASN1_SIGNING, &signature::ECDSA_P384_SHA384_ASN1_SIGNING)
            }
            SignatureEncoding::Fixed => {
                (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &signature::ECDSA_P384_SHA384_FIXED_SIGNING)
            }
        };
        let rsa = || RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map(Key::Rsa);
        let key = curve(p256).map(Key::P256).or_else(|_| curve(p384).map(Key::P384)).or_else(|_| rsa());
        key.map_err(|_| KeyError::Unsupported)
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match self {
            Key::P256(key) | Key::P384(key) => {
                Ok(key.sign(&random, text).map(|signature| signature.as_ref().to_vec())?)
            }
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, text, &mut signature)?;
                Ok(signature)
            }
        }
    }

    /// The `alg` of tokens.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Key::P256(_) => "ES256",
            Key::P384(_) => "ES384",
            Key::Rsa(_) => "RS256",
        }
    }

    /// The `kid` of tokens.
    pub(crate) fn id(&self) -> Result<String, KeyError> {
        let der: encoding::PublicKeyX509Der<'_> = match self {
            Key::P256(key) | Key::P384(key) => encoding::AsDer::as_der(key.public_key()),
            Key::Rsa(key) => encoding::AsDer::as_der(key.public_key()),
        }?;
        Ok(encode_url(digest::digest(&digest::SHA256, der.as_ref()).as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generated with openssl.
    const SEC1: &str = concat!(
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n",
        "-----BEGIN EC PRIVATE KEY-----\n",
        "MHcCAQEEICsOHDwZ4y3as5+u7xJaFke/VjCzH89bf14h0ICn3jzioAoGCCqGSM49\n",
        "AwEHoUQDQgAELm3vwO2LbI7zeI5Gg9ey1x96pvapiElC3Tgf/Zi26LlaRBPf/klp\n",
        "y6IZCJXqL2C2cnGHYPwZtfsmJc/1LiBopA==\n",
        "-----END EC PRIVATE KEY-----\n",
    );

    #[test]
    fn parses_all_key_formats() {
        for (pem, algorithm) in [(SEC1, "ES256"), (PKCS8, "ES384"), (RSA, "RS256")] {
            let key = Key::read(pem, SignatureEncoding::Fixed).expect("a key");
            assert_eq!(key.algorithm(), algorithm);
            assert_eq!(key.id().expect("an id").len(), 43);
            assert!(key.sign(b"text").is_ok_and(|signature| signature.len() >= 64));
        }
        assert!(Key::read("", SignatureEncoding::Der).is_err());
        assert!(
            Key::read("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", SignatureEncoding::Der)
                .is_err()
        );
    }

    const PKCS8: &str = concat!(
        "-----BEGIN PRIVATE KEY-----\n",
        "MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDC7LODpoaHZXb5Ra+li\n",
        "RtzzkSpON6j8pyRoq30JP/NIfIn8/YfsidHmv+6bhsr++sihZANiAARci8kyVGKb\n",
        "hieOjfvZTLFzsnXocvcfj6Fx/t1DkfCNk4LQHVOykpYO5zKJh0angb9Q7MYbxTq8\n",
        "q45OhbJ2FvjmWrMpcoo/24N00F4NWLoe/CPmEUXD3rY/SiDlGGWn7Is=\n",
        "-----END PRIVATE KEY-----\n",
    );
    const RSA: &str = concat!(
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "MIIEpAIBAAKCAQEAm+2FGlNcD7yiAoZapUWeXUIxH/zvmQAttnlZ01/gzwtY4T2i\n",
        "3/4kmTHcBiWX861Mw0p13JuUg3+ycAFNKpc0DtH0r+V3lWLVKk0rV033dS0oRBVm\n",
        "sAfAqgJtUC6egsNxspkITYm5UmH2pIScNYLkBhySuelIkBNGqxE8D7Kah736bkho\n",
        "TF7J/huHzXtE3cCIg0t6y//ztrmGVYx5NmVCDR8yYZfCqGO+8iOGN73LdJAdJ4in\n",
        "20jtE5dhRUS6NGQTeXOJyx1eCxV7FK3CD0vZVkOphOR7u5euPS3nYI5a1kSifUZx\n",
        "mNu1auiP++YEvHXY8jmVEw+LXVo/LX1tiWw42QIDAQABAoIBAAoXh7YvelWOaOdE\n",
        "Q4Ok4N4PqwGeAPKPH2ZLA7RO5UxL42HDTSe1hDA3bj0mRmfAFKgjHpkQ/L4SEBN4\n",
        "Z20ql3T0w83Kn+sW7XhXwZwHRiKFsgXODh+122i60CZmDgj6lgDwL1MNZzrcxPYw\n",
        "RbKfmRsy0uWeIqh93DoK2y9M6PwrW/ejV4gSteMfynQwvr179xF1fWDOFZlGgHkq\n",
        "/qHedZHjfbbM+SuDTGqAuFSO9nicFw3Sg6wxetooPXFY6vshuZrOfH+0v3pqDr4o\n",
        "k30xznn9W96VR+tWK6B4FdpuYYQunJBhhbzYgcacvYyLk9xqfuFv1AM9rCF2p2dc\n",
        "Tg43fW0CgYEA2L34sT+K+1d+hxtUTT5cCF8kZhh0pls2E+qsfZPg+iZOO4oIA5DJ\n",
        "eS3C1NteZNgEjRIOijIVteiVkmeS7Bd84EMoEBCuGSLcTat2lNzfV6FNzzP8rzgh\n",
        "ikG6i5QEQRhkWPBZGYKsg9txVYnuB4HRhNf9f8wUuipYpbRz0BvEuycCgYEAuCus\n",
        "+KZKxEKGsoTa2G0TT8rgRpiUEb8hkYombX15ZAaJ2fSM1MUhnBrbM12pok6TG3Ib\n",
        "DJQRLF3RuvllLSq4w4aZkyVJMe0ZiufmD/rCjPHoSB93fZ06IZHZYIQAGFb3KBMl\n",
        "/SbY6SYjOfcZ500MYWJlHdfjQcAlata0MH+v6/8CgYEA0bbezwIgxBlgf/Hdm+/e\n",
        "tOr6GR9Inz5aEONcixVu9hviTpG8N1b82peAkNzBdOnfXXA/SVA02ZJ2RvaYnoAL\n",
        "gCL6vLCnBANLDov9bQRZxjx5QSeYMyIosdHvYeaSRzoGvlewnpJlwh+uhYm0Gudt\n",
        "hxBGZEVfONKIe60i8hYsQLkCgYBcc7hiHgBcY1UA2saNbLwMCzjo14FFI2BzkhlW\n",
        "T22Xs9yRqDzmNot3tNejAnq8eptIZNCFUPMKBZLaPIX41YBozvHbNxV2VaLD40PP\n",
        "c78kR++l/P3b9giPf4rS85Ckp0ttN6eTXGP5Lmbym0PKpBf57w35nD197TobVuqf\n",
        "ignC+wKBgQCSeC3dKAJJC59wthL53Wh74EOieLjTTnjaIKFOStSiWYbajxk2WEPR\n",
        "ynOWRTidrjgz7KERzP9AsZxOhM999oerkqWReWCe5K+6GfCn82eeooqk71+ccRFn\n",
        "i0a9UUpbpELUiCEFv3XTwJUDTek30qmigHGcW8IPGgFcm3oY8WV5rQ==\n",
        "-----END RSA PRIVATE KEY-----\n",
    );
}
