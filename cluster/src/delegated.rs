//! Who may ask a component that is no API server, and what: certificates are judged here, tokens and
//! rights by the API server, by its reviews.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Clock, Resource};
use http::header;
use kinds::User;
use server::auth::{Authorities, RequestHeader};
use server::http::component::Question;
use tokio::time::Instant;

const TOKEN_REVIEWS: Resource = Resource::new("authentication.k8s.io", "v1", "tokenreviews");
const ACCESS_REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");
/// An answer is good for so long, and so many are kept.
const KEPT: Duration = Duration::from_secs(10);
const MAX_KEPT: usize = 1000;

pub struct Delegated {
    pub clients: Option<Authorities>,
    pub proxies: Option<RequestHeader>,
    /// Asks the API server; None where no kubeconfig was given for it.
    pub authentication: Option<Client>,
    pub authorization: Option<Client>,
    /// Everybody may ask for these paths; one that ends in `/*` means all below.
    pub always_allowed: Vec<String>,
    pub clock: Arc<dyn Clock>,
    pub known: Kept<Option<Arc<User>>>,
    pub judged: Kept<bool>,
}

/// Answers of the last seconds.
pub struct Kept<T>(Mutex<BTreeMap<String, (Instant, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, key: &str, now: Instant) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn put(&self, key: String, value: T, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() < MAX_KEPT {
            kept.insert(key, (now + KEPT, value));
        }
    }
}

/// Why a question is not answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Unauthorized,
    Forbidden(String),
    /// The API server could not be asked.
    Failed(String),
}

impl Delegated {
    pub async fn check(&self, question: &mut Question) -> Result<(), Refusal> {
        if self.always_allowed.iter().any(|allowed| covers(allowed, &question.path)) {
            return Ok(());
        }
        let user = self.authenticate(question).await?;
        self.authorize(&user, question).await
    }

    async fn authenticate(&self, question: &mut Question) -> Result<Arc<User>, Refusal> {
        let now = self.clock.now().seconds;
        let proxied = self.proxies.as_ref().and_then(|proxies| {
            let user = proxies.user(&mut question.headers, &question.chain, now)?;
            Some(user.map_err(|_| Refusal::Unauthorized))
        });
        if let Some(user) = proxied {
            return user;
        }
        if let Some(clients) = self.clients.as_ref().filter(|_| !question.chain.is_empty())
            && let Ok(user) = clients.owner(&question.chain, now)
        {
            return Ok(user);
        }
        let token = question.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match token.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) => self.review(token.trim()).await?.ok_or(Refusal::Unauthorized),
            None if question.chain.is_empty() => Ok(Arc::new(anonymous())),
            None => Err(Refusal::Unauthorized),
        }
    }

    async fn review(&self, token: &str) -> Result<Option<Arc<User>>, Refusal> {
        let Some(client) = &self.authentication else { return Ok(None) };
        let now = Instant::now();
        if let Some(user) = self.known.get(token, now) {
            return Ok(user);
        }
        let review = tree! {
            "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview", "spec" => tree! { "token" => token },
        };
        let answer = client.create(TOKEN_REVIEWS, "", &review).await;
        let answer = answer.map_err(|error| Refusal::Failed(error.to_string()))?;
        let user = answer.bool("status.authenticated").then(|| Arc::new(user_of(answer.at("status.user"))));
        self.known.put(token.to_string(), user.clone(), now);
        Ok(user)
    }

    async fn authorize(&self, user: &User, question: &Question) -> Result<(), Refusal> {
        let verb = question.method.as_str().to_lowercase();
        let why = || {
            let path = &question.path;
            Refusal::Forbidden(format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name))
        };
        // They may do everything everywhere, also where nobody can be asked.
        if user.groups.iter().any(|group| group == "system:masters") {
            return Ok(());
        }
        let Some(client) = &self.authorization else { return Err(why()) };
        let spec = access(user, &verb, &question.path);
        let key = String::from_utf8_lossy(&api::json::encode(&spec, None)).into_owned();
        let now = Instant::now();
        let allowed = match self.judged.get(&key, now) {
            Some(allowed) => allowed,
            None => {
                let review = tree! {
                    "apiVersion" => "authorization.k8s.io/v1", "kind" => "SubjectAccessReview", "spec" => spec,
                };
                let answer = client.create(ACCESS_REVIEWS, "", &review).await;
                let allowed = answer.map_err(|error| Refusal::Failed(error.to_string()))?.bool("status.allowed");
                self.judged.put(key, allowed, now);
                allowed
            }
        };
        if allowed { Ok(()) } else { Err(why()) }
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
    User { name: "system:anonymous".to_string(), uid: String::new(), groups, extra: api::Map::new() }
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

fn access(user: &User, verb: &str, path: &str) -> Tree {
    let mut spec = tree! {
        "user" => user.name.as_str(),
        "groups" => user.groups.iter().map(Tree::from).collect::<Vec<_>>(),
        "nonResourceAttributes" => tree! { "path" => path, "verb" => verb },
    };
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
    fn paths_are_allowed_as_they_are_or_by_their_root() {
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
    async fn answers_are_kept_for_a_while_and_not_too_many() {
        let kept = Kept::default();
        let now = Instant::now();
        for number in 0..2 * MAX_KEPT {
            kept.put(number.to_string(), true, now);
        }
        assert_eq!(kept.get("1", now), Some(true));
        assert_eq!(kept.get("1", now + KEPT), None);
        assert_eq!(kept.0.lock().expect("kept").len(), MAX_KEPT);
        kept.put("new".to_string(), true, now + KEPT);
        assert_eq!(kept.0.lock().expect("kept").len(), 1);
    }
}
