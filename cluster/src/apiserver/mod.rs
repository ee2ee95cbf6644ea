//! `kube-apiserver`: the API server alone, told by upstream's flags what to do.

pub mod flags;
mod values;

use std::fs;
use std::net::{IpAddr, SocketAddr};

use crate::boot::{self, Engine, Plan, Running};
use crate::error::{Error, Result};
use crate::pki::Pair;
use crate::up;
use flags::Flags;

/// Starts the server. Where `--data-dir` gives it an authority of its own, the administrator's kubeconfig
/// is written there too.
pub async fn run(flags: Flags) -> Result<Running> {
    let own = own_certificates(&flags)?;
    let plan = plan(flags_checked(&flags, own.is_some())?, own.as_ref())?;
    let running = boot::start(plan, &|step| tracing::info!(step, "starting")).await?;
    if let (Some(own), Some(dir)) = (&own, &flags.data_dir) {
        up::write_kubeconfig(&dir.join("kubeconfig"), running.address, &own.authority, &own.admin)?;
    }
    Ok(running)
}

/// Certificates of the data directory, where the flags leave some of them open.
fn own_certificates(flags: &Flags) -> Result<Option<up::Certificates>> {
    let complete = flags.tls_cert_file.is_some() && flags.client_ca_file.is_some();
    match &flags.data_dir {
        Some(dir) if !complete => up::certificates(dir, flags.bind_address, &config(flags)).map(Some),
        _ => Ok(None),
    }
}

/// What must hold between flags.
fn flags_checked(flags: &Flags, own: bool) -> Result<&Flags> {
    let mut errors = Vec::new();
    if flags.etcd_servers.is_empty() && flags.data_dir.is_none() {
        errors.push("either --etcd-servers or --data-dir must say where objects are kept".to_string());
    }
    if flags.tls_cert_file.is_some() != flags.tls_private_key_file.is_some() {
        errors.push("--tls-cert-file and --tls-private-key-file belong together".to_string());
    }
    if flags.etcd_cert_file.is_some() != flags.etcd_key_file.is_some() {
        errors.push("--etcd-certfile and --etcd-keyfile belong together".to_string());
    }
    if flags.tls_cert_file.is_none() && !own {
        errors.push("--tls-cert-file and --tls-private-key-file, or --data-dir, must be given".to_string());
    }
    if flags.client_ca_file.is_none() && !own {
        errors.push("--client-ca-file, or --data-dir, must be given: nobody could come in".to_string());
    }
    if errors.is_empty() { Ok(flags) } else { Err(Error::Flags(errors)) }
}

fn plan(flags: &Flags, own: Option<&up::Certificates>) -> Result<Plan> {
    let serving = match (&flags.tls_cert_file, &flags.tls_private_key_file, own) {
        (Some(certificate), Some(key), _) => Pair::read(certificate, key)?,
        (_, _, own) => own.map(|own| own.serving.clone()).unwrap_or_default(),
    };
    let client_authorities = match (&flags.client_ca_file, own) {
        (Some(path), _) => fs::read_to_string(path).map_err(Error::file(path))?,
        (None, own) => own.map(|own| own.authority.certificate.clone()).unwrap_or_default(),
    };
    let mut config = config(flags);
    let engine = match &flags.data_dir {
        Some(dir) if flags.etcd_servers.is_empty() => Engine::Embedded(dir.join("store")),
        _ => {
            // The engine puts the prefix before every key itself.
            config.storage_prefix = String::new();
            Engine::Etcd(Box::new(etcd(flags)))
        }
    };
    let listen = SocketAddr::new(flags.bind_address, flags.secure_port);
    Ok(Plan { engine, listen, serving, client_authorities, signing_key: None, config })
}

fn config(flags: &Flags) -> server::Config {
    let mut config = flags.config.clone();
    config.advertise_address = flags.advertise_address.unwrap_or_else(|| advertised(flags.bind_address));
    config
}

/// The address of this machine towards others, where it listens on all; no packet is sent for that.
fn advertised(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() {
        return bind;
    }
    let outward = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        // An address that is reserved for documentation: any that is not local will do.
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    outward().unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

fn etcd(flags: &Flags) -> store::etcd::Config {
    let mut config = store::etcd::Config::new(flags.etcd_servers.clone());
    config.prefix.clone_from(&flags.etcd_prefix);
    config.ca_file.clone_from(&flags.etcd_ca_file);
    config.cert_file.clone_from(&flags.etcd_cert_file);
    config.key_file.clone_from(&flags.etcd_key_file);
    config.compact_interval = Some(flags.etcd_compaction_interval).filter(|interval| !interval.is_zero());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_need_each_other_are_named() {
        let cases: [(fn(&mut Flags), &str); 4] = [
            (|_| {}, "either --etcd-servers or --data-dir"),
            (|flags| flags.tls_cert_file = Some("a".into()), "--tls-cert-file and --tls-private-key-file belong"),
            (|flags| flags.etcd_key_file = Some("a".into()), "--etcd-certfile and --etcd-keyfile belong"),
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
