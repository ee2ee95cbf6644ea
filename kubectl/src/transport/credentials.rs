//! The credentials of a user: tokens, files, passwords, plugins and providers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http_client::Identity;
use stdx::sync::Mutex;

use super::oidc::Provider;
use super::plugin::{Plugin, PluginCredential};
use super::policy::PluginPolicy;
use crate::error::{Error, Result};
use crate::kubeconfig::Connection;

/// A token file is read again after this time: tokens of service accounts rotate.
const FILE_AGE: Duration = Duration::from_secs(10);

/// Where the Authorization header is from.
enum Source {
    None,
    Static(HeaderValue),
    File { path: PathBuf, read: Mutex<Option<(Instant, HeaderValue)>> },
    Plugin { plugin: Plugin, current: Mutex<PluginCredential> },
    Provider(Provider),
}

/// The credentials of a connection.
pub(super) struct Credentials {
    source: Source,
    identity: Option<Identity>,
}

impl Credentials {
    pub(super) async fn new(connection: &Connection, policy: &PluginPolicy) -> Result<Credentials> {
        let source = source(connection, policy).await?;
        let identity = match &connection.identity {
            Some((chain, key)) => Some(identity(chain, key)?),
            None => None,
        };
        Ok(Credentials { source, identity })
    }

    /// The client certificate.
    pub(super) fn identity(&self) -> Result<Option<Identity>> {
        if let Source::Plugin { current, .. } = &self.source
            && let Some((chain, key)) = &current.lock().identity
        {
            return identity(chain, key).map(Some);
        }
        Ok(self.identity.clone())
    }

    /// The header of the next request.
    pub(super) async fn authorization(&self) -> Result<Option<HeaderValue>> {
        match &self.source {
            Source::None => Ok(None),
            Source::Static(value) => Ok(Some(value.clone())),
            Source::File { path, read } => {
                if let Some((at, value)) = &*read.lock()
                    && at.elapsed() < FILE_AGE
                {
                    return Ok(Some(value.clone()));
                }
                let value = bearer(read_token(path)?.trim())?;
                *read.lock() = Some((Instant::now(), value.clone()));
                Ok(Some(value))
            }
            Source::Plugin { plugin, current } => {
                if current.lock().is_expired() {
                    let fresh = plugin.run().await?;
                    *current.lock() = fresh;
                }
                let token = current.lock().token.clone();
                if token.is_empty() { Ok(None) } else { bearer(&token).map(Some) }
            }
            Source::Provider(provider) => bearer(&provider.token().await?).map(Some),
        }
    }

    /// After a rejected request: whether there are other credentials now.
    pub(super) async fn refresh(&self) -> Result<bool> {
        match &self.source {
            Source::Plugin { plugin, current } => {
                let fresh = plugin.run().await?;
                let differs = *current.lock() != fresh;
                *current.lock() = fresh;
                Ok(differs)
            }
            _ => Ok(false),
        }
    }
}

async fn source(connection: &Connection, policy: &PluginPolicy) -> Result<Source> {
    if !connection.token.is_empty() {
        return bearer(&connection.token).map(Source::Static);
    }
    if let Some(path) = &connection.token_file {
        return Ok(Source::File { path: path.clone(), read: Mutex::new(None) });
    }
    if let Some((name, password)) = &connection.basic {
        return header(&format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))).map(Source::Static);
    }
    if let Some(exec) = &connection.exec {
        let plugin = Plugin::new(exec, connection, policy)?;
        let current = Mutex::new(plugin.run().await?);
        return Ok(Source::Plugin { plugin, current });
    }
    if !connection.auth_provider.is_null() {
        return Provider::new(connection).map(Source::Provider);
    }
    Ok(Source::None)
}

fn identity(chain: &[u8], key: &[u8]) -> Result<Identity> {
    Identity::pem(chain, key)
        .map_err(|error| Error::new(format!("tls: failed to find any PEM data in certificate or key input: {error}")))
}

fn read_token(path: &std::path::Path) -> Result<String> {
    let read = std::fs::read_to_string(path);
    read.map_err(|error| {
        let text = crate::error::io_text(&error);
        Error::new(format!("failed to read token file \"{0}\": open {0}: {text}", path.display()))
    })
}

fn bearer(token: &str) -> Result<HeaderValue> {
    header(&format!("Bearer {token}"))
}

fn header(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::new("the credential contains characters that are not allowed in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}
