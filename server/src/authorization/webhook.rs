//! The webhook authorizer: posts a SubjectAccessReview to the webhook, and caches its responses.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::selector::{Operator, Requirement};
use api::{Tree, json, list, tree};
use kinds::User;
use stdx::sync::Mutex;

use super::conditions::{ConditionError, Conditions};
use super::{Attributes, Authorizer, Decision, Reason, UserRules, Verdict, VerdictFuture};
use crate::outbound::callout::{self, kubeconfig::Remote};

/// The settings of a webhook.
#[derive(Clone)]
pub struct Settings {
    pub remote: Arc<Remote>,
    /// How long a response is cached; zero turns the cache off.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub timeout: Duration,
    /// The decision if the webhook fails.
    pub on_failure: Decision,
    pub version: Version,
    /// The webhook is called only if all conditions are met.
    pub conditions: Conditions,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webhook at {}", self.remote.url)
    }
}

/// The form of the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V1beta1,
}

/// A call that fails is tried this often, each time after a longer pause.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The number of cached responses, and the maximum size of a cached request.
const KEPT: usize = 8192;
const MAX_KEPT_QUESTION: usize = 10_000;

/// Why the webhook returned no decision.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error("the webhook returned {0}")]
    Code(u16),
    #[error("the webhook's response is not JSON: {0}")]
    NotJson(#[from] json::Error),
    #[error("webhook subject access review returned both allow and deny response")]
    Contradiction,
    #[error("it was not called")]
    NotCalled,
    #[error("{0}")]
    Conditions(#[from] ConditionError),
}

/// The authorizer that calls a webhook.
pub struct Webhook {
    settings: Settings,
    answers: Mutex<VerdictCache>,
}

impl Webhook {
    /// Calls the webhook of these settings.
    pub fn new(settings: Settings) -> Webhook {
        Webhook { settings, answers: Mutex::default() }
    }

    async fn post(&self, request: Vec<u8>) -> Verdict {
        let mut pause = FIRST_PAUSE;
        for last in (0..TRIES).map(|attempt| attempt + 1 == TRIES) {
            match self.call(&request).await {
                Ok(verdict) => {
                    self.cache_verdict(request, &verdict);
                    return verdict;
                }
                Err(error) if last => return self.failed(&error),
                Err(error) => tracing::debug!(%error, "retrying authorization webhook"),
            }
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
        self.failed(&ReviewError::NotCalled)
    }

    async fn call(&self, request: &[u8]) -> Result<Verdict, ReviewError> {
        let Settings { remote, timeout, .. } = &self.settings;
        let response = remote.client.post_json(&remote.url, request.to_vec(), *timeout).await?;
        if !response.is_success() {
            return Err(ReviewError::Code(response.code));
        }
        read_response(&json::decode(&response.body)?)
    }

    fn failed(&self, error: &ReviewError) -> Verdict {
        tracing::warn!(%error, "authorization webhook failed");
        Verdict { decision: self.settings.on_failure, reason: Reason::None, error: Some(error.to_string()) }
    }

    fn cache_verdict(&self, request: Vec<u8>, verdict: &Verdict) {
        let allowed = verdict.is_allowed();
        let ttl = if allowed { self.settings.authorized_ttl } else { self.settings.unauthorized_ttl };
        if request.len() <= MAX_KEPT_QUESTION && !ttl.is_zero() {
            self.answers().put(request, verdict.clone(), Instant::now() + ttl);
        }
    }

    fn answers(&self) -> stdx::sync::MutexGuard<'_, VerdictCache> {
        self.answers.lock()
    }
}

impl Authorizer for Webhook {
    fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        match self.settings.conditions.are_met(attributes) {
            Ok(true) => self.answers().get(&build_review(attributes, self.settings.version), Instant::now()),
            Ok(false) => Some(Verdict::no_opinion("")),
            Err(error) => Some(self.failed(&ReviewError::Conditions(error))),
        }
    }

    fn wait<'a>(&'a self, attributes: &'a Attributes<'a>) -> VerdictFuture<'a> {
        Box::pin(self.post(build_review(attributes, self.settings.version)))
    }

    fn rules(&self, _: &User, _: &str) -> UserRules {
        let error = "webhook authorizer does not support user rule resolution".to_string();
        UserRules { incomplete: true, error: Some(error), ..UserRules::default() }
    }
}

/// Responses by their request; the oldest is dropped first.
#[derive(Default)]
struct VerdictCache {
    kept: HashMap<Vec<u8>, (Verdict, Instant)>,
    order: VecDeque<Vec<u8>>,
}

impl VerdictCache {
    fn get(&self, request: &[u8], now: Instant) -> Option<Verdict> {
        let (verdict, until) = self.kept.get(request)?;
        (now < *until).then(|| verdict.clone())
    }

    fn put(&mut self, request: Vec<u8>, verdict: Verdict, until: Instant) {
        if self.kept.insert(request.clone(), (verdict, until)).is_some() {
            return;
        }
        self.order.push_back(request);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept.remove(&oldest);
        }
    }
}

fn read_response(review: &Tree) -> Result<Verdict, ReviewError> {
    let status = review.at("status");
    let decision = match (status.bool("allowed"), status.bool("denied")) {
        (true, true) => return Err(ReviewError::Contradiction),
        (true, false) => Decision::Allow,
        (false, true) => Decision::Deny,
        (false, false) => Decision::NoOpinion,
    };
    let reason = match status.str("reason") {
        "" => Reason::None,
        text => Reason::Text(text.to_string().into()),
    };
    Ok(Verdict { decision, reason, error: None })
}

/// The review that is posted; it is also the key of the cached response.
fn build_review(attributes: &Attributes<'_>, version: Version) -> Vec<u8> {
    let (version, groups) = match version {
        Version::V1 => ("v1", "groups"),
        Version::V1beta1 => ("v1beta1", "group"),
    };
    let user = attributes.user;
    let mut spec = tree! {};
    match attributes.path {
        Some(path) => spec.set("nonResourceAttributes", tree! { "path" => path, "verb" => attributes.verb }),
        None => spec.set("resourceAttributes", resource_attributes(attributes)),
    }
    set_text(&mut spec, "user", &user.name);
    if !user.groups.is_empty() {
        spec.set(groups, user.groups.iter().map(Tree::from).collect::<Vec<_>>());
    }
    if !user.extra.is_empty() {
        spec.set("extra", user.extra.clone());
    }
    set_text(&mut spec, "uid", &user.uid);
    let review = tree! {
        "kind" => "SubjectAccessReview",
        "apiVersion" => format!("authorization.k8s.io/{version}"),
        "metadata" => tree! { "creationTimestamp" => Tree::Null },
        "spec" => spec,
        "status" => tree! { "allowed" => false },
    };
    json::encode(&review, None)
}

fn set_text(tree: &mut Tree, key: &str, value: &str) {
    if !value.is_empty() {
        tree.set(key, value);
    }
}

pub(super) fn resource_attributes(attributes: &Attributes<'_>) -> Tree {
    let mut resource = tree! {};
    let fields = [
        ("namespace", attributes.namespace),
        ("verb", attributes.verb),
        ("group", attributes.group),
        ("version", attributes.version),
        ("resource", attributes.resource),
        ("subresource", attributes.subresource),
        ("name", &attributes.name),
    ];
    for (key, value) in fields {
        set_text(&mut resource, key, value);
    }
    let fields: Vec<Tree> = attributes.fields.terms().iter().map(field_requirement).collect();
    if !fields.is_empty() {
        resource.set("fieldSelector", tree! { "requirements" => fields });
    }
    let labels: Vec<Tree> = attributes.labels.iter().filter_map(label_requirement).collect();
    if !labels.is_empty() {
        resource.set("labelSelector", tree! { "requirements" => labels });
    }
    resource
}

fn field_requirement(term: &api::selector::FieldTerm) -> Tree {
    let operator = if term.equal { "In" } else { "NotIn" };
    tree! { "key" => term.field.as_str(), "operator" => operator, "values" => list![term.value.as_str()] }
}

fn label_requirement(requirement: &Requirement) -> Option<Tree> {
    let operator = match requirement.operator() {
        Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
        Operator::NotIn | Operator::NotEquals => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        // A review cannot express these; it then contains less, never more.
        Operator::GreaterThan | Operator::LessThan => return None,
    };
    let mut tree = tree! { "key" => requirement.key(), "operator" => operator };
    let values: Vec<Tree> = requirement.values().map(Tree::from).collect();
    if !values.is_empty() {
        tree.set("values", values);
    }
    Some(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_contains_all_attributes() {
        let user = User { name: "jane".to_string(), groups: vec!["devs".to_string()], ..User::default() };
        let mut attributes = Attributes::parse(&user, "list apps:deployments@a");
        attributes.fields = api::selector::FieldSelector::parse("a!=b").expect("a selector");
        attributes.labels = api::selector::Selector::parse("x,y in (1,2)").expect("a selector").requirements().to_vec();
        let requested = String::from_utf8(build_review(&attributes, Version::V1)).expect("text");
        for part in [
            r#""apiVersion":"authorization.k8s.io/v1""#,
            r#""groups":["devs"]"#,
            r#""user":"jane""#,
            r#""fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]}]}"#,
            r#"{"key":"x","operator":"Exists"},{"key":"y","operator":"In","values":["1","2"]}"#,
        ] {
            assert!(requested.contains(part), "{part} in {requested}");
        }
        let requested =
            String::from_utf8(build_review(&Attributes::parse(&user, "get /x"), Version::V1beta1)).expect("text");
        assert!(requested.contains(r#""group":["devs"]"#) && requested.contains(r#""path":"/x""#), "{requested}");
    }

    #[test]
    fn rejects_allowed_and_denied() {
        let read = |text: &str| {
            let verdict = read_response(&crate::registry::admission::tests::json(text));
            verdict.map(|verdict| verdict.decision).map_err(|error| error.to_string())
        };
        assert_eq!(read(r#"{"status":{"allowed":true}}"#), Ok(Decision::Allow));
        assert_eq!(read(r#"{"status":{"denied":true}}"#), Ok(Decision::Deny));
        assert_eq!(read(r#"{"status":{}}"#), Ok(Decision::NoOpinion));
        assert!(read(r#"{"status":{"allowed":true,"denied":true}}"#).is_err());
    }

    #[test]
    fn answers_are_kept_for_a_while_and_not_too_many() {
        let mut answers = VerdictCache::default();
        let now = Instant::now();
        let key = |n: usize| n.to_string().into_bytes();
        answers.put(key(0), Verdict::ALLOW, now + Duration::from_secs(1));
        assert!(answers.get(&key(0), now).is_some());
        assert!(answers.get(&key(0), now + Duration::from_secs(2)).is_none());
        for n in 1..=KEPT {
            answers.put(key(n), Verdict::ALLOW, now + Duration::from_secs(1));
        }
        assert_eq!((answers.kept.len(), answers.get(&key(0), now).is_some()), (KEPT, false));
    }

    /// A webhook that sends one response per connection, and counts its requests.
    async fn serve(status: &'static str) -> (Arc<Remote>, Arc<std::sync::atomic::AtomicUsize>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/authorize", listener.local_addr().expect("an address"));
        let requested = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = requested.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let body = format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#);
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                let _ = stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await;
            }
        });
        (remote(&url), requested)
    }

    fn remote(url: &str) -> Arc<Remote> {
        use crate::outbound::callout::{Client, Trust, Url};
        let client = Client::new(&Trust::System, None).expect("a client");
        Arc::new(Remote { client, url: Url::parse(url).expect("a URL") })
    }

    fn webhook(remote: Arc<Remote>, unauthorized_ttl: Duration) -> Webhook {
        Webhook::new(Settings {
            remote,
            authorized_ttl: Duration::from_secs(60),
            unauthorized_ttl,
            timeout: Duration::from_secs(5),
            on_failure: Decision::Deny,
            version: Version::V1,
            conditions: Conditions::default(),
        })
    }

    #[tokio::test]
    async fn cached_responses_are_requested_once() {
        let user = User::default();
        let attributes = Attributes::parse(&user, "get pods@a");
        let (remote, requested) = serve(r#"{"allowed":true,"reason":"good"}"#).await;
        let hook = webhook(remote, Duration::ZERO);
        assert!(hook.decide(&attributes).is_none(), "nothing is known yet");
        let verdict = hook.wait(&attributes).await;
        assert_eq!((verdict.decision, verdict.reason.to_string().as_str()), (Decision::Allow, "good"));
        assert!(hook.decide(&attributes).expect("it is kept").is_allowed());
        assert_eq!(requested.load(std::sync::atomic::Ordering::SeqCst), 1);
        let (remote, _) = serve(r#"{"allowed":false,"denied":true}"#).await;
        let hook = webhook(remote, Duration::ZERO);
        assert_eq!(hook.wait(&attributes).await.decision, Decision::Deny);
        assert!(hook.decide(&attributes).is_none(), "a no is not kept for no time");
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_webhook_uses_the_failure_policy() {
        let user = User::default();
        let hook = webhook(remote("http://127.0.0.1:1/x"), Duration::from_secs(30));
        let verdict = hook.wait(&Attributes::parse(&user, "get pods@a")).await;
        assert_eq!(verdict.decision, Decision::Deny);
        assert!(verdict.error.is_some_and(|error| error.contains("127.0.0.1:1")));
    }
}
