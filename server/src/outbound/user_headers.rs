//! The user of a request in the headers of a proxy, for servers that authenticate the proxy by its certificate.

use api::Tree;
use http::header::{InvalidHeaderName, InvalidHeaderValue};
use http::{HeaderMap, HeaderName, HeaderValue};
use kinds::User;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// What is escaped in a key that is the end of a header's name.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Additional headers that servers trust for the user's identity.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedHeaders {
    pub names: Vec<String>,
    pub prefixes: Vec<String>,
}

impl TrustedHeaders {
    fn contain(&self, header: &HeaderName) -> bool {
        let header = header.as_str();
        let is = |name: &str| header.eq_ignore_ascii_case(name);
        let begins = |prefix: &str| header.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        [USER, UID, GROUP].into_iter().chain(self.names.iter().map(String::as_str)).any(is)
            || [EXTRA].into_iter().chain(self.prefixes.iter().map(String::as_str)).any(begins)
    }
}

/// A user that cannot be expressed in headers.
#[derive(Debug, thiserror::Error)]
pub enum UserHeaderError {
    /// The key of an extra value.
    #[error("invalid name of a header")]
    Name(#[from] InvalidHeaderName),
    /// A name, a group or an extra value.
    #[error("invalid value of a header")]
    Value(#[from] InvalidHeaderValue),
}

/// The headers that name a user.
pub fn user_headers(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, UserHeaderError> {
    let mut headers = vec![(HeaderName::from_static(USER), HeaderValue::try_from(&user.name)?)];
    if !user.uid.is_empty() {
        headers.push((HeaderName::from_static(UID), HeaderValue::try_from(&user.uid)?));
    }
    for group in &user.groups {
        headers.push((HeaderName::from_static(GROUP), HeaderValue::try_from(group)?));
    }
    for (key, values) in user.extra.iter() {
        let name = HeaderName::try_from(format!("{EXTRA}{}", escape_key(key)))?;
        for value in values.as_list().unwrap_or_default().iter().filter_map(Tree::as_str) {
            headers.push((name.clone(), HeaderValue::try_from(value)?));
        }
    }
    Ok(headers)
}

/// Replaces all headers that could name a user: headers from the client must not be trusted.
pub(crate) fn set_user(headers: &mut HeaderMap, user: &User, trusted: &TrustedHeaders) -> Result<(), UserHeaderError> {
    let own = user_headers(user)?;
    let foreign: Vec<HeaderName> = headers.keys().filter(|name| trusted.contain(name)).cloned().collect();
    for name in foreign {
        headers.remove(name);
    }
    for (name, value) in own {
        headers.append(name, value);
    }
    Ok(())
}

/// A key as the end of a header's name.
fn escape_key(key: &str) -> String {
    utf8_percent_encode(key, KEY).to_string()
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn user() -> User {
        let mut user = User { name: "ann".to_string(), uid: "7".to_string(), ..User::default() };
        user.groups = vec!["a".to_string(), "b".to_string()];
        let extra = tree! { "acme.com/project" => list!["p1", "p2"] };
        user.extra = extra.as_map().expect("a map").clone();
        user
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().expect("text"))).collect();
        all.sort();
        all
    }

    #[test]
    fn headers_of_clients_are_replaced() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "X-REMOTE-GROUP", "x-remote-uid", "x-remote-extra-scopes", "x-user", "x-more-a"] {
            headers.insert(HeaderName::try_from(name).expect("a name"), HeaderValue::from_static("root"));
        }
        headers.insert("accept", HeaderValue::from_static("x"));
        let trusted = TrustedHeaders { names: vec!["X-User".to_string()], prefixes: vec!["X-More-".to_string()] };
        set_user(&mut headers, &user(), &trusted).expect("headers");
        assert_eq!(
            shown(&headers),
            [
                "accept=x",
                "x-remote-extra-acme.com%2fproject=p1",
                "x-remote-extra-acme.com%2fproject=p2",
                "x-remote-group=a",
                "x-remote-group=b",
                "x-remote-uid=7",
                "x-remote-user=ann",
            ]
        );
    }

    #[test]
    fn rejects_users_with_line_breaks() {
        let user = User { name: "a\r\nx-remote-group: system:masters".to_string(), ..User::default() };
        assert!(user_headers(&user).is_err());
    }
}
