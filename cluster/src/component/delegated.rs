//! Delegated authentication and authorization for components: certificates are verified here, tokens and authorization
//! through the API server's reviews.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Resource};
use http::header;
use kinds::User;
use server::authentication::request_header::Names;
use server::authentication::{CaBundle, RequestHeader};
use server::http::component::ComponentRequest;
use stdx::clock::Clock;
use stdx::sync::Mutex;
use tokio::time::Instant;

const TOKEN_REVIEWS: Resource = Resource::new("authentication.k8s.io", "v1", "tokenreviews");
const ACCESS_REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");
const ANONYMOUS: &str = "system:anonymous";
/// Maximum number of cached responses.
const MAX_KEPT: usize = 1000;
/// How long the CA bundles of the API server are cached.
const LOOKED_UP: Duration = Duration::from_secs(60);

pub(crate) struct Delegated {
    /// Reads CA bundles from the API server that no flag configures.
    pub lookup: Option<Lookup>,
    pub clients: Option<CaBundle>,
    pub proxies: Option<RequestHeader>,
    /// Reviews tokens through the API server; None without a kubeconfig for it.
    pub authentication: Option<Client>,
    pub authorization: Option<Client>,
    /// Paths that need no authorization; a trailing `/*` matches everything below.
    pub always_allowed: Vec<String>,
    /// Whether requests without credentials are anonymous instead of rejected.
    pub anonymous: bool,
    pub lifetimes: Lifetimes,
    pub clock: Arc<dyn Clock>,
    pub known: TimedCache<Option<Arc<User>>>,
    pub judged: TimedCache<bool>,
}

/// How long responses of the API server are cached.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    pub token: Duration,
    pub allowed: Duration,
    pub denied: Duration,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        let short = Duration::from_secs(10);
        Lifetimes { token: short, allowed: short, denied: short }
    }
}

/// Results of the last seconds.
pub(crate) struct TimedCache<T>(Mutex<BTreeMap<String, (Instant, T)>>);

impl<T> Default for TimedCache<T> {
    fn default() -> TimedCache<T> {
        TimedCache(Mutex::default())
    }
}

impl<T: Clone> TimedCache<T> {
    fn get(&self, key: &str, now: Instant) -> Option<T> {
        let kept = self.0.lock();
        kept.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn put(&self, key: String, value: T, now: Instant, kept_for: Duration) {
        let mut kept = self.0.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() < MAX_KEPT {
            kept.insert(key, (now + kept_for, value));
        }
    }
}

/// The CA bundles of the API server, from its ConfigMap. They are read when a client presents a certificate, and again
/// after a while.
pub(crate) struct Lookup {
    client: Client,
    held: tokio::sync::Mutex<Option<(Instant, Arc<ReviewedUser>)>>,
}

#[derive(Default)]
pub(crate) struct ReviewedUser {
    clients: Option<CaBundle>,
    proxies: Option<RequestHeader>,
}

const CONFIG_MAPS: Resource = Resource::core("configmaps");

impl Lookup {
    pub(crate) fn new(client: Client) -> Lookup {
        Lookup { client, held: Default::default() }
    }

    /// The last result; empty if the ConfigMap was never read.
    async fn found(&self) -> Arc<ReviewedUser> {
        let mut held = self.held.lock().await;
        if let Some((_, found)) = held.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return found.clone();
        }
        let found = match self.client.get(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication").await {
            Ok(map) => Arc::new(read(map.at("data"))),
            Err(error) => {
                tracing::warn!(%error, "failed to read kube-system/extension-apiserver-authentication");
                held.take().map(|(_, found)| found).unwrap_or_default()
            }
        };
        *held = Some((Instant::now() + LOOKED_UP, found.clone()));
        found
    }
}

fn read(data: &Tree) -> ReviewedUser {
    let names = |key: &str| {
        let list = api::json::decode(data.str(key).as_bytes()).unwrap_or_default();
        texts(&list)
    };
    let ca_bundle = |key: &str| CaBundle::new(data.str(key)).ok();
    let headers = Names {
        username: names("requestheader-username-headers"),
        uid: names("requestheader-uid-headers"),
        groups: names("requestheader-group-headers"),
        extra_prefixes: names("requestheader-extra-headers-prefix"),
    };
    let proxies = ca_bundle("requestheader-client-ca-file");
    ReviewedUser {
        clients: ca_bundle("client-ca-file"),
        proxies: proxies
            .and_then(|proxies| RequestHeader::new(proxies, names("requestheader-allowed-names"), headers).ok()),
    }
}

/// Why a request is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReviewError {
    Unauthorized,
    Forbidden(String),
    /// The request to the API server failed.
    Failed(String),
}

impl Delegated {
    /// `attributes` are those of the requested resource; without them the path is authorized.
    pub(crate) async fn check(
        &self,
        question: &mut ComponentRequest,
        attributes: Option<Tree>,
    ) -> Result<(), ReviewError> {
        if self.always_allowed.iter().any(|allowed| covers(allowed, &question.path)) {
            return Ok(());
        }
        let user = self.authenticate(question).await?;
        self.authorize(&user, question, attributes).await
    }

    /// The user of a request. An authenticated client counts no longer against the connections of its source.
    pub(crate) async fn authenticate(&self, question: &mut ComponentRequest) -> Result<Arc<User>, ReviewError> {
        let user = self.find_user(question).await?;
        if user.name != ANONYMOUS {
            question.release_source();
        }
        Ok(user)
    }

    async fn find_user(&self, question: &mut ComponentRequest) -> Result<Arc<User>, ReviewError> {
        let now = self.clock.now().seconds;
        let found = match &self.lookup {
            Some(lookup) if !question.chain.is_empty() => lookup.found().await,
            _ => Arc::default(),
        };
        let proxies = self.proxies.as_ref().or(found.proxies.as_ref());
        let proxied = proxies.and_then(|proxies| {
            let user = proxies.user(&mut question.headers, &question.chain, now)?;
            Some(user.map_err(|_| ReviewError::Unauthorized))
        });
        if let Some(user) = proxied {
            return user;
        }
        let clients = self.clients.as_ref().or(found.clients.as_ref());
        if let Some(clients) = clients.filter(|_| !question.chain.is_empty())
            && let Ok(user) = clients.owner(&question.chain, now)
        {
            return Ok(user);
        }
        let token = question.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match token.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) => self.review(token.trim()).await?.ok_or(ReviewError::Unauthorized),
            None if self.anonymous && question.chain.is_empty() => Ok(Arc::new(anonymous())),
            None => Err(ReviewError::Unauthorized),
        }
    }

    async fn review(&self, token: &str) -> Result<Option<Arc<User>>, ReviewError> {
        let Some(client) = &self.authentication else { return Ok(None) };
        let now = Instant::now();
        if let Some(user) = self.known.get(token, now) {
            return Ok(user);
        }
        let review = tree! {
            "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview", "spec" => tree! { "token" => token },
        };
        let answer = client.create(TOKEN_REVIEWS, "", &review).await;
        let answer = answer.map_err(|error| ReviewError::Failed(error.to_string()))?;
        let user = answer.bool("status.authenticated").then(|| Arc::new(user_of(answer.at("status.user"))));
        self.known.put(token.to_string(), user.clone(), now, self.lifetimes.token);
        Ok(user)
    }

    async fn authorize(&self, user: &User, question: &ComponentRequest, of: Option<Tree>) -> Result<(), ReviewError> {
        let verb = question.method.as_str().to_lowercase();
        let why = || {
            let path = &question.path;
            ReviewError::Forbidden(format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name))
        };
        let of = of.map(|of| ("resourceAttributes", of));
        let path = || tree! { "path" => question.path.as_str(), "verb" => verb.as_str() };
        let about = of.unwrap_or_else(|| ("nonResourceAttributes", path()));
        if self.allows(user, about).await? { Ok(()) } else { Err(why()) }
    }

    /// Whether a user is authorized, according to the API server.
    pub(crate) async fn allows(&self, user: &User, about: (&'static str, Tree)) -> Result<bool, ReviewError> {
        // This group is allowed everything, even if the API server is unreachable.
        if user.groups.iter().any(|group| group == "system:masters") {
            return Ok(true);
        }
        let Some(client) = &self.authorization else { return Ok(false) };
        let spec = access(user, about);
        let key = String::from_utf8_lossy(&api::json::encode(&spec, None)).into_owned();
        let now = Instant::now();
        if let Some(allowed) = self.judged.get(&key, now) {
            return Ok(allowed);
        }
        let review = tree! {
            "apiVersion" => "authorization.k8s.io/v1", "kind" => "SubjectAccessReview", "spec" => spec,
        };
        let answer = client.create(ACCESS_REVIEWS, "", &review).await;
        let allowed = answer.map_err(|error| ReviewError::Failed(error.to_string()))?.bool("status.allowed");
        let lifetime = if allowed { self.lifetimes.allowed } else { self.lifetimes.denied };
        self.judged.put(key, allowed, now, lifetime);
        Ok(allowed)
    }
}

fn covers(allowed: &str, path: &str) -> bool {
    match allowed.strip_suffix("/*") {
        Some(root) => path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')),
        None => allowed == path,
    }
}

fn anonymous() -> User {
    let groups = vec!["system:unauthenticated".to_string()];
    User { name: ANONYMOUS.to_string(), uid: String::new(), groups, extra: api::Map::new() }
}

fn texts(tree: &Tree) -> Vec<String> {
    tree.as_list().unwrap_or_default().iter().filter_map(Tree::as_str).map(str::to_string).collect()
}

fn user_of(tree: &Tree) -> User {
    User {
        name: tree.str("username").to_string(),
        uid: tree.str("uid").to_string(),
        groups: texts(tree.at("groups")),
        extra: tree.map("extra").clone(),
    }
}

fn access(user: &User, (field, attributes): (&'static str, Tree)) -> Tree {
    let mut spec = tree! {
        "user" => user.name.as_str(),
        "groups" => user.groups.iter().map(Tree::from).collect::<Vec<_>>(),
    };
    spec.set(field, attributes);
    if !user.uid.is_empty() {
        spec.set("uid", user.uid.as_str());
    }
    if !user.extra.is_empty() {
        spec.set("extra", user.extra.clone());
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_paths_exactly_or_by_prefix() {
        let cases = [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/x", false),
            ("/healthz/*", "/healthz/x", true),
            ("/healthz/*", "/healthzx", false),
            ("/metrics", "/", false),
        ];
        for (allowed, path, want) in cases {
            assert_eq!(covers(allowed, path), want, "{allowed} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn caches_responses_with_limits() {
        const KEPT: Duration = Duration::from_secs(10);
        let kept = TimedCache::default();
        let now = Instant::now();
        for number in 0..2 * MAX_KEPT {
            kept.put(number.to_string(), true, now, KEPT);
        }
        assert_eq!(kept.get("1", now), Some(true));
        assert_eq!(kept.get("1", now + KEPT), None);
        assert_eq!(kept.0.lock().len(), MAX_KEPT);
        kept.put("new".to_string(), true, now + KEPT, KEPT);
        assert_eq!(kept.0.lock().len(), 1);
    }
}
