//! The controllers' own identities over HTTPS: each acts with a token of its service account, requested when needed and
//! renewed before it expires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::https::{Credential, Credentials, bearer};
use client::{Client, Error, Resource, Result};
use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const NAMESPACE: &str = "kube-system";
/// The requested lifetime of a token, and the fraction after which it is renewed.
const LIFETIME: Duration = Duration::from_secs(3600);
const RENEWAL: f64 = 0.7;
/// A file is read again after this.
const FILE_PERIOD: Duration = Duration::from_secs(60);

type CachedToken = Mutex<Option<(HeaderValue, Instant)>>;

/// A service account of kube-system.
pub(super) struct Account {
    name: &'static str,
    /// May create tokens and service accounts.
    manager: Client,
    held: CachedToken,
}

impl Account {
    pub(super) fn new(name: &'static str, manager: Client) -> Arc<Account> {
        Arc::new(Account { name, manager, held: Mutex::default() })
    }

    async fn token(&self) -> Result<HeaderValue> {
        let mut held = self.held.lock().await;
        if let Some((token, _)) = held.as_ref().filter(|(_, until)| Instant::now() < *until) {
            return Ok(token.clone());
        }
        let requested_at = Instant::now();
        let answer = match self.request_token().await {
            Err(error) if error.is_not_found() => {
                self.create_account().await?;
                self.request_token().await?
            }
            answer => answer?,
        };
        let token = bearer(answer.str("status.token"))?;
        *held = Some((token.clone(), requested_at + LIFETIME.mul_f64(RENEWAL)));
        Ok(token)
    }

    async fn request_token(&self) -> Result<Tree> {
        let seconds = i64::try_from(LIFETIME.as_secs()).unwrap_or(i64::MAX);
        let request = tree! {
            "apiVersion" => "authentication.k8s.io/v1",
            "kind" => "TokenRequest",
            "spec" => tree! { "expirationSeconds" => seconds },
        };
        self.manager.create_subresource(ACCOUNTS, NAMESPACE, self.name, "token", &request).await
    }

    async fn create_account(&self) -> Result<()> {
        let account = tree! {
            "apiVersion" => "v1",
            "kind" => "ServiceAccount",
            "metadata" => tree! { "name" => self.name, "namespace" => NAMESPACE },
        };
        match self.manager.create(ACCOUNTS, NAMESPACE, &account).await {
            Err(error) if error.is_already_exists() => Ok(()),
            result => result.map(drop),
        }
    }
}

impl Credentials for Account {
    fn credential(&self) -> Credential<'_> {
        Box::pin(self.token())
    }

    /// The account may have been recreated: the next request gets a new token.
    fn refused(&self) {
        if let Ok(mut held) = self.held.try_lock() {
            *held = None;
        }
    }
}

/// A token file that another process rotates.
pub(super) struct TokenFile {
    path: PathBuf,
    held: CachedToken,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> TokenFile {
        TokenFile { path, held: Mutex::default() }
    }

    async fn token(&self) -> Result<HeaderValue> {
        let mut held = self.held.lock().await;
        if let Some((token, _)) = held.as_ref().filter(|(_, until)| Instant::now() < *until) {
            return Ok(token.clone());
        }
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|error| Error::Transport(format!("{}: {error}", self.path.display())))?;
        let token = bearer(text.trim())?;
        *held = Some((token.clone(), Instant::now() + FILE_PERIOD));
        Ok(token)
    }
}

impl Credentials for TokenFile {
    fn credential(&self) -> Credential<'_> {
        Box::pin(self.token())
    }
}
