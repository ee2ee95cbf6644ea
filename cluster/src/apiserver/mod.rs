//! `kube-apiserver`: the API server alone, with upstream's flags.

mod authentication;
pub mod authorization;
pub mod flags;
mod gates;
mod reload;
mod runtime_config;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use server::aggregation::{IdentityError, ReadIdentity};
use server::outbound::callout::Identity;
use server::storage::encryption::Encryption;
use server::tls::Serving;
use store::embedded::Retention;

use crate::control_plane::addons;
use crate::control_plane::{self, ControlPlane, Engine, Plan};
use crate::error::{Error, Result};
use crate::machine::address;
use crate::machine::lock::{Lock, lock_data_dir};
use crate::machine::preflight::{self, Role};
use crate::pki::cluster::ClusterPki;
use crate::pki::credentials::{self, Credentials, CredentialsRefresher, LoadCredentials};
use crate::pki::kubeconfig::Kubeconfigs;
use crate::pki::{self, CertificateAndKey, Pki};
use flags::Flags;

/// Starts the server. If `--data-dir` has its own CA, the administrator's kubeconfig is written there too.
pub async fn run(mut flags: Flags) -> Result<ControlPlane> {
    use_cert_dir(&mut flags)?;
    let lock = lock_own(&flags)?;
    let own = own_certificates(&flags)?;
    flags_checked(&flags, own.is_some())?;
    let load = loader(&flags, own.clone());
    let current = load()?;
    let serving = credentials::serving(&current)?;
    // The watch starts before the files are read for the first time: no change in between is missed.
    let followed = followed(&flags)?;
    // The kubeconfig names the server that started first.
    let is_first = lock.is_some();
    let plan = Plan { lock, ..plan(&flags, own.as_ref(), &current, serving.clone())? };
    let running = Box::pin(control_plane::start(plan, &|step| tracing::info!(step, "starting"))).await?;
    let kubeconfig = flags
        .data_dir
        .as_ref()
        .filter(|_| is_first)
        .map(|dir| (Kubeconfigs::own(dir.join("kubeconfig")), running.address));
    if let (Some((files, address)), Some((ca, admin))) = (&kubeconfig, &current.admin) {
        files.write(*address, ca, admin, false)?;
        if flags.kubelet_client_certificate.is_none() {
            addons::grant_kubelet_access(&running.server).await?;
        }
        // Joining machines trust this CA, which must have signed our certificate.
        if flags.tls_cert_file.is_none() {
            addons::create_join_objects(&running.server, &address::joined_at(*address), &ca.certificate).await?;
        }
    }
    let keeper = CredentialsRefresher { watched: watched(&flags, own.as_ref()), load, current, serving, kubeconfig };
    tokio::spawn(keeper.run(running.server.clone()));
    for followed in followed {
        tokio::spawn(followed.run(running.server.clone()));
    }
    Ok(running)
}

/// Without a certificate and a data directory, `--cert-dir` stores a self-signed one.
fn use_cert_dir(flags: &mut Flags) -> Result<()> {
    let is_open = flags.tls_cert_file.is_none() && flags.tls_private_key_file.is_none();
    let Some(dir) = flags.cert_dir.as_ref().filter(|_| is_open) else { return Ok(()) };
    if flags.data_dir.is_some() {
        let why = "--cert-dir is for a server without --data-dir, which keeps its certificates there";
        return Err(Error::Flags(vec![why.to_string()]));
    }
    let address = flags.advertise_address.unwrap_or_else(|| address::advertised(flags.bind_address));
    let (certificate, key) = pki::keep_self_signed(dir, "apiserver", address)?;
    (flags.tls_cert_file, flags.tls_private_key_file) = (Some(certificate), Some(key));
    Ok(())
}

/// The configuration files that count while the server runs.
pub(crate) fn followed(flags: &Flags) -> Result<Vec<reload::ReloadedFile>> {
    let followed = [authentication::followed(flags)?, authorization::followed(&flags.authorization)?];
    Ok(followed.into_iter().flatten().collect())
}

/// Locks the data directory. Servers that keep their objects in etcd may share one; None for all but the first.
fn lock_own(flags: &Flags) -> Result<Option<Lock>> {
    let Some(dir) = &flags.data_dir else { return Ok(None) };
    match lock_data_dir(&preflight::open_data_dir(dir, Role::Server)?) {
        Err(error @ Error::DataDirInUse { .. }) if !flags.etcd_servers.is_empty() => {
            tracing::info!(
                reason = error.describe(),
                "data directory in use by another server, keeping its kubeconfig"
            );
            Ok(None)
        }
        locked => locked.map(Some),
    }
}

/// Certificates of the data directory, if the flags do not name all of them.
fn own_certificates(flags: &Flags) -> Result<Option<ClusterPki>> {
    let complete = flags.tls_cert_file.is_some() && flags.client_ca_file.is_some();
    match &flags.data_dir {
        Some(dir) if !complete => {
            ClusterPki::new(Pki::open(dir.join("pki"))?, flags.bind_address, &config(flags), &[]).map(Some)
        }
        _ => Ok(None),
    }
}

/// Loads the credentials of the flags, and those of the data directory where the flags name none.
pub(crate) fn loader(flags: &Flags, own: Option<ClusterPki>) -> LoadCredentials {
    let serving = flags.tls_cert_file.clone().zip(flags.tls_private_key_file.clone());
    let (clients, proxies) = (flags.client_ca_file.clone(), flags.authentication.proxy_ca_file.clone());
    let kubelets = flags.kubelet_client_certificate.clone().zip(flags.kubelet_client_key.clone());
    let kubelet_ca = flags.kubelet_certificate_authority.clone();
    Box::new(move || {
        let mut loaded = own.as_ref().map(ClusterPki::load).transpose()?.unwrap_or_default();
        if let Some((certificate, key)) = &serving {
            loaded.serving = CertificateAndKey::read(certificate, key)?;
        }
        let read = |path: &PathBuf| fs::read_to_string(path).map_err(Error::file(path));
        if let Some(path) = &clients {
            loaded.clients = Some(read(path)?);
        }
        loaded.proxies = proxies.as_ref().map(read).transpose()?;
        if let Some((certificate, key)) = &kubelets {
            loaded.kubelet_client = Some(CertificateAndKey::read(certificate, key)?);
        }
        loaded.kubelet_ca = kubelet_ca.as_ref().map(read).transpose()?;
        Ok(loaded)
    })
}

pub(crate) fn watched(flags: &Flags, own: Option<&ClusterPki>) -> Vec<PathBuf> {
    let mut watched = authentication::watched(flags);
    watched.extend(flags.tls_cert_file.iter().chain(&flags.tls_private_key_file).cloned());
    watched.extend(flags.kubelet_client_certificate.iter().chain(&flags.kubelet_client_key).cloned());
    watched.extend(flags.kubelet_certificate_authority.clone());
    watched.extend(own.map(|own| Path::to_path_buf(own.pki.dir())));
    watched
}

/// Checks that the flags do not contradict each other.
pub(crate) fn flags_checked(flags: &Flags, own: bool) -> Result<&Flags> {
    let mut errors = Vec::new();
    if flags.etcd_servers.is_empty() && flags.data_dir.is_none() {
        errors.push("either --etcd-servers or --data-dir is required".to_string());
    }
    if flags.tls_cert_file.is_some() != flags.tls_private_key_file.is_some() {
        errors.push("--tls-cert-file and --tls-private-key-file must be set together".to_string());
    }
    if flags.kubelet_client_certificate.is_some() != flags.kubelet_client_key.is_some() {
        errors.push("--kubelet-client-certificate and --kubelet-client-key must be set together".to_string());
    }
    if flags.proxy_client_cert_file.is_some() != flags.proxy_client_key_file.is_some() {
        errors.push("--proxy-client-cert-file and --proxy-client-key-file must be set together".to_string());
    }
    if flags.etcd_cert_file.is_some() != flags.etcd_key_file.is_some() {
        errors.push("--etcd-certfile and --etcd-keyfile must be set together".to_string());
    }
    if flags.tls_cert_file.is_none() && !own {
        errors.push("--tls-cert-file and --tls-private-key-file, or --data-dir, is required".to_string());
    }
    if flags.client_ca_file.is_none() && !own && !flags.authentication.has_authenticators() {
        errors.push("--client-ca-file, or --data-dir, is required: otherwise no client can authenticate".to_string());
    }
    if flags.service_account_signing_key_file.is_none() && !flags.service_account_key_files.is_empty() {
        errors.push("--service-account-key-file needs --service-account-signing-key-file".to_string());
    }
    if flags.encryption_reload && flags.encryption_config.is_none() {
        errors.push("--encryption-provider-config-automatic-reload needs --encryption-provider-config".to_string());
    }
    if flags.stores_protobuf && !flags.etcd_servers.is_empty() {
        errors.push("--storage-media-type: objects are stored in etcd as application/json".to_string());
    }
    errors.extend(flags.authorization.problems());
    let limits = &flags.config.limits;
    if limits.fairness && limits.max_requests_inflight + limits.max_mutating_requests_inflight == 0 {
        errors
            .push("--max-requests-inflight and --max-mutating-requests-inflight cannot both be 0 with fairness".into());
    }
    if errors.is_empty() { Ok(flags) } else { Err(Error::Flags(errors)) }
}

/// Reads the client certificate of the flags, which may be replaced while the server runs.
fn proxy_identity(flags: &Flags) -> Option<ReadIdentity> {
    let (certificate, key) = flags.proxy_client_cert_file.clone().zip(flags.proxy_client_key_file.clone())?;
    let read = move || {
        let pair = CertificateAndKey::read(&certificate, &key).map_err(|error| IdentityError(error.into()))?;
        Identity::pem(pair.certificate.as_bytes(), pair.key.as_bytes()).map_err(|error| IdentityError(error.into()))
    };
    Some(Arc::new(read))
}

pub(crate) fn plan(
    flags: &Flags,
    own: Option<&ClusterPki>,
    current: &Credentials,
    serving: Arc<Serving>,
) -> Result<Plan> {
    let tokens = match (&flags.service_account_signing_key_file, own) {
        (Some(path), _) => Some(pki::tokens(path, &flags.service_account_key_files)?),
        (None, own) => own.map(ClusterPki::tokens).transpose()?,
    };
    let mut config = config(flags);
    config.authorization = flags.authorization.settings()?;
    config.admission = admission(flags)?.into();
    let kubelets = credentials::kubelets(current, &flags.kubelet_preferred_address_types, flags.kubelet_timeout)?;
    config.kubelets = Some(kubelets);
    let audit = server::audit::Audit::open(&flags.audit);
    config.audit = audit.map_err(|error| Error::Flags(vec![error.to_string()]))?.map(Arc::new);
    config.encryption = encryption(flags)?;
    let engine = match &flags.data_dir {
        Some(dir) if flags.etcd_servers.is_empty() => Engine::Embedded(dir.join("store")),
        _ => {
            // The engine puts the prefix before every key itself.
            config.storage_prefix = String::new();
            Engine::Etcd(Box::new(etcd(flags)))
        }
    };
    let listen = SocketAddr::new(flags.bind_address, flags.secure_port);
    let tls = flags.authentication.tls.clone();
    let authentication = authentication::build(flags, current, tokens)?;
    let (controllers, scheduler, proxy) = (None, None, proxy_identity(flags).or(own.map(ClusterPki::proxy)));
    config.aggregation.identity = proxy.clone();
    Ok(Plan {
        engine,
        listen,
        port_hint: "choose another one by --secure-port",
        pod_address: None,
        serving,
        tls,
        authentication,
        config,
        controllers,
        scheduler,
        cluster_ca: None,
        proxy,
        snapshots: flags.snapshots.check(flags.data_dir.as_deref().filter(|_| flags.etcd_servers.is_empty()))?,
        manifests: None,
        fake_nodes: 0,
        agent: None,
        lock: None,
    })
}

pub(crate) fn config(flags: &Flags) -> server::Config {
    let mut config = flags.config.clone();
    if !flags.issuers.is_empty() {
        config.issuers.clone_from(&flags.issuers);
    }
    config.advertise_address = flags.advertise_address.unwrap_or_else(|| address::advertised(flags.bind_address));
    config
}

fn encryption(flags: &Flags) -> Result<Option<Arc<Encryption>>> {
    let Some(path) = &flags.encryption_config else { return Ok(None) };
    let encryption = Encryption::read(path).map_err(|error| Error::Flags(vec![error.to_string()]))?;
    if flags.encryption_reload {
        encryption.reload_on_change().map_err(Error::file(path))?;
    }
    Ok(Some(encryption))
}

fn admission(flags: &Flags) -> Result<server::registry::admission::Setup> {
    let file = flags.admission_control_config_file.as_deref();
    server::registry::admission::Setup::new(&flags.enable_admission_plugins, &flags.disable_admission_plugins, file)
        .map_err(Error::Flags)
}

fn etcd(flags: &Flags) -> store::etcd::Config {
    let mut config = store::etcd::Config::new(flags.etcd_servers.clone());
    config.prefix.clone_from(&flags.etcd_prefix);
    config.ca_file.clone_from(&flags.etcd_ca_file);
    config.cert_file.clone_from(&flags.etcd_cert_file);
    config.key_file.clone_from(&flags.etcd_key_file);
    config.causes = Some(flags.config.history).filter(Retention::is_on).map(|history| history.age);
    config.compact_interval = Some(flags.etcd_compaction_interval).filter(|interval| !interval.is_zero());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_a_self_signed_certificate_in_cert_dir() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let certificate = |flags: &mut Flags| {
            use_cert_dir(flags).map(|()| flags.tls_cert_file.clone()).map_err(|error| error.describe())
        };
        let with_cert_dir = || Flags { cert_dir: Some(dir.path().join("certs")), ..Flags::default() };
        assert_eq!(certificate(&mut Flags::default()), Ok(None));
        let path = certificate(&mut with_cert_dir()).expect("a certificate").expect("a certificate");
        let first = fs::read_to_string(&path).expect("a certificate");
        assert_eq!(path, dir.path().join("certs/apiserver.crt"));
        assert_eq!(certificate(&mut with_cert_dir()), Ok(Some(path.clone())));
        assert_eq!(fs::read_to_string(&path).expect("a certificate"), first, "it is made once");
        let given = Some(PathBuf::from("mine.crt"));
        assert_eq!(certificate(&mut Flags { tls_cert_file: given.clone(), ..with_cert_dir() }), Ok(given));
        let error = certificate(&mut Flags { data_dir: Some("/x".into()), ..with_cert_dir() }).expect_err("two places");
        assert!(error.contains("--cert-dir is for a server without --data-dir"), "{error}");
    }

    #[test]
    fn rejects_incomplete_flags() {
        type Change = fn(&mut Flags);
        let cases: [(Change, &str); 7] = [
            (
                |flags| flags.proxy_client_cert_file = Some("a".into()),
                "--proxy-client-cert-file and --proxy-client-key-file",
            ),
            (
                |flags| flags.kubelet_client_key = Some("a".into()),
                "--kubelet-client-certificate and --kubelet-client-key",
            ),
            (|_| {}, "either --etcd-servers or --data-dir"),
            (
                |flags| (flags.stores_protobuf, flags.etcd_servers) = (true, vec!["http://a".to_string()]),
                "--storage-media-type: objects are stored in etcd as application/json",
            ),
            (|flags| flags.tls_cert_file = Some("a".into()), "--tls-cert-file and --tls-private-key-file must be set"),
            (|flags| flags.etcd_key_file = Some("a".into()), "--etcd-certfile and --etcd-keyfile must be set"),
            (|flags| flags.etcd_servers = vec!["http://a".to_string()], "--client-ca-file, or --data-dir"),
        ];
        for (change, want) in cases {
            let mut flags = Flags::default();
            change(&mut flags);
            let text = flags_checked(&flags, false).err().map(|error| error.describe()).unwrap_or_default();
            assert!(text.contains(want), "{text}");
        }
    }
}
