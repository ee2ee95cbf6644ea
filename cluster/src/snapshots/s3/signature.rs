//! Signature version 4 of AWS. No I/O here.

use api::query::percent_encode;
use api::time::Timestamp;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{self, HMAC_SHA256};

use super::credentials::Credentials;

const SERVICE: &str = "s3";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What is signed.
pub(super) struct SignedRequest<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Percent-encoded.
    pub path: &'a str,
    /// Percent-encoded and sorted by name.
    pub query: &'a str,
    /// The SHA-256 of the body in hexadecimal digits.
    pub body_hash: &'a str,
    pub region: &'a str,
    pub now: Timestamp,
}

impl SignedRequest<'_> {
    /// The headers of the request, with its signature.
    pub(super) fn headers(&self, credentials: &Credentials) -> Vec<(&'static str, String)> {
        let time = compact(self.now);
        let mut headers = vec![
            ("host", self.host.to_string()),
            ("x-amz-content-sha256", self.body_hash.to_string()),
            ("x-amz-date", time.clone()),
        ];
        headers.extend(credentials.session_token.clone().map(|token| ("x-amz-security-token", token)));
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let scope = format!("{}/{}/{SERVICE}/aws4_request", &time[..8], self.region);
        let canonical = self.canonical(&headers, &names);
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(digest(&SHA256, canonical.as_bytes()).as_ref()));
        let signature = hex(sign(&self.key(&time[..8], &credentials.secret_key), &text).as_ref());
        let value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            credentials.access_key
        );
        headers.push(("authorization", value));
        headers
    }

    fn canonical(&self, headers: &[(&str, String)], names: &str) -> String {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        // A parameter without a value has an equals sign.
        format!("{}\n{}\n{}\n{lines}\n{names}\n{}", self.method, self.path, self.query, self.body_hash)
    }

    fn key(&self, day: &str, secret: &str) -> Vec<u8> {
        let first = format!("AWS4{secret}").into_bytes();
        [day, self.region, SERVICE, "aws4_request"].iter().fold(first, |key, text| sign(&key, text).as_ref().to_vec())
    }
}

fn sign(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes())
}

/// `20130524T000000Z`
fn compact(time: Timestamp) -> String {
    api::time::format_seconds(time.seconds).chars().filter(|letter| letter.is_ascii_alphanumeric()).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    stdx::hex::encode(bytes)
}

/// Percent-encodes a key, except for its slashes.
pub(super) fn encode_key(key: &str) -> String {
    percent_encode(key).replace("%2F", "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Bucket (List Objects)" of AWS's documentation.
    #[test]
    fn signs_the_documented_example() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_string(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_string(),
            session_token: None,
        };
        let request = SignedRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: "max-keys=2&prefix=J",
            body_hash: &hex(digest(&SHA256, b"").as_ref()),
            region: "us-east-1",
            now: Timestamp { seconds: 1_369_353_600, nanos: 0 },
        };
        let headers = request.headers(&credentials);
        let (name, value) = headers.last().expect("a header");
        assert_eq!(*name, "authorization");
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(value.ends_with(&format!("Signature={signature}")), "{value}");
        assert!(value.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"), "{value}");
    }

    #[test]
    fn encodes_everything_reserved() {
        assert_eq!(encode_key("a/b c+é~"), "a/b%20c%2B%C3%A9~");
    }
}
