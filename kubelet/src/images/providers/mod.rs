//! Credentials from plugins: executables of the node that get an image and return credentials for it. Responses are
//! cached for the duration that they contain, by image, registry or globally.

pub(crate) mod config;
mod exec;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json, time, tree};
use client::{Client, Resource};
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};

use super::keyring;
use super::records::{Credential, Source};
use crate::model::pod;
use crate::volumes::{TokenError, Tokens};
use config::{PROTOCOL, Provider, TokenRules};

const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const SECOND: i64 = 1_000_000_000;
const TOKEN_SECONDS: i64 = 3600;
/// The number of cached responses.
const MOST: usize = 1000;
const GLOBAL: &str = "<global>";

pub(crate) struct Providers {
    list: Vec<Provider>,
    client: Client,
    pub(super) clock: Arc<dyn Clock>,
    tokens: Tokens,
    kept: Mutex<BTreeMap<Key, CachedAuth>>,
    /// One call per plugin at a time: the next may find its response cached.
    turns: Vec<tokio::sync::Mutex<()>>,
}

/// The provider, the service account, and the image, its registry or all.
type Key = (String, String, String);

#[derive(Clone)]
struct CachedAuth {
    auths: Tree,
    until: i64,
}

/// The service account for which a plugin is called. Responses are not shared between accounts.
#[derive(Default)]
struct ServiceAccount {
    token: String,
    annotations: Tree,
    key: String,
    source: Source,
}

/// Providers that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("--image-credential-provider-config: {0}")]
    Config(#[from] config::ConfigError),
    #[error("--image-credential-provider-config and --image-credential-provider-bin-dir must be set together")]
    Incomplete,
}

/// A request to a plugin that has failed.
#[derive(Debug, thiserror::Error)]
enum PluginError {
    #[error(transparent)]
    Exec(#[from] exec::ExecError),
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(
        "unexpected response of kind {kind:?} and version {version:?}, expected a CredentialProviderResponse of {PROTOCOL}"
    )]
    Kind { kind: String, version: String },
    #[error("cacheKeyType {0:?}: must be Image, Registry or Global")]
    CacheKeyType(String),
    #[error("cacheDuration {0:?}")]
    CacheDuration(String),
}

impl Providers {
    /// Either both paths are set, or none.
    pub(crate) fn open(
        places: (Option<&Path>, Option<&Path>),
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Providers, OpenError> {
        let list = match places {
            (None, None) => Vec::new(),
            (Some(config), Some(programs)) => config::read(config, programs)?,
            _ => return Err(OpenError::Incomplete),
        };
        let turns = list.iter().map(|_| tokio::sync::Mutex::default()).collect();
        Ok(Providers { list, client, clock, tokens: Tokens::default(), kept: Mutex::default(), turns })
    }

    /// Credentials of all plugins for an image, the most specific first.
    pub(crate) async fn find(&self, pod: &Tree, image: &str) -> Vec<Credential> {
        let mut found = Vec::new();
        for (provider, turn) in self.list.iter().zip(&self.turns) {
            if !provider.images.iter().any(|pattern| keyring::fits(pattern, image)) {
                continue;
            }
            let _turn = turn.lock().await;
            match self.get_credentials(provider, pod, image).await {
                Ok((auths, source)) => found.extend(keyring::credentials_from_auths(&auths, image, &source)),
                Err(error) => {
                    tracing::error!(provider = provider.name, image, why = %error, "credential provider failed");
                }
            }
        }
        found
    }

    async fn get_credentials(
        &self,
        provider: &Provider,
        pod: &Tree,
        image: &str,
    ) -> Result<(Tree, Source), PluginError> {
        let caller = match &provider.token {
            None => ServiceAccount::default(),
            Some(rules) => match self.caller(rules, pod).await? {
                Some(caller) => caller,
                None => return Ok((Tree::Null, Source::Node)),
            },
        };
        let places = [image, registry(image), GLOBAL];
        let now = self.now();
        let key = |place: &str| (provider.name.clone(), caller.key.clone(), place.to_string());
        let known =
            places.iter().find_map(|place| self.kept().get(&key(place)).filter(|kept| now < kept.until).cloned());
        if let Some(known) = known {
            return Ok((known.auths, caller.source));
        }
        let answer = exec::run(provider, &request(image, &caller)).await?;
        let (auths, length, place) = read(&answer, provider.cache)?;
        if !length.is_zero() {
            let until = now.saturating_add(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX));
            self.cache_response(key(places[place]), CachedAuth { auths: auths.clone(), until }, now);
        }
        Ok((auths, caller.source))
    }

    fn cache_response(&self, key: Key, kept: CachedAuth, now: i64) {
        let mut all = self.kept();
        all.retain(|_, kept| now < kept.until);
        if all.len() < MOST {
            all.insert(key, kept);
        }
    }

    /// None if the plugin is not called for the pod's service account.
    async fn caller(&self, rules: &TokenRules, pod: &Tree) -> Result<Option<ServiceAccount>, PluginError> {
        let (namespace, name) = (pod::namespace(pod), pod.str("spec.serviceAccountName"));
        if name.is_empty() {
            // A static pod has none.
            return Ok((!rules.is_required).then(ServiceAccount::default));
        }
        let account = self.client.get(ACCOUNTS, namespace, name).await?;
        let Some(annotations) = annotations(rules, &account) else { return Ok(None) };
        let audience = vec![rules.audience.clone()];
        let token = self.tokens.request(&self.client, &*self.clock, pod, audience, TOKEN_SECONDS).await?.text;
        let whose = [namespace, name, account.str("metadata.uid")].join("/");
        let said = String::from_utf8_lossy(&json::encode(&annotations, None)).into_owned();
        let by_token = if rules.cached_by_token { token.as_str() } else { "" };
        let key = [&whose, said.as_str(), by_token].join(" ");
        let uid = account.str("metadata.uid").to_string();
        let source = Source::Account { uid, namespace: namespace.to_string(), name: name.to_string() };
        Ok(Some(ServiceAccount { key, token, annotations, source }))
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.tokens.remove_pod(uid);
    }

    fn now(&self) -> i64 {
        let now = self.clock.now();
        now.seconds * SECOND + i64::from(now.nanos)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Key, CachedAuth>> {
        self.kept.lock()
    }
}

/// The annotations of an account that a plugin gets; None if a required one is missing.
fn annotations(rules: &TokenRules, account: &Tree) -> Option<Tree> {
    let there = account.map("metadata.annotations");
    if rules.required_annotations.iter().any(|key| !there.contains(key)) {
        return None;
    }
    let mut selected = tree! {};
    let keys: BTreeSet<&String> = rules.required_annotations.iter().chain(&rules.optional_annotations).collect();
    for key in keys.into_iter().filter(|key| there.contains(key)) {
        selected.set(key, there.str(key));
    }
    Some(selected)
}

fn request(image: &str, caller: &ServiceAccount) -> Tree {
    let mut request = tree! { "kind" => "CredentialProviderRequest", "apiVersion" => PROTOCOL, "image" => image };
    if !caller.token.is_empty() {
        request.set("serviceAccountToken", caller.token.as_str());
        request.set("serviceAccountAnnotations", caller.annotations.clone());
    }
    request
}

fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

/// The credentials, how long they are kept, and under which of the three keys.
fn read(answer: &Tree, otherwise: Duration) -> Result<(Tree, Duration, usize), PluginError> {
    let (version, kind) = (answer.str("apiVersion"), answer.str("kind"));
    if (version, kind) != (PROTOCOL, "CredentialProviderResponse") {
        return Err(PluginError::Kind { kind: kind.to_string(), version: version.to_string() });
    }
    let place = match answer.str("cacheKeyType") {
        "Image" => 0,
        "Registry" => 1,
        "Global" => 2,
        other => return Err(PluginError::CacheKeyType(other.to_string())),
    };
    let length = match answer.str("cacheDuration") {
        "" => Some(otherwise),
        said => time::parse_duration(said).ok().and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos),
    };
    let length = length.ok_or_else(|| PluginError::CacheDuration(answer.str("cacheDuration").to_string()))?;
    Ok((answer.at("auth").clone(), length, place))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use stdx::clock::SystemClock;

    use super::*;

    /// Responds with a user that counts its calls, and records its requests.
    const PLUGIN: &str = r#"#!/bin/sh
echo x >> "$COUNT"
cat > "$COUNT.asked"
printf '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"%s","cacheDuration":"%s","auth":{"r.example":{"username":"u%s","password":"p"}}}' "$1" "$2" "$(wc -l < "$COUNT" | tr -d ' ')"
"#;

    struct NoTransport;

    impl client::Transport for NoTransport {
        fn send(&self, _: http::Request<bytes::Bytes>) -> client::ResponseFuture<'_> {
            Box::pin(std::future::pending())
        }
    }

    fn providers(dir: &Path, by: &str, length: &str) -> Providers {
        let program = dir.join("plugin");
        std::fs::write(&program, PLUGIN).expect("a program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
        let text = format!(
            "{{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{{name: plugin, \
             matchImages: ['*.example'], defaultCacheDuration: 1h, apiVersion: {PROTOCOL}, args: [{by}, '{length}'], \
             env: [{{name: COUNT, value: {}}}]}}]}}",
            dir.join("count").display()
        );
        let file = dir.join("config.yaml");
        std::fs::write(&file, text).expect("a file");
        let client = Client::new(Arc::new(NoTransport), "test");
        Providers::open((Some(&file), Some(dir)), client, Arc::new(SystemClock)).expect("providers")
    }

    #[tokio::test]
    async fn calls_plugins_and_caches_their_responses() {
        // The cache key type, the duration, and the user for each of three images.
        let cases = [
            ("Image", "", ["u1", "u2", "u1"]),
            ("Registry", "1h", ["u1", "u1", "u1"]),
            ("Global", "1h", ["u1", "u1", "u1"]),
            ("Image", "0s", ["u1", "u2", "u3"]),
        ];
        for (by, length, expected) in cases {
            let dir = tempfile::tempdir().expect("a directory");
            let providers = providers(dir.path(), by, length);
            for (image, user) in ["r.example/a:1", "r.example/b:1", "r.example/a:1"].into_iter().zip(expected) {
                let found = providers.find(&tree! {}, image).await;
                let users: Vec<&str> = found.iter().map(|found| found.auth.username.as_str()).collect();
                assert_eq!(users, [user], "{by} {length} {image}");
            }
            assert!(providers.find(&tree! {}, "other.test/a").await.is_empty(), "no plugin is called");
            let asked = std::fs::read_to_string(dir.path().join("count.asked")).expect("what it was asked");
            assert!(
                asked.contains("\"kind\":\"CredentialProviderRequest\"") && asked.contains("r.example/"),
                "{asked}"
            );
        }
    }

    #[tokio::test]
    async fn failed_plugins_give_no_credentials() {
        let dir = tempfile::tempdir().expect("a directory");
        let providers = providers(dir.path(), "Nothing", "");
        assert!(providers.find(&tree! {}, "r.example/a").await.is_empty());
        let client = || Client::new(Arc::new(NoTransport), "test");
        let half = Providers::open((Some(dir.path()), None), client(), Arc::new(SystemClock));
        assert!(half.err().is_some_and(|why| why.to_string().contains("must be set together")));
    }

    #[test]
    fn plugins_get_annotations_of_service_accounts() {
        let rules = |required: &[&str], optional: &[&str]| TokenRules {
            audience: "a".to_string(),
            cached_by_token: false,
            is_required: true,
            required_annotations: required.iter().map(ToString::to_string).collect(),
            optional_annotations: optional.iter().map(ToString::to_string).collect(),
        };
        let account = tree! { "metadata" => tree! { "annotations" => tree! { "a" => "1", "b" => "2", "c" => "3" } } };
        let selected = annotations(&rules(&["a"], &["b", "x"]), &account);
        assert_eq!(selected, Some(tree! { "a" => "1", "b" => "2" }));
        assert_eq!(annotations(&rules(&["x"], &[]), &account), None);
    }
}
