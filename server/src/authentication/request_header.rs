//! Users named by a proxy in headers, if the proxy presents its own certificate. The headers of any other client are
//! removed.

use std::sync::Arc;

use api::{Map, Tree};
use http::{HeaderMap, HeaderName};
use kinds::User;

use super::{Authenticator, Credentials, Verdict, extra_key};
use crate::call::Peer;
use crate::common::users::with_authenticated_group;
use crate::outbound::user_headers::TrustedHeaders;
use crate::request::head::RequestHead;
use crate::tls::client::{CaBundle, CertificateError, ClientChain};

/// A configured name that no header can have.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a valid header name")]
pub struct HeaderNameError(String);

/// Why a proxy is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("x509: subject with cn={0} is not in the allowed list")]
    NotAllowed(String),
}

/// The proxies that may name users, and the headers by which they do.
pub struct RequestHeader {
    /// The CAs of proxy certificates.
    pub cas: CaBundle,
    /// Allowed names of proxies; any name if empty.
    pub allowed_names: Vec<String>,
    /// The configured names, which are published for extension API servers.
    pub names: Names,
    headers: Headers,
}

/// The headers that name the user.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub username: Vec<String>,
    pub uid: Vec<String>,
    pub groups: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl Names {
    /// The names that the documentation of Kubernetes uses.
    pub fn default_names() -> Names {
        let one = |name: &str| vec![name.to_string()];
        Names {
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            groups: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    /// All headers, which a proxy must not pass on from clients.
    pub(crate) fn trusted_headers(&self) -> TrustedHeaders {
        let names = [&self.username, &self.uid, &self.groups].into_iter().flatten().cloned().collect();
        TrustedHeaders { names, prefixes: self.extra_prefixes.clone() }
    }
}

/// The headers in the form for lookups.
struct Headers {
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    groups: Vec<HeaderName>,
    extra_prefixes: Vec<String>,
}

pub(crate) fn authenticate(auth: &Authenticator, head: &mut RequestHead, peer: &Peer, _: &Credentials) -> Verdict {
    let Some(proxies) = &auth.config.request_header else { return Verdict::Unknown };
    match proxies.user(&mut head.headers, &peer.certificates, head.now) {
        None => Verdict::Unknown,
        Some(Err(why)) => Verdict::refused(why),
        Some(Ok(user)) => Verdict::known(user),
    }
}

impl RequestHeader {
    /// Fails if a configured name cannot be that of a header.
    pub fn new(cas: CaBundle, allowed_names: Vec<String>, names: Names) -> Result<RequestHeader, HeaderNameError> {
        Ok(RequestHeader { cas, allowed_names, headers: Headers::new(&names)?, names })
    }

    /// The user that a proxy names, if any. Removes the headers.
    pub fn user(
        &self,
        headers: &mut HeaderMap,
        chain: &ClientChain,
        now: i64,
    ) -> Option<Result<Arc<User>, ProxyError>> {
        let user = self.headers.take(headers)?;
        if chain.is_empty() {
            return None;
        }
        Some(match self.cas.identify(chain, &chain.as_proxy, now) {
            Ok(proxy) if self.allows(&proxy.name) => Ok(with_authenticated_group(user)),
            Ok(proxy) => Err(ProxyError::NotAllowed(proxy.name.clone())),
            Err(error) => Err(error.into()),
        })
    }

    fn allows(&self, name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|allowed| allowed == name)
    }
}

impl Headers {
    fn new(names: &Names) -> Result<Headers, HeaderNameError> {
        let read = |names: &[String]| names.iter().map(|name| header_name(name)).collect::<Result<Vec<_>, _>>();
        Ok(Headers {
            username: read(&names.username)?,
            uid: read(&names.uid)?,
            groups: read(&names.groups)?,
            extra_prefixes: read(&names.extra_prefixes)?.iter().map(|name| name.as_str().to_string()).collect(),
        })
    }

    /// The user that the headers name, if any. Removes them.
    fn take(&self, headers: &mut HeaderMap) -> Option<User> {
        let name = take_first(headers, &self.username);
        let uid = take_first(headers, &self.uid);
        let groups = take_all(headers, &self.groups);
        let extra = self.take_extra(headers);
        (!name.is_empty()).then(|| User { name, uid, groups, extra })
    }

    fn take_extra(&self, headers: &mut HeaderMap) -> Map {
        let mut extra = Map::new();
        for prefix in &self.extra_prefixes {
            let names: Vec<HeaderName> =
                headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
            for name in names {
                let values = take_all(headers, std::slice::from_ref(&name)).into_iter().map(Tree::from).collect();
                let key = extra_key(&name.as_str()[prefix.len()..]);
                match extra.get_or_insert(&key, || Tree::List(Vec::new())).as_list_mut() {
                    Some(list) => list.append(&mut { values }),
                    None => continue,
                }
            }
        }
        extra
    }
}

fn header_name(name: &str) -> Result<HeaderName, HeaderNameError> {
    name.parse().map_err(|_| HeaderNameError(name.to_string()))
}

fn take_first(headers: &mut HeaderMap, names: &[HeaderName]) -> String {
    take_all(headers, names).into_iter().next().unwrap_or_default()
}

/// Every value that is not empty, in order.
fn take_all(headers: &mut HeaderMap, names: &[HeaderName]) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        all.extend(values.filter(|value| !value.is_empty()).map(str::to_string));
        headers.remove(name);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_become_a_user_and_are_removed() {
        let mut names = Names::default_names();
        names.username.push("X-Other-User".to_string());
        let rules = Headers::new(&names).expect("names");
        let mut headers = HeaderMap::new();
        let given = [
            ("x-other-user", "jane"),
            ("x-remote-group", "devs"),
            ("x-remote-group", "ops"),
            ("x-remote-uid", "7"),
            ("x-remote-extra-acme.com%2fproject", "x"),
            ("accept", "a"),
        ];
        for (name, value) in given {
            headers.append(name, value.parse().expect("a value"));
        }
        let user = rules.take(&mut headers).expect("a user");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["devs", "ops"]);
        assert_eq!(user.extra.keys().collect::<Vec<_>>(), ["acme.com/project"]);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        assert_eq!(rules.take(&mut headers), None);
    }
}
