//! The ports of a node's agent: the one of TLS, where everybody is asked who they are, the plain one that only reads,
//! and the one for health on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::{Tree, tree};
use client::{Client, SystemClock};
use http::Request;
use kubelet::serve::{Node, access};
use server::auth::Authorities;
use server::http::component::{self, Answer, Handler, Question, Reply, Replying};
use server::http::tls::{self, Serving};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::delegated::{Delegated, Refusal};
use super::follow::Follow;
use crate::error::{Error, Result};
use crate::pki::{self, Pair};

/// Who may ask, and where.
pub struct NodePorts {
    /// None where nothing is served.
    pub secure: Option<SocketAddr>,
    /// Plain, for everybody who reaches it, and for reading alone.
    pub read_only: Option<SocketAddr>,
    pub health: Option<SocketAddr>,
    pub serving: Pair,
    pub tls: tls::Options,
    pub client_ca_file: Option<PathBuf>,
    /// One who shows nothing is somebody too.
    pub anonymous: bool,
    /// Asks the API server whose a token is; None where tokens are not taken.
    pub authentication: Option<Client>,
    pub authorization: Authorization,
}

pub enum Authorization {
    /// Whoever is known may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook(Client),
}

/// Ports that are open.
pub struct Open {
    pub secure: Option<SocketAddr>,
    pub read_only: Option<SocketAddr>,
    pub health: Option<SocketAddr>,
    /// For whoever renews the certificate.
    pub serving: Arc<Serving>,
}

/// Opens the ports, which are served until `stopped` turns true.
pub async fn serve(
    ports: NodePorts,
    node: Arc<Node>,
    stopped: watch::Receiver<bool>,
    follow: &mut Follow,
) -> Result<Open> {
    let serving = Arc::new(Serving::new(pki::certificates(&ports.serving)?, pki::private_key(&ports.serving)?)?);
    let tls = tls::server_config(serving.clone(), &ports.tls)?;
    let (read_only, health) = (ports.read_only, ports.health);
    let secure = ports.secure;
    let port = Arc::new(Secure::new(ports, node.clone())?);
    port.follow(follow);
    let secure = open(secure, Some(tls), port, &stopped).await?;
    let plain = |paths| Arc::new(Plain { node: node.clone(), paths });
    let read_only = open(read_only, None, plain(READ_ONLY), &stopped).await?;
    let health = open(health, None, plain(HEALTH), &stopped).await?;
    Ok(Open { secure, read_only, health, serving })
}

async fn open(
    at: Option<SocketAddr>,
    tls: Option<Arc<rustls::ServerConfig>>,
    handler: Arc<dyn Handler>,
    stopped: &watch::Receiver<bool>,
) -> Result<Option<SocketAddr>> {
    let Some(at) = at else { return Ok(None) };
    let listener = TcpListener::bind(at).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse(at),
        _ => Error::Listen { address: at, source },
    })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: at, source })?;
    tokio::spawn(component::serve(listener, tls, handler, stopped.clone()));
    Ok(Some(address))
}

/// What is answered without asking who it is for.
const READ_ONLY: &[&str] = &["/healthz", "/pods", "/stats", "/metrics"];
const HEALTH: &[&str] = &["/healthz"];

struct Plain {
    node: Arc<Node>,
    paths: &'static [&'static str],
}

impl Handler for Plain {
    fn answer(&self, question: Question) -> Replying<'_> {
        Box::pin(async move {
            let path = &question.path;
            let below = |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            match self.paths.iter().any(|root| below(&root)) {
                true => self.node.answer(request(question)).await,
                false => Reply::text(404, "404 page not found\n").into(),
            }
        })
    }
}

struct Secure {
    node: Arc<Node>,
    delegated: Delegated,
    always_allow: bool,
    client_ca_file: Option<PathBuf>,
}

impl Secure {
    fn new(ports: NodePorts, node: Arc<Node>) -> Result<Secure> {
        let clients = ports.client_ca_file.as_deref().map(super::port::authorities).transpose()?;
        let (always_allow, authorization) = match ports.authorization {
            Authorization::AlwaysAllow => (true, None),
            Authorization::Webhook(client) => (false, Some(client)),
        };
        let delegated = Delegated {
            lookup: None,
            clients,
            proxies: None,
            authentication: ports.authentication,
            authorization,
            always_allowed: Vec::new(),
            anonymous: ports.anonymous,
            clock: Arc::new(SystemClock),
            known: Default::default(),
            judged: Default::default(),
        };
        Ok(Secure { node, delegated, always_allow, client_ca_file: ports.client_ca_file })
    }

    fn follow(self: &Arc<Secure>, follow: &mut Follow) {
        let Some(file) = self.client_ca_file.clone() else { return };
        let port = self.clone();
        follow.add("client-ca-file", vec![file.clone()], move || {
            let pem = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
            let Some(authorities): Option<&Authorities> = port.delegated.clients.as_ref() else { return Ok(()) };
            authorities.replace(&pem).map_err(|why| Error::Pem { path: file.clone(), source: why.into() })
        });
    }

    async fn reply(&self, mut question: Question) -> Answer {
        match self.check(&mut question).await {
            Ok(()) => self.node.answer(request(question)).await,
            Err(Refusal::Unauthorized) => Reply::text(401, "Unauthorized").into(),
            Err(Refusal::Forbidden(why)) => Reply::text(403, why).into(),
            Err(Refusal::Failed(why)) => Reply::text(500, why).into(),
        }
    }

    async fn check(&self, question: &mut Question) -> std::result::Result<(), Refusal> {
        let user = self.delegated.authenticate(question).await?;
        if self.always_allow {
            return Ok(());
        }
        let verb = access::verb(&question.method);
        let subresources = access::subresources(&question.path);
        for subresource in &subresources {
            let attributes = attributes(self.node.node_name(), verb, subresource);
            let allowed = self.delegated.allows(&user, ("resourceAttributes", attributes)).await;
            let failed = |_| {
                let of = format!("user={}, verb={verb}, resource=nodes, subresource={subresource}", user.name);
                Refusal::Failed(format!("Authorization error ({of})"))
            };
            if allowed.map_err(failed)? {
                return Ok(());
            }
        }
        let names = subresources.join(" ");
        let of = format!("user={}, verb={verb}, resource=nodes, subresource(s)=[{names}]", user.name);
        Err(Refusal::Forbidden(format!("Forbidden ({of})\n")))
    }
}

fn attributes(node: &str, verb: &str, subresource: &str) -> Tree {
    tree! { "verb" => verb, "version" => "v1", "resource" => "nodes", "subresource" => subresource, "name" => node }
}

impl Handler for Secure {
    fn answer(&self, question: Question) -> Replying<'_> {
        Box::pin(self.reply(question))
    }
}

/// The question as the agent knows it; what it shows of who asks stays here.
fn request(question: Question) -> Request<()> {
    let mut request = Request::new(());
    let place = match question.query.as_str() {
        "" => question.path,
        query => format!("{}?{query}", question.path),
    };
    *request.uri_mut() = place.parse().unwrap_or_default();
    *request.method_mut() = question.method;
    *request.headers_mut() = question.headers;
    request.headers_mut().remove(http::header::AUTHORIZATION);
    if let Some(upgrade) = question.upgrade {
        request.extensions_mut().insert(upgrade);
    }
    request
}
