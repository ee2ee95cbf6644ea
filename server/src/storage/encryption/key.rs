//! One key of a provider, and its encryption of a value: upstream's formats, byte for byte. The key of the store is
//! authenticated data if the cipher supports it: values cannot be swapped.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::hkdf;
use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce as BoxNonce, XSalsa20Poly1305};

/// Why a value was not encrypted or decrypted. The text contains nothing of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CipherError(pub String);

fn broken(why: &str) -> CipherError {
    CipherError(why.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    AesCbc,
    AesGcm,
    SecretBox,
}

impl Cipher {
    /// The name in the file and in the prefix of values.
    pub(super) fn name(self) -> &'static str {
        match self {
            Cipher::AesCbc => "aescbc",
            Cipher::AesGcm => "aesgcm",
            Cipher::SecretBox => "secretbox",
        }
    }

    /// The lengths that a key may have.
    pub(crate) fn key_bytes(self) -> &'static [usize] {
        match self {
            Cipher::AesCbc | Cipher::AesGcm => &[16, 24, 32],
            Cipher::SecretBox => &[32],
        }
    }
}

const NONCE_BYTES: usize = 12;
const IV_BYTES: usize = 16;
const BOX_NONCE_BYTES: usize = 24;

pub(super) fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| broken("the kernel gives no random bytes"))?;
    Ok(bytes)
}

pub(crate) fn seal(cipher: Cipher, secret: &[u8], plain: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    match cipher {
        Cipher::AesCbc => seal_cbc(secret, plain),
        Cipher::AesGcm => seal_gcm(secret, plain, authenticated),
        Cipher::SecretBox => seal_box(secret, plain),
    }
}

pub(super) fn open(cipher: Cipher, secret: &[u8], sealed: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    match cipher {
        Cipher::AesCbc => open_cbc(secret, sealed),
        Cipher::AesGcm => open_gcm(secret, sealed, authenticated),
        Cipher::SecretBox => open_box(secret, sealed),
    }
}

fn gcm(secret: &[u8]) -> Result<LessSafeKey, CipherError> {
    let algorithm = match secret.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    UnboundKey::new(algorithm, secret).map(LessSafeKey::new).map_err(|_| broken("the key does not fit"))
}

/// Nonce, value, tag.
fn seal_gcm(secret: &[u8], plain: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    let mut value = plain.to_vec();
    let sealed = gcm(secret)?.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(authenticated),
        &mut value,
    );
    sealed.map_err(|_| broken("the value cannot be encrypted"))?;
    Ok([nonce.as_slice(), &value].concat())
}

fn open_gcm(secret: &[u8], sealed: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (nonce, value) = sealed.split_at_checked(NONCE_BYTES).ok_or_else(|| broken("the value is too short"))?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken("the value is too short"))?;
    let mut value = value.to_vec();
    let opened = gcm(secret)?.open_in_place(nonce, Aad::from(authenticated), &mut value);
    let length = opened.map_err(|_| broken("the key does not open the value, or it was changed"))?.len();
    value.truncate(length);
    Ok(value)
}

fn cbc(secret: &[u8]) -> Result<UnboundCipherKey, CipherError> {
    let algorithm = match secret.len() {
        16 => &cipher::AES_128,
        24 => &cipher::AES_192,
        _ => &cipher::AES_256,
    };
    UnboundCipherKey::new(algorithm, secret).map_err(|_| broken("the key does not fit"))
}

/// Initial vector, value with its padding.
fn seal_cbc(secret: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    let failed = |_| broken("the value cannot be encrypted");
    let key = PaddedBlockEncryptingKey::cbc_pkcs7(cbc(secret)?).map_err(failed)?;
    let mut value = plain.to_vec();
    let context = key.encrypt(&mut value).map_err(failed)?;
    let iv: &[u8] = (&context).try_into().map_err(failed)?;
    Ok([iv, &value].concat())
}

fn open_cbc(secret: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
    let failed = |_| broken("the key does not open the value");
    let (iv, value) = sealed.split_at_checked(IV_BYTES).ok_or_else(|| broken("the value is too short"))?;
    let iv: [u8; IV_BYTES] = iv.try_into().map_err(|_| broken("the value is too short"))?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(cbc(secret)?).map_err(failed)?;
    let mut value = value.to_vec();
    let length = key.decrypt(&mut value, DecryptionContext::Iv128(iv.into())).map_err(failed)?.len();
    value.truncate(length);
    Ok(value)
}

fn secret_box(secret: &[u8]) -> Result<XSalsa20Poly1305, CipherError> {
    XSalsa20Poly1305::new_from_slice(secret).map_err(|_| broken("the key does not fit"))
}

/// Nonce, tag, value.
fn seal_box(secret: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    let nonce: [u8; BOX_NONCE_BYTES] = random()?;
    let value = secret_box(secret)?.encrypt(BoxNonce::from_slice(&nonce), plain);
    Ok([nonce.as_slice(), &value.map_err(|_| broken("the value cannot be encrypted"))?].concat())
}

fn open_box(secret: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (nonce, value) = sealed.split_at_checked(BOX_NONCE_BYTES).ok_or_else(|| broken("the value is too short"))?;
    let opened = secret_box(secret)?.decrypt(BoxNonce::from_slice(nonce), value);
    opened.map_err(|_| broken("the key does not open the value, or it was changed"))
}

const INFO_BYTES: usize = 32;

/// KMS v2: each value has its own key, derived from the seed and the bytes that precede it.
pub(crate) fn seal_derived(seed: &[u8], plain: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    let info: [u8; INFO_BYTES] = random()?;
    let sealed = seal_gcm(&derived(seed, &info)?, plain, authenticated)?;
    Ok([info.as_slice(), &sealed].concat())
}

pub(crate) fn open_derived(seed: &[u8], sealed: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (info, value) = sealed.split_at_checked(INFO_BYTES).ok_or_else(|| broken("the value is too short"))?;
    open_gcm(&derived(seed, info)?, value, authenticated)
}

/// The expand step of HKDF: the seed is already as random as a key.
fn derived(seed: &[u8], info: &[u8]) -> Result<[u8; 32], CipherError> {
    struct Bytes32;
    impl hkdf::KeyType for Bytes32 {
        fn len(&self) -> usize {
            32
        }
    }
    let mut key = [0; 32];
    let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, seed);
    let filled = prk.expand(&[info], Bytes32).and_then(|okm| okm.fill(&mut key));
    filled.map_err(|_| broken("no key can be derived"))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"a secret of any length";

    #[test]
    fn decrypts_only_its_own_values() {
        for cipher in [Cipher::AesCbc, Cipher::AesGcm, Cipher::SecretBox] {
            for length in cipher.key_bytes() {
                let secret = vec![7; *length];
                let sealed = seal(cipher, &secret, PLAIN, b"/registry/secrets/a/b").expect("sealed");
                assert!(!sealed.windows(6).any(|part| part == b"secret"));
                assert_eq!(open(cipher, &secret, &sealed, b"/registry/secrets/a/b").as_deref(), Ok(PLAIN));
                assert_ne!(open(cipher, &vec![8; *length], &sealed, b"/registry/secrets/a/b").as_deref(), Ok(PLAIN));
                assert!(open(cipher, &secret, &sealed[..5], b"").is_err());
                let again = seal(cipher, &secret, PLAIN, b"/registry/secrets/a/b").expect("sealed");
                assert_ne!(sealed, again, "nonces are new each time");
            }
        }
        let sealed = seal(Cipher::AesGcm, &[7; 32], PLAIN, b"here").expect("sealed");
        assert!(open(Cipher::AesGcm, &[7; 32], &sealed, b"there").is_err());
        let sealed = seal_derived(&[9; 32], PLAIN, b"here").expect("sealed");
        assert_eq!(open_derived(&[9; 32], &sealed, b"here").as_deref(), Ok(PLAIN));
        assert!(open_derived(&[9; 32], &sealed, b"there").is_err());
    }

    /// Test vectors of the ciphers, computed by other implementations.
    #[test]
    fn decrypts_known_test_vectors() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
        };
        // NIST SP 800-38A, CBC-AES128, first block; a block of padding follows in ours.
        let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
        let iv: [u8; 16] = hex("000102030405060708090a0b0c0d0e0f").try_into().expect("16 bytes");
        let plain = hex("6bc1bee22e409f96e93d7e117393172a");
        let encrypting = PaddedBlockEncryptingKey::cbc_pkcs7(cbc(&key).expect("a key")).expect("a key");
        let mut value = plain.clone();
        let context = cipher::EncryptionContext::Iv128(iv.into());
        encrypting.less_safe_encrypt(&mut value, context).expect("encrypted");
        assert_eq!(value[..16], hex("7649abac8119b246cee98e9b12e9197d")[..]);
        let sealed = [iv.as_slice(), &value].concat();
        assert_eq!(open(Cipher::AesCbc, &key, &sealed, b"").as_deref(), Ok(plain.as_slice()));
        // The secretbox example of NaCl.
        let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let value = hex(concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a",
            "c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae",
            "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
        ));
        let opened = open(Cipher::SecretBox, &key, &[nonce, value].concat(), b"").expect("NaCl's own");
        assert_eq!(opened[..8], hex("be075fc53c81f2d5")[..]);
        // RFC 5869, test case 1, the expansion alone (its first 32 of 42 bytes).
        let prk = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let okm = hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        assert_eq!(derived(&prk, &hex("f0f1f2f3f4f5f6f7f8f9")).expect("a key")[..], okm[..]);
    }
}
