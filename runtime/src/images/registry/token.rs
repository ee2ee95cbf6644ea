//! Authentication at a registry: with a password, or with a token from its token server.

use ::http::Method;
use ::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use bytes::Bytes;
use serde::Deserialize;

use super::super::error::{Error, Result};
use super::auth::{Challenge, Credentials, encode};
use super::http::{Target, whole};
use super::{CREDENTIALS_REQUIRED, Client, Endpoint, denied, registry_error, unreachable};

const MAX_TOKEN: u64 = 1 << 20;

impl Client {
    /// The authorization header for a challenge.
    pub(super) async fn authorize(&self, endpoint: &Endpoint, wanted: Option<Challenge>) -> Result<HeaderValue> {
        let credentials = self.credentials.as_ref().filter(|_| endpoint.host.origin);
        let denied = |why: &str| denied(endpoint, &self.repository, why);
        let text = match wanted {
            None => return Err(denied("unknown authentication scheme")),
            Some(Challenge::Basic) => {
                credentials.and_then(Credentials::basic_header).ok_or_else(|| denied(CREDENTIALS_REQUIRED))?
            }
            Some(Challenge::Bearer { realm, service, scope }) => {
                format!("Bearer {}", self.token(endpoint, credentials, &realm, &service, &scope).await?)
            }
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| denied("the token is not a valid header value"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn token(
        &self,
        endpoint: &Endpoint,
        credentials: Option<&Credentials>,
        realm: &str,
        service: &str,
        scope: &str,
    ) -> Result<String> {
        if let Some(token) = credentials.map(|own| &own.registry_token).filter(|token| !token.is_empty()) {
            return Ok(token.clone());
        }
        let (target, path) =
            Target::with_path(realm).map_err(|why| registry_error(endpoint, format!("realm {realm:?} {why}")))?;
        let own = endpoint.target();
        if own.tls && !target.tls {
            return Err(registry_error(endpoint, format!("requested to send credentials to {target} without TLS")));
        }
        let scope = if scope.is_empty() {
            format!("repository:{}:{}", self.repository, self.actions)
        } else {
            scope.to_owned()
        };
        let tls = if target == own { &endpoint.tls } else { &endpoint.other_tls };
        let (method, path, headers, body) = token_request(&path, credentials, service, &scope);
        let sent = self.pool.send(&target, tls, method, &path, &headers, body.map(whole)).await;
        let reply = sent.map_err(|error| Error::Unreachable { host: target.authority(), why: error.to_string() })?;
        if !reply.status.is_success() {
            return Err(denied(endpoint, &self.repository, &format!("{target} issued no token: {}", reply.status)));
        }
        let bytes = reply.bytes(MAX_TOKEN).await.map_err(|error| unreachable(endpoint, &error))?;
        let token = bytes.and_then(|bytes| serde_json::from_slice::<Token>(&bytes).ok()).and_then(Token::text);
        token.ok_or_else(|| registry_error(endpoint, format!("{target} sent no token")))
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Token {
    fn text(self) -> Option<String> {
        self.token.or(self.access_token).filter(|token| !token.is_empty())
    }
}

type TokenRequest = (Method, String, HeaderMap, Option<Bytes>);

/// An identity token is exchanged with a form, a password with a query and basic authentication.
fn token_request(path: &str, credentials: Option<&Credentials>, service: &str, scope: &str) -> TokenRequest {
    let mut headers = HeaderMap::new();
    let query = format!("service={}&scope={}", encode(service), encode(scope));
    if let Some(own) = credentials.filter(|own| !own.identity_token.is_empty()) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let token = encode(&own.identity_token);
        let form = format!("grant_type=refresh_token&client_id=tiphys&{query}&refresh_token={token}");
        return (Method::POST, path.to_owned(), headers, Some(form.into()));
    }
    let basic = credentials.and_then(Credentials::basic_header);
    if let Some(value) = basic.and_then(|basic| HeaderValue::from_str(&basic).ok()) {
        headers.insert(AUTHORIZATION, value);
    }
    let joint = if path.contains('?') { '&' } else { '?' };
    (Method::GET, format!("{path}{joint}{query}"), headers, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_requests_depend_on_the_credentials() {
        let (method, path, headers, body) = token_request("/token?x=1", None, "s", "repository:a:pull");
        assert_eq!((method, path.as_str()), (Method::GET, "/token?x=1&service=s&scope=repository%3Aa%3Apull"));
        assert!(headers.is_empty() && body.is_none());
        let (_, _, headers, _) = token_request("/token", Some(&Credentials::basic("u", "p")), "s", "x");
        assert_eq!(headers[AUTHORIZATION], "Basic dTpw");
        let own = Credentials { identity_token: "i&d".into(), ..Credentials::default() };
        let (method, path, _, body) = token_request("/token", Some(&own), "s", "x");
        assert_eq!((method, path.as_str()), (Method::POST, "/token"));
        assert!(body.unwrap().ends_with(b"scope=x&refresh_token=i%26d"));
    }
}
