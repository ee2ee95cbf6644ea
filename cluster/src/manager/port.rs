//! The port of the manager: how each controller is, and what it counts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use client::{Metrics, SystemClock};
use http::Method;
use server::auth::{Authorities, RequestHeader};
use server::http::component::{self, Handler, Question, Reply, Replying};
use server::http::tls::{self, Serving};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::flags::Flags;
use super::follow::Follow;
use super::remote::Remote;
use crate::delegated::{Delegated, Kept, Refusal};
use crate::error::{Error, Result};
use crate::pki::{self, Pair};

/// The controllers, while they run.
#[derive(Default)]
pub struct Health(RwLock<Option<Arc<controllers::Running>>>);

impl Health {
    pub fn set(&self, running: Option<Arc<controllers::Running>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Each check by its name, and whether it holds. One that waits for its lease is well.
    fn checks(&self) -> Vec<(&'static str, bool)> {
        let running = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let controllers = running.as_ref().map(|running| running.health()).unwrap_or_default();
        std::iter::once(("leaderElection", true)).chain(controllers).collect()
    }
}

struct Port {
    delegated: Delegated,
    health: Arc<Health>,
    metrics: Metrics,
}

/// Serves where the flags say; the address, or None for port 0.
pub async fn serve(
    flags: &Flags,
    health: Arc<Health>,
    metrics: Metrics,
    stopped: watch::Receiver<bool>,
    follow: &mut Follow,
) -> Result<Option<SocketAddr>> {
    if flags.secure_port == 0 {
        return Ok(None);
    }
    let listen = SocketAddr::new(flags.bind_address, flags.secure_port);
    let listener = TcpListener::bind(listen).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse(listen),
        _ => Error::Listen { address: listen, source },
    })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: listen, source })?;
    let pair = match (&flags.tls_cert_file, &flags.tls_private_key_file) {
        (Some(certificate), Some(key)) => Pair::read(certificate, key)?,
        _ => pki::self_signed("kube-controller-manager", address.ip())?,
    };
    let serving = Arc::new(Serving::new(pki::certificates(&pair)?, pki::private_key(&pair)?)?);
    let tls = tls::server_config(serving.clone(), &tls::Options::default())?;
    let port = Arc::new(Port { delegated: delegated(flags, follow)?, health, metrics });
    follow_files(flags, serving, &port, follow);
    tokio::spawn(component::serve(listener, tls, port, stopped));
    Ok(Some(address))
}

/// What the port shows, and whom it believes.
fn follow_files(flags: &Flags, serving: Arc<Serving>, port: &Arc<Port>, follow: &mut Follow) {
    if let (Some(certificate), Some(key)) = (flags.tls_cert_file.clone(), flags.tls_private_key_file.clone()) {
        follow.add("tls-cert-file", vec![certificate.clone(), key.clone()], move || {
            let pair = Pair::read(&certificate, &key)?;
            Ok(serving.replace(pki::certificates(&pair)?, pki::private_key(&pair)?)?)
        });
    }
    type Of = fn(&Delegated) -> Option<&Authorities>;
    let authorities: [(&'static str, &Option<PathBuf>, Of); 2] = [
        ("client-ca-file", &flags.client_ca_file, |delegated| delegated.clients.as_ref()),
        ("requestheader-client-ca-file", &flags.proxy_ca_file, |delegated| {
            delegated.proxies.as_ref().map(|proxies| &proxies.authorities)
        }),
    ];
    for (flag, file, of) in authorities {
        let Some(file) = file.clone() else { continue };
        let port = port.clone();
        follow.add(flag, vec![file.clone()], move || {
            let pem = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
            let Some(authorities) = of(&port.delegated) else { return Ok(()) };
            authorities.replace(&pem).map_err(|why| Error::Pem { path: file.clone(), source: why.into() })
        });
    }
}

fn delegated(flags: &Flags, follow: &mut Follow) -> Result<Delegated> {
    let authorities = |path: &std::path::PathBuf| {
        let pem = std::fs::read_to_string(path).map_err(Error::file(path))?;
        Authorities::new(&pem).map_err(|why| Error::Pem { path: path.clone(), source: why.into() })
    };
    let mut asked = |flag: &'static str, file: &Option<PathBuf>| {
        let Some(file) = file else { return Ok(None) };
        let remote = Remote::read(flag, file)?;
        remote.follow(flag, file, follow);
        Ok::<_, Error>(Some(remote.client()))
    };
    let proxies = flags.proxy_ca_file.as_ref().map(|path| {
        let names = (flags.proxy_allowed_names.clone(), flags.proxy_headers.clone());
        RequestHeader::new(authorities(path)?, names.0, names.1).map_err(|why| Error::Flags(vec![why]))
    });
    Ok(Delegated {
        clients: flags.client_ca_file.as_ref().map(authorities).transpose()?,
        proxies: proxies.transpose()?,
        authentication: asked("authentication-kubeconfig", &flags.authentication_kubeconfig)?,
        authorization: asked("authorization-kubeconfig", &flags.authorization_kubeconfig)?,
        always_allowed: flags.always_allow_paths.clone(),
        clock: Arc::new(SystemClock),
        known: Kept::default(),
        judged: Kept::default(),
    })
}

impl Handler for Port {
    fn answer(&self, question: Question) -> Replying<'_> {
        Box::pin(self.reply(question))
    }
}

impl Port {
    async fn reply(&self, mut question: Question) -> Reply {
        match self.delegated.check(&mut question).await {
            Ok(()) => self.show(&question),
            Err(Refusal::Unauthorized) => Reply::text(401, "Unauthorized\n"),
            Err(Refusal::Forbidden(why)) => Reply::text(403, format!("{why}\n")),
            Err(Refusal::Failed(why)) => Reply::text(500, format!("Internal Server Error: {why}\n")),
        }
    }

    fn show(&self, question: &Question) -> Reply {
        if !matches!(question.method, Method::GET | Method::HEAD) {
            return Reply::text(405, "Method Not Allowed\n");
        }
        if question.path == "/metrics" {
            return Reply::text(200, self.metrics.render());
        }
        let health = ["/healthz", "/livez", "/readyz"].iter().find_map(|root| question.path.strip_prefix(root));
        match health {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => shown(&self.health.checks(), rest),
            _ => Reply::text(404, "404 page not found\n"),
        }
    }
}

/// All checks, or the one that is named.
fn shown(checks: &[(&'static str, bool)], rest: &str) -> Reply {
    let name = rest.trim_start_matches('/');
    let asked: Vec<_> = checks.iter().filter(|(other, _)| name.is_empty() || *other == name).collect();
    if asked.is_empty() {
        return Reply::text(404, "404 page not found\n");
    }
    if asked.iter().all(|(_, well)| *well) {
        return Reply::text(200, "ok");
    }
    let line = |(name, well): &&(&str, bool)| match well {
        true => format!("[+]{name} ok\n"),
        false => format!("[-]{name} failed: reason withheld\n"),
    };
    let lines: String = asked.iter().map(line).collect();
    Reply::text(500, format!("{lines}healthz check failed\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_shown_alone_and_together() {
        let checks = [("leaderElection", true), ("deployment-controller", false)];
        let check = |rest: &str, code: u16, text: &str| {
            let reply = shown(&checks, rest);
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            assert_eq!(reply.code, code, "{rest}: {body}");
            assert!(body.contains(text), "{rest}: {body}");
        };
        check("", 500, "[-]deployment-controller failed");
        check("", 500, "[+]leaderElection ok");
        check("/leaderElection", 200, "ok");
        check("/deployment-controller", 500, "healthz check failed");
        check("/nothing", 404, "not found");
    }
}
