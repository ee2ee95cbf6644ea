//! The OpenID provider of a kubeconfig: its token is refreshed before it expires, and written back.

use std::path::PathBuf;
use std::sync::Arc;

use api::query::encode_query;
use api::{Tree, json};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use http_client::{Address, Trust, tls};
use stdx::sync::Mutex;

use crate::clock;
use crate::error::{Error, Result, message};
use crate::kubeconfig::{Connection, Section, ServerUrl, environment_paths, load_file, write_file};

/// Discovery documents and token responses are small.
const MAX_BODY: usize = 1024 * 1024;
/// A token is refreshed this long before it expires, in seconds.
const MARGIN: i64 = 10;

/// A provider and its current token.
pub(super) struct Provider {
    config: Mutex<Tree>,
    user: String,
}

impl Provider {
    pub(super) fn new(connection: &Connection) -> Result<Provider> {
        match connection.auth_provider.str("name") {
            "oidc" => {}
            name => return message(format!("no Auth Provider found for name \"{name}\"")),
        }
        let config = connection.auth_provider.at("config").clone();
        for (field, text) in [("idp-issuer-url", "idp-issuer-url"), ("client-id", "client-id")] {
            if config.str(field).is_empty() {
                return message(format!("Must provide {text}"));
            }
        }
        Ok(Provider { config: Mutex::new(config), user: connection.user.clone() })
    }

    /// A token that has not expired.
    pub(super) async fn token(&self) -> Result<String> {
        let config = self.config.lock().clone();
        let token = config.str("id-token").to_string();
        if !token.is_empty() && expiry(&token).is_none_or(|at| at > clock::now() + MARGIN) {
            return Ok(token);
        }
        let fresh = refresh(&config).await.map_err(|error| Error::Connect {
            host: String::new(),
            reason: format!("failed to refresh token: {error}"),
            is_refused: false,
        })?;
        self.store(&fresh)?;
        let token = fresh.str("id-token").to_string();
        *self.config.lock() = fresh;
        Ok(token)
    }

    /// Writes the tokens into the file that the user's entry is from.
    fn store(&self, fresh: &Tree) -> Result<()> {
        let paths = environment_paths("");
        for path in paths.files() {
            let Ok(mut config) = load_file(path) else { continue };
            let key = (Section::Users, self.user.clone());
            let Some(entry) = config.entries.get_mut(&key) else { continue };
            entry.value.child("auth-provider").set("config", fresh.clone());
            return write_file(path, &config);
        }
        Ok(())
    }
}

/// The `exp` claim. The signature is for the server to check.
fn expiry(token: &str) -> Option<i64> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    json::decode(&claims).ok()?.int("exp")
}

/// Exchanges the refresh token.
async fn refresh(config: &Tree) -> Result<Tree> {
    let refresh_token = config.str("refresh-token");
    if refresh_token.is_empty() {
        return message("No valid id-token, and cannot refresh without refresh-token");
    }
    let trust = trust(config)?;
    let issuer = config.str("idp-issuer-url").trim_end_matches('/');
    let discovery = fetch(&format!("{issuer}/.well-known/openid-configuration"), None, &trust).await?;
    let endpoint = discovery.str("token_endpoint");
    if endpoint.is_empty() {
        return message("the provider's configuration has no token_endpoint");
    }
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
    let body = form.map(|(name, value)| format!("{name}={}", encode_query(value))).join("&");
    let login = format!("{}:{}", encode_query(config.str("client-id")), encode_query(config.str("client-secret")));
    let response = fetch(endpoint, Some((body, login)), &trust).await?;
    let token = response.str("id_token");
    if token.is_empty() {
        return message(
            "token response did not contain an id_token, either the scope \"openid\" wasn't requested upon login, or the provider doesn't support id_tokens as part of the refresh response",
        );
    }
    let mut fresh = config.clone();
    fresh.set("id-token", token);
    if !response.str("refresh_token").is_empty() {
        fresh.set("refresh-token", response.str("refresh_token"));
    }
    Ok(fresh)
}

fn trust(config: &Tree) -> Result<Trust> {
    let data = config.str("idp-certificate-authority-data");
    let pem = match (data, config.str("idp-certificate-authority")) {
        ("", "") => return Ok(Trust::System),
        ("", path) => std::fs::read(PathBuf::from(path))?,
        (data, _) => api::base64::decode(data).map_err(|error| Error::new(error.to_string()))?,
    };
    Trust::pem(&pem).map_err(|error| Error::new(error.to_string()))
}

async fn fetch(url: &str, form: Option<(String, String)>, trust: &Trust) -> Result<Tree> {
    let server = ServerUrl::parse(url)?;
    if !server.is_tls {
        return message(format!("{url}: an OpenID provider must use https"));
    }
    let failed = |error: &dyn std::error::Error| Error::new(format!("{url}: {}", stdx::error::chain(error)));
    let config = tls::config(trust, None, &[tls::HTTP1]).map_err(|error| failed(&error))?;
    let address = Address::new(true, &server.host, server.port);
    let stream = http_client::connect(&address, &Arc::new(config)).await.map_err(|error| failed(&error))?;
    let mut request = Request::new(Full::new(Bytes::new()));
    let uri = if server.path.is_empty() { "/" } else { &server.path };
    *request.uri_mut() = uri.parse().map_err(|_| Error::new(format!("{url}: invalid path")))?;
    let host = HeaderValue::from_str(&server.authority()).map_err(|error| failed(&error))?;
    request.headers_mut().insert(header::HOST, host);
    if let Some((body, login)) = form {
        *request.method_mut() = http::Method::POST;
        let login =
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(login))).map_err(|error| failed(&error))?;
        request.headers_mut().insert(header::AUTHORIZATION, login);
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, form);
        *request.body_mut() = Full::new(body.into());
    }
    let response = http_client::send_once(stream, request).await.map_err(|error| failed(&error))?;
    let code = response.status();
    let body = http_client::body::read(response.into_body(), MAX_BODY).await.map_err(|error| failed(&error))?;
    if !code.is_success() {
        return message(format!("{url}: {code}: {}", String::from_utf8_lossy(&body)));
    }
    json::decode(&body).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_expiry_of_a_token() {
        let token = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(r#"{"exp":12}"#));
        assert_eq!(expiry(&token), Some(12));
        assert_eq!(expiry("opaque"), None);
    }
}
