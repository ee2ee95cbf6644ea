//! The port of a component: health, metrics, and further paths of the component.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use server::authentication::{CaBundle, RequestHeader};
use server::http::component::{self, ComponentRequest, Handler, Reply, ResponseFuture};
use server::routes::health::Slis;
use server::tls::{self, Serving};
use stdx::clock::SystemClock;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::ComponentWork;
use super::delegated::{Delegated, Lookup, ReviewError, TimedCache};
use super::flags::Common;
use super::follow::FileFollower;
use super::remote::Remote;
use crate::error::{Error, Result};
use crate::machine::address;
use crate::pki::{self, CertificateAndKey};

/// A port that is open.
pub struct Port {
    pub address: SocketAddr,
    serving: Arc<Serving>,
}

impl Port {
    /// The address for other machines; a loopback address is only reachable from this machine, and is not replaced.
    pub(crate) fn reached_at(&self) -> SocketAddr {
        let ip = self.address.ip();
        SocketAddr::new(if ip.is_unspecified() { address::advertised(ip) } else { ip }, self.address.port())
    }

    /// The fingerprint of the current serving certificate.
    pub fn fingerprint(&self) -> String {
        self.serving.fingerprint()
    }
}

struct PortState {
    delegated: Delegated,
    work: Arc<dyn ComponentWork>,
    slis: Slis,
}

const PROBES: [&str; 3] = ["healthz", "livez", "readyz"];

/// Serves at the address of the flags; None for port 0.
pub(crate) async fn serve(
    common: &Common,
    work: Arc<dyn ComponentWork>,
    stopped: watch::Receiver<bool>,
    follow: &mut FileFollower,
) -> Result<Option<Port>> {
    if common.secure_port == 0 {
        return Ok(None);
    }
    let listen = SocketAddr::new(common.bind_address, common.secure_port);
    let listener = TcpListener::bind(listen).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse(listen, "choose another one by --secure-port"),
        _ => Error::Listen { address: listen, source },
    })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: listen, source })?;
    let pair = pair(common, address.ip())?;
    let serving = Arc::new(Serving::new(pki::certificates(&pair)?, pki::private_key(&pair)?)?);
    let tls = tls::server_config(serving.clone(), &tls::Options::default())?;
    let shown = Arc::new(PortState { delegated: delegated(common, follow)?, work, slis: Slis::default() });
    follow_files(common, serving.clone(), &shown, follow);
    tokio::spawn(component::serve(listener, Some(tls), shown, stopped));
    Ok(Some(Port { address, serving }))
}

fn pair(common: &Common, address: IpAddr) -> Result<CertificateAndKey> {
    match (&common.tls_cert_file, &common.tls_private_key_file) {
        (Some(certificate), Some(key)) => CertificateAndKey::read(certificate, key),
        _ => match &common.cert_dir {
            Some(dir) => {
                let (certificate, key) = pki::keep_self_signed(dir, common.name, address)?;
                CertificateAndKey::read(&certificate, &key)
            }
            None => pki::self_signed(common.name, address),
        },
    }
}

/// The port's certificate, handlers and authentication.
fn follow_files(common: &Common, serving: Arc<Serving>, shown: &Arc<PortState>, follow: &mut FileFollower) {
    if let (Some(certificate), Some(key)) = (common.tls_cert_file.clone(), common.tls_private_key_file.clone()) {
        follow.add("tls-cert-file", vec![certificate.clone(), key.clone()], move || {
            let pair = CertificateAndKey::read(&certificate, &key)?;
            Ok(serving.replace(pki::certificates(&pair)?, pki::private_key(&pair)?)?)
        });
    }
    type CaBundleOf = fn(&Delegated) -> Option<&CaBundle>;
    let ca_files: [(&'static str, &Option<PathBuf>, CaBundleOf); 2] = [
        ("client-ca-file", &common.client_ca_file, |delegated| delegated.clients.as_ref()),
        ("requestheader-client-ca-file", &common.proxy_ca_file, |delegated| {
            delegated.proxies.as_ref().map(|proxies| &proxies.cas)
        }),
    ];
    for (flag, file, of) in ca_files {
        let Some(file) = file.clone() else { continue };
        let shown = shown.clone();
        follow.add(flag, vec![file.clone()], move || {
            let pem = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
            let Some(ca_bundle) = of(&shown.delegated) else { return Ok(()) };
            ca_bundle.replace(&pem).map_err(|why| Error::Pem { path: file.clone(), source: why.into() })
        });
    }
}

fn delegated(common: &Common, follow: &mut FileFollower) -> Result<Delegated> {
    let mut requested = |flag: &'static str, file: &Option<PathBuf>| {
        let Some(file) = file else { return Ok(None) };
        let remote = Remote::read(common.name, flag, file)?;
        remote.follow(flag, file, follow);
        Ok::<_, Error>(Some(remote.client()))
    };
    let authentication = requested("authentication-kubeconfig", &common.authentication_kubeconfig)?;
    let authorization = requested("authorization-kubeconfig", &common.authorization_kubeconfig)?;
    let (clients, proxies) = (clients(common)?, proxies(common)?);
    // CA bundles that no flag configures are read from the API server.
    let is_looked_up = !common.authentication_skip_lookup && (clients.is_none() || proxies.is_none());
    Ok(Delegated {
        lookup: authentication.clone().filter(|_| is_looked_up).map(Lookup::new),
        clients,
        proxies,
        authentication,
        authorization,
        always_allowed: common.always_allow_paths.clone(),
        anonymous: true,
        lifetimes: Default::default(),
        clock: Arc::new(SystemClock),
        known: TimedCache::default(),
        judged: TimedCache::default(),
    })
}

pub(crate) fn read_ca_bundle(path: &Path) -> Result<CaBundle> {
    let pem = std::fs::read_to_string(path).map_err(Error::file(path))?;
    CaBundle::new(&pem).map_err(|why| Error::Pem { path: path.to_path_buf(), source: why.into() })
}

fn clients(common: &Common) -> Result<Option<CaBundle>> {
    common.client_ca_file.as_deref().map(read_ca_bundle).transpose()
}

fn proxies(common: &Common) -> Result<Option<RequestHeader>> {
    let Some(path) = &common.proxy_ca_file else { return Ok(None) };
    let (allowed, names) = (common.proxy_allowed_names.clone(), common.proxy_headers.clone());
    RequestHeader::new(read_ca_bundle(path)?, allowed, names)
        .map(Some)
        .map_err(|why| Error::Flags(vec![why.to_string()]))
}

impl Handler for PortState {
    fn respond(&self, question: ComponentRequest) -> ResponseFuture<'_> {
        Box::pin(async { self.reply(question).await.into() })
    }
}

impl PortState {
    async fn reply(&self, mut question: ComponentRequest) -> Reply {
        let attributes = self.work.attributes(&question);
        match self.delegated.check(&mut question, attributes).await {
            Ok(()) if question.read().await => self.show(&question),
            Ok(()) => Reply::text(413, "Request Entity Too Large\n"),
            Err(ReviewError::Unauthorized) => Reply::text(401, "Unauthorized\n"),
            Err(ReviewError::Forbidden(why)) => Reply::text(403, format!("{why}\n")),
            Err(ReviewError::Failed(why)) => Reply::text(500, format!("Internal Server Error: {why}\n")),
        }
    }

    fn show(&self, question: &ComponentRequest) -> Reply {
        let work = &self.work;
        if !matches!(question.method, Method::GET | Method::HEAD) && !work.takes(question) {
            return Reply::text(405, "Method Not Allowed\n");
        }
        if question.path == "/metrics" {
            return Reply::text(200, work.metrics());
        }
        if question.path == "/metrics/slis" {
            return Reply::text(200, self.indicators());
        }
        let path = question.path.strip_prefix('/').unwrap_or_default();
        let health = PROBES.iter().find_map(|probe| Some((*probe, path.strip_prefix(*probe)?)));
        match health {
            Some((probe, rest)) if rest.is_empty() || rest.starts_with('/') => {
                shown(&work.checks(probe), probe, rest, &self.slis)
            }
            _ => work.show(question).unwrap_or_else(|| Reply::text(404, "404 page not found\n")),
        }
    }

    fn indicators(&self) -> String {
        let of = |probe: &'static str| {
            let checks = self.work.checks(probe).into_iter();
            checks.map(move |(name, is_well)| ((probe, name), is_well))
        };
        self.slis.text(&PROBES.into_iter().flat_map(of).collect::<Vec<_>>())
    }
}

/// All checks, or only the named one.
fn shown(checks: &[(&'static str, bool)], probe: &'static str, rest: &str, slis: &Slis) -> Reply {
    let name = rest.trim_start_matches('/');
    let requested: Vec<_> = checks.iter().filter(|(other, _)| name.is_empty() || *other == name).collect();
    if requested.is_empty() {
        return Reply::text(404, "404 page not found\n");
    }
    requested.iter().for_each(|(name, is_well)| slis.record(probe, name, *is_well));
    if requested.iter().all(|(_, well)| *well) {
        return Reply::text(200, "ok");
    }
    let line = |(name, well): &&(&str, bool)| match well {
        true => format!("[+]{name} ok\n"),
        false => format!("[-]{name} failed: reason withheld\n"),
    };
    let lines: String = requested.iter().map(line).collect();
    Reply::text(500, format!("{lines}{probe} check failed\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_single_and_combined_checks() {
        let checks = [("leaderElection", true), ("deployment-controller", false)];
        let check = |rest: &str, code: u16, text: &str| {
            let reply = shown(&checks, "readyz", rest, &Slis::default());
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            assert_eq!(reply.code, code, "{rest}: {body}");
            assert!(body.contains(text), "{rest}: {body}");
        };
        check("", 500, "[-]deployment-controller failed");
        check("", 500, "[+]leaderElection ok");
        check("/leaderElection", 200, "ok");
        check("/deployment-controller", 500, "readyz check failed");
        check("/nothing", 404, "not found");
    }
}
