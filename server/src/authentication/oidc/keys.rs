//! The public keys of a provider, found by its discovery document.

use std::time::Duration;

use api::{Tree, json};
use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::authentication::jwt::{Key, Unverified};
use crate::outbound::callout::{self, Client, Url, UrlError};

/// The timeout for one document of a provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Tokens with unknown keys must not each cause a request to the provider.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_KEYS: usize = 256;

/// Why the keys of a provider could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the discovery document of {0} is of another issuer")]
    OtherIssuer(Url),
    #[error("jwks_uri: {0}")]
    KeysUrl(#[from] UrlError),
    #[error("jwks_uri: {0} is not https")]
    NotHttps(Url),
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error("{url} returned {code}")]
    Code { url: Url, code: u16 },
    #[error("{0} returned invalid JSON")]
    NotJson(Url),
}

pub(crate) struct Keys {
    client: Client,
    discovery: Url,
    issuer: String,
    known: ArcSwap<Vec<Key>>,
    /// When they were fetched; locked during a fetch.
    fetched: Mutex<Option<Instant>>,
}

impl Keys {
    pub(super) fn new(client: Client, discovery: Url, issuer: String) -> Keys {
        Keys { client, discovery, issuer, known: ArcSwap::default(), fetched: Mutex::default() }
    }

    /// Whether a known key has signed the token; None if its key is not known.
    pub(super) fn verifies(&self, token: &Unverified<'_>) -> Option<bool> {
        let id = token.header.str("kid");
        let known = self.known.load();
        let mut candidates = known.iter().filter(|key| id.is_empty() || key.id == id).peekable();
        candidates.peek()?;
        let good = candidates.any(|key| key.verifies(token));
        // A token without a key ID may be signed with a new key.
        (good || !id.is_empty()).then_some(good)
    }

    /// Fetches the keys, unless they have just been fetched. Of many concurrent callers only one sends the request.
    pub(super) async fn refresh(&self) -> Result<(), FetchError> {
        let mut fetched = self.fetched.lock().await;
        if fetched.is_some_and(|at| at.elapsed() < PAUSE) {
            return Ok(());
        }
        let keys = self.fetch().await;
        *fetched = Some(Instant::now());
        self.known.store(std::sync::Arc::new(keys?));
        Ok(())
    }

    async fn fetch(&self) -> Result<Vec<Key>, FetchError> {
        let document = self.get(&self.discovery).await?;
        if document.str("issuer") != self.issuer {
            return Err(FetchError::OtherIssuer(self.discovery.clone()));
        }
        let url = Url::parse(document.str("jwks_uri"))?;
        if !url.tls {
            return Err(FetchError::NotHttps(url));
        }
        let set = self.get(&url).await?;
        Ok(set.list("keys").iter().filter_map(Key::read).take(MAX_KEYS).collect())
    }

    async fn get(&self, url: &Url) -> Result<Tree, FetchError> {
        let response = self.client.get(url, TIMEOUT).await?;
        if !response.is_success() {
            return Err(FetchError::Code { url: url.clone(), code: response.code });
        }
        json::decode(&response.body).map_err(|_| FetchError::NotJson(url.clone()))
    }
}
