//! Explains scheduling decisions through schedulers in other processes. The leader publishes its address and
//! certificate fingerprint in its lease; the API server authenticates to it as a proxy for the client.

use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Duration;

use api::Tree;
use http::{HeaderName, HeaderValue, Method};
use kinds::User;
use server::Server;
use server::outbound::callout::{Answer, Client, Trust, Url};
use server::registry::announce::{ADDRESS, CERTIFICATE, SCHEDULERS};
use server::routes::why::{ExplainError, Explains, ROOT};
use store::BoxFuture;

use crate::pki::cluster::ReadIdentity;

/// Where schedulers hold their leases. Only a client that may bind pods can write their annotations (see
/// `server::registry::announce`).
const NAMESPACE: &str = "kube-system";
const TIMEOUT: Duration = Duration::from_secs(10);

/// All schedulers of a cluster.
pub struct Schedulers {
    pub server: Weak<Server>,
    /// The one of this process.
    pub local: Option<scheduler::Explainer>,
    /// None where the server has no certificate as a proxy.
    pub proxy: Option<ReadIdentity>,
}

/// Where a scheduler is.
#[derive(Debug, PartialEq, Eq)]
struct Leader {
    address: SocketAddr,
    fingerprint: String,
}

impl Schedulers {
    /// The leader for pods with this scheduler name, if it has published its address.
    fn leader(&self, name: &str) -> Option<Leader> {
        let server = self.server.upgrade()?;
        let leases = server.objects("leases", NAMESPACE);
        leases.iter().find_map(|lease| leader_of(lease, name))
    }

    async fn ask(&self, leader: &Leader, user: &User, what: (Method, String, Vec<u8>)) -> Result<Answer, String> {
        let proxy =
            self.proxy.as_ref().ok_or("this server has no proxy client certificate for requests to the scheduler")?;
        let client = Client::new(&Trust::Certificate(leader.fingerprint.clone()), Some(&proxy()?));
        let client = client.map_err(|error| error.to_string())?;
        let (method, path, body) = what;
        let url = Url::parse(&format!("https://{}{path}", leader.address)).map_err(|error| error.to_string())?;
        let answer = client.ask(method, &url, &headers(user)?, body, TIMEOUT).await;
        answer.map_err(|error| format!("request to the scheduler failed: {error}"))
    }
}

fn leader_of(lease: &Tree, name: &str) -> Option<Leader> {
    let said = |key: &str| lease.at("metadata.annotations").get(key).and_then(Tree::as_str).unwrap_or("");
    let leads = !lease.str("spec.holderIdentity").is_empty() && said(SCHEDULERS).split(',').any(|one| one == name);
    // Nothing but an address and a port: anything else could name another path.
    let leader = Leader { address: said(ADDRESS).parse().ok()?, fingerprint: said(CERTIFICATE).to_string() };
    (leads && !leader.fingerprint.is_empty()).then_some(leader)
}

/// The headers that name the client.
fn headers(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.push((name, HeaderValue::try_from(value).map_err(|error| error.to_string())?));
        Ok::<_, String>(())
    };
    add("x-remote-user", &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in user.extra.iter() {
        let name = format!("x-remote-extra-{}", encoded(key));
        for value in values.as_list().unwrap_or_default().iter().filter_map(Tree::as_str) {
            add(&name, value)?;
        }
    }
    Ok(headers)
}

/// A key as the end of a header's name.
fn encoded(key: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    key.bytes().map(one).collect()
}

fn told(answer: &Answer) -> Result<Tree, ExplainError> {
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

impl Explains for Schedulers {
    fn why<'a>(
        &'a self,
        user: &'a User,
        scheduler: &'a str,
        (namespace, name): (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<Tree>, ExplainError>> {
        Box::pin(async move {
            if let Some(local) = self.local.as_ref().filter(|local| local.is_for(scheduler)) {
                return Ok(local.why(namespace, name));
            }
            let leader = self.leader(scheduler).ok_or_else(|| no_scheduler(scheduler))?;
            let path = format!("{ROOT}{namespace}/{name}");
            let answer = self.ask(&leader, user, (Method::GET, path, Vec::new())).await;
            let answer = answer.map_err(ExplainError::Unavailable)?;
            if answer.code == 404 { Ok(None) } else { told(&answer).map(Some) }
        })
    }

    fn what_if<'a>(&'a self, user: &'a User, pod: Tree) -> BoxFuture<'a, Result<Tree, ExplainError>> {
        Box::pin(async move {
            let scheduler = pod.str("spec.schedulerName");
            if let Some(local) = self.local.as_ref().filter(|local| local.is_for(scheduler)) {
                return local.what_if(&pod).map_err(|error| ExplainError::InvalidPod(error.to_string()));
            }
            let leader = self.leader(scheduler).ok_or_else(|| no_scheduler(scheduler))?;
            let path = format!("{ROOT}{}", pod.str("metadata.namespace"));
            let answer = self.ask(&leader, user, (Method::POST, path, api::json::encode(&pod, None))).await;
            let answer = answer.map_err(ExplainError::Unavailable)?;
            let said = String::from_utf8_lossy(&answer.body).trim().to_string();
            if answer.code == 400 { Err(ExplainError::InvalidPod(said)) } else { told(&answer) }
        })
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

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

    #[test]
    fn passes_the_whole_user_in_headers() {
        let extra = tree! { "example.com/Key" => api::list!["v"] };
        let user = User {
            name: "jane".to_string(),
            uid: String::new(),
            groups: vec!["a".to_string(), "b".to_string()],
            extra: extra.as_map().cloned().unwrap_or_default(),
        };
        let headers = headers(&user).expect("headers");
        let shown: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap_or(""))).collect();
        assert_eq!(
            shown,
            ["x-remote-user=jane", "x-remote-group=a", "x-remote-group=b", "x-remote-extra-example.com%2fkey=v"]
        );
    }
}
