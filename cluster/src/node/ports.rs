//! The ports of the kubelet: the TLS port with authentication and authorization, the plain read-only port, and the
//! healthz port.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use api::{Tree, tree};
use client::Client;
use http::Request;
use kubelet::Config;
use kubelet::server::{KubeletServer, access};
use server::authentication::CaBundle;
use server::http::component::{self, ComponentRequest, ComponentResponse, Handler, Reply, ResponseFuture};
use server::tls::{self, Serving};
use stdx::clock::SystemClock;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::component::delegated::{Delegated, Lifetimes, ReviewError};
use crate::component::follow::FileFollower;
use crate::error::{Error, Result};
use crate::machine::listen;
use crate::pki::{self, CertificateAndKey};

/// Ports that are bound before they are served, since the node's status has their numbers.
#[derive(Default)]
pub struct Listeners {
    secure: Option<TcpListener>,
    /// InsecurePort HTTP without authentication, for reading only.
    read_only: Option<TcpListener>,
    health: Option<TcpListener>,
}

impl Listeners {
    /// Binds the configured ports. If several clusters may share the machine, a port that is in use is replaced by
    /// another one, which the node's status has.
    pub async fn bind(config: &Config, is_shared: bool) -> Result<Listeners> {
        let serving = &config.serving;
        if !serving.enabled {
            return Ok(Listeners::default());
        }
        let at = |address, port| (port > 0).then(|| SocketAddr::new(address, port));
        let secure = match listen(Some(SocketAddr::new(serving.address, config.port))).await {
            Err(Error::PortInUse(at, _)) if is_shared => {
                tracing::info!(%at, "kubelet port in use, using another one");
                listen(Some(SocketAddr::new(serving.address, 0))).await?
            }
            other => other?,
        };
        let health = match listen(at(serving.healthz_address, serving.healthz_port)).await {
            Err(Error::PortInUse(at, _)) if is_shared => {
                tracing::info!(%at, "kubelet healthz port in use, not serving it");
                None
            }
            other => other?,
        };
        Ok(Listeners { secure, read_only: listen(at(serving.address, config.read_only_port)).await?, health })
    }

    /// The address of the HTTPS port.
    pub fn secure(&self) -> Option<SocketAddr> {
        address(&self.secure)
    }

    /// The address of the read-only port.
    pub fn read_only(&self) -> Option<SocketAddr> {
        address(&self.read_only)
    }

    /// The address of the health port.
    pub fn health(&self) -> Option<SocketAddr> {
        address(&self.health)
    }
}

/// The usual cause is another kubelet.
const PORT_HINT: &str =
    "choose other ones by `port` and `healthzPort` of a KubeletConfiguration (another kubelet may run on this machine)";

fn address(listener: &Option<TcpListener>) -> Option<SocketAddr> {
    listener.as_ref().and_then(|listener| listener.local_addr().ok())
}

async fn listen(at: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let Some(at) = at else { return Ok(None) };
    let listener = listen::listen(at).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse(at, PORT_HINT),
        _ => Error::Listen { address: at, source },
    })?;
    Ok(Some(listener))
}

/// The access rules of the TLS port.
pub struct Access {
    pub client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are anonymous instead of rejected.
    pub anonymous: bool,
    /// Reviews tokens through the API server; None if tokens are not accepted.
    pub authentication: Option<Client>,
    /// Authorizes requests through the API server; None if every authenticated client is allowed.
    pub authorization: Option<Client>,
    pub lifetimes: Lifetimes,
}

impl Access {
    /// `client` acts as the node.
    pub fn of(config: &Config, client: &Client) -> Access {
        let serving = &config.serving;
        Access {
            client_ca_file: serving.client_ca_file.clone(),
            anonymous: serving.anonymous,
            authentication: serving.webhook_authentication.then(|| client.clone()),
            authorization: serving.webhook_authorization.then(|| client.clone()),
            lifetimes: Lifetimes {
                token: serving.authentication_ttl,
                allowed: serving.authorized_ttl,
                denied: serving.unauthorized_ttl,
            },
        }
    }
}

/// The serving certificate: the configured files, or a self-signed one.
pub fn serving(config: &Config, at: IpAddr) -> Result<Arc<Serving>> {
    let certificates = &config.certificates;
    let pair = match (&certificates.tls_cert_file, &certificates.tls_private_key_file) {
        (Some(certificate), Some(key)) => CertificateAndKey::read(certificate, key)?,
        _ => pki::self_signed(&config.node_name, at)?,
    };
    Ok(Arc::new(Serving::new(pki::certificates(&pair)?, pki::private_key(&pair)?)?))
}

/// Reloads the certificate files when they change.
pub(crate) fn follow_serving(config: &Config, serving: &Arc<Serving>, follow: &mut FileFollower) {
    let certificates = &config.certificates;
    let (Some(certificate), Some(key)) = (&certificates.tls_cert_file, &certificates.tls_private_key_file) else {
        return;
    };
    let (certificate, key, serving) = (certificate.clone(), key.clone(), serving.clone());
    follow.add("tls-cert-file", vec![certificate.clone(), key.clone()], move || {
        let pair = CertificateAndKey::read(&certificate, &key)?;
        Ok(serving.replace(pki::certificates(&pair)?, pki::private_key(&pair)?)?)
    });
}

/// Serves the ports until `stopped` turns true. The caller can replace the certificate of `serving`.
pub fn serve(
    listeners: Listeners,
    serving: Arc<Serving>,
    access: Access,
    node: Arc<KubeletServer>,
    stopped: &watch::Receiver<bool>,
    follow: &mut FileFollower,
) -> Result<()> {
    let tls = tls::server_config(serving, &tls::Options::default())?;
    let secure = Arc::new(SecurePort::new(access, node.clone())?);
    secure.follow(follow);
    let plain = |paths| Arc::new(InsecurePort { node: node.clone(), paths });
    let all: [(_, _, Arc<dyn Handler>); 3] = [
        (listeners.secure, Some(tls), secure),
        (listeners.read_only, None, plain(READ_ONLY)),
        (listeners.health, None, plain(HEALTH)),
    ];
    for (listener, tls, handler) in all {
        if let Some(listener) = listener {
            tokio::spawn(component::serve(listener, tls, handler, stopped.clone()));
        }
    }
    Ok(())
}

/// Paths that are served without authentication.
const READ_ONLY: &[&str] = &["/healthz", "/pods", "/stats", "/metrics"];
const HEALTH: &[&str] = &["/healthz"];

struct InsecurePort {
    node: Arc<KubeletServer>,
    paths: &'static [&'static str],
}

impl Handler for InsecurePort {
    fn respond(&self, question: ComponentRequest) -> ResponseFuture<'_> {
        Box::pin(async move {
            let path = &question.path;
            let below =
                |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            match self.paths.iter().any(below) {
                true => self.node.respond(request(question)).await,
                false => Reply::text(404, "404 page not found\n").into(),
            }
        })
    }
}

struct SecurePort {
    node: Arc<KubeletServer>,
    delegated: Delegated,
    client_ca_file: Option<PathBuf>,
}

impl SecurePort {
    fn new(access: Access, node: Arc<KubeletServer>) -> Result<SecurePort> {
        let clients = access.client_ca_file.as_deref().map(crate::component::port::read_ca_bundle).transpose()?;
        let delegated = Delegated {
            lookup: None,
            clients,
            proxies: None,
            authentication: access.authentication,
            authorization: access.authorization,
            always_allowed: Vec::new(),
            anonymous: access.anonymous,
            lifetimes: access.lifetimes,
            clock: Arc::new(SystemClock),
            known: Default::default(),
            judged: Default::default(),
        };
        Ok(SecurePort { node, delegated, client_ca_file: access.client_ca_file })
    }

    fn follow(self: &Arc<SecurePort>, follow: &mut FileFollower) {
        let Some(file) = self.client_ca_file.clone() else { return };
        let port = self.clone();
        follow.add("client-ca-file", vec![file.clone()], move || {
            let pem = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
            let Some(ca_bundle): Option<&CaBundle> = port.delegated.clients.as_ref() else { return Ok(()) };
            ca_bundle.replace(&pem).map_err(|why| Error::Pem { path: file.clone(), source: why.into() })
        });
    }

    async fn reply(&self, mut question: ComponentRequest) -> ComponentResponse {
        match self.check(&mut question).await {
            Ok(()) => self.node.respond(request(question)).await,
            Err(ReviewError::Unauthorized) => Reply::text(401, "Unauthorized").into(),
            Err(ReviewError::Forbidden(why)) => Reply::text(403, why).into(),
            Err(ReviewError::Failed(why)) => Reply::text(500, why).into(),
        }
    }

    async fn check(&self, question: &mut ComponentRequest) -> std::result::Result<(), ReviewError> {
        let user = self.delegated.authenticate(question).await?;
        if self.delegated.authorization.is_none() {
            return Ok(());
        }
        let verb = access::verb(&question.method);
        let subresources = access::subresources(&question.path);
        for subresource in &subresources {
            let attributes = attributes(self.node.node_name(), verb, subresource);
            let allowed = self.delegated.allows(&user, ("resourceAttributes", attributes)).await;
            let failed = |_| {
                let of = format!("user={}, verb={verb}, resource=nodes, subresource={subresource}", user.name);
                ReviewError::Failed(format!("Authorization error ({of})"))
            };
            if allowed.map_err(failed)? {
                return Ok(());
            }
        }
        let names = subresources.join(" ");
        let of = format!("user={}, verb={verb}, resource=nodes, subresource(s)=[{names}]", user.name);
        Err(ReviewError::Forbidden(format!("Forbidden ({of})\n")))
    }
}

fn attributes(node: &str, verb: &str, subresource: &str) -> Tree {
    tree! { "verb" => verb, "version" => "v1", "resource" => "nodes", "subresource" => subresource, "name" => node }
}

impl Handler for SecurePort {
    fn respond(&self, question: ComponentRequest) -> ResponseFuture<'_> {
        Box::pin(self.reply(question))
    }
}

/// The request for the kubelet's handlers, without the client's credentials.
fn request(question: ComponentRequest) -> Request<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_in_use_is_an_error_unless_shared() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = taken.local_addr().expect("an address");
        let mut config = Config { port: at.port(), ..Config::default() };
        config.serving.address = at.ip();
        config.serving.healthz_port = at.port();
        let error = Listeners::bind(&config, false).await.err().expect("refused").describe();
        assert!(error.contains(&at.to_string()), "{error}");
        // The kubelet inside of `up` has no flags for its ports.
        assert!(error.contains("`port` and `healthzPort` of a KubeletConfiguration"), "{error}");
        let moved = Listeners::bind(&config, true).await.expect("another port");
        assert!(moved.secure().is_some_and(|other| other.port() != at.port()) && moved.health().is_none());
        config.port = 0;
        let error = Listeners::bind(&config, false).await.err().expect("refused").describe();
        assert!(error.contains(&at.to_string()), "{error}");
    }
}
