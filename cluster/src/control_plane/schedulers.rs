//! Explains scheduling decisions through schedulers in other processes. The leader publishes its address and
//! certificate fingerprint in its lease; the API server authenticates to it as a proxy for the client.

use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Duration;

use api::Tree;
use http::Method;
use kinds::User;
use server::Server;
use server::aggregation::{IdentityError, ReadIdentity};
use server::outbound::callout::{self, CalloutResponse, Client, Trust, Url};
use server::outbound::user_headers::{UserHeaderError, user_headers};
use server::registry::announce::{ADDRESS, CERTIFICATE, SCHEDULERS};
use server::routes::why::{ExplainError, ROOT, SchedulingExplainer};
use store::BoxFuture;

/// The namespace of the schedulers' leases. Only a client that may bind pods can write their annotations (see
/// `server::registry::announce`).
const NAMESPACE: &str = "kube-system";
const TIMEOUT: Duration = Duration::from_secs(10);

/// All schedulers of a cluster.
pub struct Schedulers {
    pub server: Weak<Server>,
    /// Finds the scheduler of this process, if it leads.
    pub(super) local: Option<super::parts::FindExplainer>,
    /// None if the server has no proxy client certificate.
    pub proxy: Option<ReadIdentity>,
}

/// Why a request to a scheduler failed.
#[derive(Debug, thiserror::Error)]
enum LeaderError {
    #[error("this server has no proxy client certificate for requests to the scheduler")]
    NoCertificate,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Client(#[from] rustls::Error),
    #[error(transparent)]
    Url(#[from] callout::UrlError),
    #[error(transparent)]
    User(#[from] UserHeaderError),
    #[error("request to the scheduler failed: {0}")]
    Request(#[from] callout::Error),
}

/// The address of a scheduler, and its certificate.
#[derive(Debug, PartialEq, Eq)]
struct Leader {
    address: SocketAddr,
    fingerprint: String,
}

impl Schedulers {
    /// The scheduler of this process, if it leads and has this name.
    fn local_for(&self, name: &str) -> Option<scheduler::Explainer> {
        self.local.as_ref().and_then(|find| find()).filter(|local| local.is_for(name))
    }

    /// The leader for pods with this scheduler name, if it has published its address.
    fn leader(&self, name: &str) -> Option<Leader> {
        let server = self.server.upgrade()?;
        let leases = server.objects("leases", NAMESPACE);
        leases.iter().find_map(|lease| leader_of(lease, name))
    }

    async fn request(
        &self,
        leader: &Leader,
        user: &User,
        what: (Method, String, Vec<u8>),
    ) -> Result<CalloutResponse, LeaderError> {
        let proxy = self.proxy.as_ref().ok_or(LeaderError::NoCertificate)?;
        let client = Client::new(&Trust::Certificate(leader.fingerprint.clone()), Some(&proxy()?))?;
        let (method, path, body) = what;
        let url = Url::parse(&format!("https://{}{path}", leader.address))?;
        Ok(client.send_request(method, &url, &user_headers(user)?, body, TIMEOUT).await?)
    }
}

fn leader_of(lease: &Tree, name: &str) -> Option<Leader> {
    let annotation = |key: &str| lease.at("metadata.annotations").get(key).and_then(Tree::as_str).unwrap_or("");
    let leads =
        !lease.str("spec.holderIdentity").is_empty() && annotation(SCHEDULERS).split(',').any(|one| one == name);
    // Only an address and a port are accepted: other texts could name another path.
    let leader =
        Leader { address: annotation(ADDRESS).parse().ok()?, fingerprint: annotation(CERTIFICATE).to_string() };
    (leads && !leader.fingerprint.is_empty()).then_some(leader)
}

fn read_answer(answer: &CalloutResponse) -> Result<Tree, ExplainError> {
    match answer.code {
        200 => api::json::decode(&answer.body).map_err(|error| ExplainError::Unavailable(error.to_string())),
        code => Err(ExplainError::Unavailable(format!(
            "the scheduler responded with {code}: {}",
            String::from_utf8_lossy(&answer.body).trim()
        ))),
    }
}

/// The error if no scheduler of this name runs.
fn no_scheduler(name: &str) -> ExplainError {
    ExplainError::Unavailable(format!(
        "no scheduler named {name:?} is running, so the pod stays pending: start one, or change \
         spec.schedulerName of the pod; the scheduler of `tiphys up` is \"default-scheduler\""
    ))
}

impl SchedulingExplainer for Schedulers {
    fn why<'a>(
        &'a self,
        user: &'a User,
        scheduler: &'a str,
        (namespace, name): (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<Tree>, ExplainError>> {
        Box::pin(async move {
            if let Some(local) = self.local_for(scheduler) {
                return Ok(local.why(namespace, name));
            }
            let leader = self.leader(scheduler).ok_or_else(|| no_scheduler(scheduler))?;
            let path = format!("{ROOT}{namespace}/{name}");
            let answer = self.request(&leader, user, (Method::GET, path, Vec::new())).await;
            let answer = answer.map_err(|error| ExplainError::Unavailable(error.to_string()))?;
            if answer.code == 404 { Ok(None) } else { read_answer(&answer).map(Some) }
        })
    }

    fn what_if<'a>(&'a self, user: &'a User, pod: Tree) -> BoxFuture<'a, Result<Tree, ExplainError>> {
        Box::pin(async move {
            let scheduler = pod.str("spec.schedulerName");
            if let Some(local) = self.local_for(scheduler) {
                return local.what_if(&pod).map_err(|error| ExplainError::InvalidPod(error.to_string()));
            }
            let leader = self.leader(scheduler).ok_or_else(|| no_scheduler(scheduler))?;
            let path = format!("{ROOT}{}", pod.str("metadata.namespace"));
            let answer = self.request(&leader, user, (Method::POST, path, api::json::encode(&pod, None))).await;
            let answer = answer.map_err(|error| ExplainError::Unavailable(error.to_string()))?;
            let message = String::from_utf8_lossy(&answer.body).trim().to_string();
            if answer.code == 400 { Err(ExplainError::InvalidPod(message)) } else { read_answer(&answer) }
        })
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[tokio::test]
    async fn an_unknown_scheduler_is_named() {
        let schedulers = Schedulers { server: Weak::new(), local: None, proxy: None };
        let user = User { name: "jane".into(), uid: String::new(), groups: Vec::new(), extra: api::Map::new() };
        let pod = tree! { "spec" => tree! { "schedulerName" => "other" } };
        let answers = [
            schedulers.why(&user, "other", ("default", "p")).await.map(drop),
            schedulers.what_if(&user, pod).await.map(drop),
        ];
        for answer in answers {
            let Err(ExplainError::Unavailable(why)) = answer else { panic!("no scheduler answers") };
            assert!(why.starts_with("no scheduler named \"other\" is running, so the pod stays pending"), "{why}");
            assert!(why.contains("change spec.schedulerName of the pod") && why.contains("default-scheduler"), "{why}");
        }
    }

    #[test]
    fn finds_the_leader_by_lease_and_published_address() {
        let lease = |holder: &str, schedulers: &str, address: &str| {
            let mut annotations = tree! {};
            annotations.set(SCHEDULERS, schedulers);
            annotations.set(ADDRESS, address);
            annotations.set(CERTIFICATE, "sha256:00");
            tree! {
                "metadata" => tree! { "annotations" => annotations },
                "spec" => tree! { "holderIdentity" => holder },
            }
        };
        let leader = Leader { address: SocketAddr::from(([10, 0, 0, 1], 1)), fingerprint: "sha256:00".to_string() };
        assert_eq!(leader_of(&lease("a", "x,mine", "10.0.0.1:1"), "mine"), Some(leader));
        let address = "10.0.0.1:1";
        for lease in [
            lease("", "mine", address),
            lease("a", "x", address),
            lease("a", "mine", ""),
            lease("a", "mine", "10.0.0.1:1/api/v1/secrets?x="),
            lease("a", "mine", "user@10.0.0.1:1"),
            tree! {},
        ] {
            assert_eq!(leader_of(&lease, "mine"), None, "{lease:?}");
        }
    }
}
