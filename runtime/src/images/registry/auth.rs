//! Credentials, and authentication challenges of registries. Nothing here does I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A user's credentials for one registry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
    /// Exchanged for bearer tokens.
    pub identity_token: String,
    /// A bearer token that is sent as it is.
    pub registry_token: String,
    /// The registry that they are for; any registry if empty.
    pub server_address: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why Docker's encoding of a name and a password cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodedAuthError {
    #[error("auth is not base64")]
    Base64,
    #[error("auth is not UTF-8")]
    Utf8,
    #[error("auth has no colon")]
    Colon,
}

impl Credentials {
    /// A user name and a password.
    pub fn basic(username: &str, password: &str) -> Credentials {
        Credentials { username: username.to_owned(), password: password.to_owned(), ..Credentials::default() }
    }

    /// Adds name and password in Docker's encoding.
    pub fn with_encoded(self, auth: &str) -> Result<Credentials, EncodedAuthError> {
        if auth.is_empty() {
            return Ok(self);
        }
        let bytes = STANDARD.decode(auth.trim()).map_err(|_| EncodedAuthError::Base64)?;
        let text = String::from_utf8(bytes).map_err(|_| EncodedAuthError::Utf8)?;
        let (username, password) = text.split_once(':').ok_or(EncodedAuthError::Colon)?;
        let password = password.trim_end_matches('\0').to_owned();
        Ok(Credentials { username: username.to_owned(), password, ..self })
    }

    /// Whether there is nothing to authenticate with.
    pub fn is_empty(&self) -> bool {
        self.username.is_empty() && self.identity_token.is_empty() && self.registry_token.is_empty()
    }

    /// Whether they are for this registry.
    pub fn is_for(&self, registry: &str) -> bool {
        let address = self.server_address.trim_start_matches("https://").trim_start_matches("http://");
        let host = address.split('/').next().unwrap_or_default();
        let docker = |name: &str| matches!(name, "docker.io" | "index.docker.io" | "registry-1.docker.io");
        host.is_empty() || host == registry || (docker(host) && docker(registry))
    }

    /// The value of a basic authorization header.
    pub fn basic_header(&self) -> Option<String> {
        let pair = format!("{}:{}", self.username, self.password);
        (!self.username.is_empty()).then(|| format!("Basic {}", STANDARD.encode(pair)))
    }
}

/// An authentication challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: String, scope: String },
}

/// Parses `WWW-Authenticate` headers. Bearer is preferred, since the password is sent less often.
pub(crate) fn challenge<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Challenge> {
    let mut best = None;
    for header in headers {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            if let Some(bearer) = bearer(rest) {
                return Some(bearer);
            }
        } else if scheme.eq_ignore_ascii_case("basic") {
            best = Some(Challenge::Basic);
        }
    }
    best
}

fn bearer(rest: &str) -> Option<Challenge> {
    let (mut realm, mut service, mut scope) = (None, String::new(), String::new());
    for (key, value) in parameters(rest) {
        match key.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = value,
            "scope" => scope = value,
            _ => {}
        }
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// Parses `key="value", key=value`. Quoted values may contain commas and escaped quotes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let key = key.trim().trim_start_matches(',').trim();
        let (value, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        all.push((key.to_owned(), value));
        rest = after;
    }
    all
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// Percent-encodes a text for a query or a form.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_challenges() {
        let bearer = |realm: &str, service: &str, scope: &str| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.into(), scope: scope.into() })
        };
        let cases: &[(&[&str], Option<Challenge>)] = &[
            (&[r#"Basic realm="x""#], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (
                &[r#"Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull,push""#],
                bearer("https://auth.example/token", "registry", "repository:a/b:pull,push"),
            ),
            (&[r#"bearer service=s , realm="https://a/\"q\"""#], bearer("https://a/\"q\"", "s", "")),
            (&[r#"Basic realm="x""#, r#"Bearer realm="https://a""#], bearer("https://a", "", "")),
            (&["Bearer service=\"x\"", "Basic"], Some(Challenge::Basic)),
            (&["Negotiate"], None),
            (&[""], None),
            (&[r#"Bearer realm="unended"#], bearer("unended", "", "")),
            (&[], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(challenge(headers.iter().copied()), *expected, "{headers:?}");
        }
    }

    #[test]
    fn credentials_are_for_one_registry() {
        let cases = [
            ("", "any.example", true),
            ("https://index.docker.io/v1/", "docker.io", true),
            ("r.example:5000", "r.example:5000", true),
            ("https://r.example", "r.example", true),
            ("r.example", "r.example.evil", false),
            ("docker.io", "r.example", false),
        ];
        for (address, registry, expected) in cases {
            let credentials = Credentials { server_address: address.into(), ..Credentials::basic("u", "p") };
            assert_eq!(credentials.is_for(registry), expected, "{address} {registry}");
        }
    }

    #[test]
    fn decodes_credentials() {
        let read = |auth: &str| Credentials::default().with_encoded(auth);
        let good = read("dXNlcjpwYTpzcw==").unwrap();
        assert_eq!((good.username.as_str(), good.password.as_str()), ("user", "pa:ss"));
        assert_eq!(good.basic_header().unwrap(), "Basic dXNlcjpwYTpzcw==");
        assert!(read("%%%").is_err() && read("dXNlcg==").is_err());
        assert!(!format!("{good:?}").contains("pa:ss"));
    }

    #[test]
    fn encodes_queries() {
        assert_eq!(encode("repository:a/b:pull x"), "repository%3Aa%2Fb%3Apull%20x");
    }
}
