//! `tiphys up`: a whole cluster on this machine, with certificates of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use server::auth::token::Tokens;

use crate::boot::{self, Engine, Plan, Running};
use crate::error::{Error, Result};
use crate::kubeconfig;
use crate::pki::{Pair, Pki, Subject, write_private};

/// What `up` is told.
pub struct Up {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub kubeconfig: PathBuf,
    pub config: server::Config,
}

/// The certificates of a data directory.
pub struct Certificates {
    pub authority: Pair,
    pub serving: Pair,
    pub admin: Pair,
    pub tokens: Tokens,
}

/// Starts the cluster and writes the kubeconfig of its administrator.
pub async fn up(options: Up, progress: &dyn Fn(&str)) -> Result<Running> {
    progress("certificates");
    let mut config = options.config;
    config.advertise_address = advertised(options.listen.ip());
    let Certificates { authority, serving, admin, tokens } =
        certificates(&options.data_dir, options.listen.ip(), &config)?;
    let plan = Plan {
        engine: Engine::Embedded(options.data_dir.join("store")),
        listen: options.listen,
        serving,
        client_authorities: authority.certificate.clone(),
        tokens: Some(tokens),
        config,
    };
    let running = boot::start(plan, progress).await?;
    progress("kubeconfig");
    write_kubeconfig(&options.kubeconfig, running.address, &authority, &admin)?;
    Ok(running)
}

/// Those that are there, and new ones for what is missing.
pub fn certificates(data_dir: &Path, listen: IpAddr, config: &server::Config) -> Result<Certificates> {
    let pki = Pki::open(data_dir.join("pki"))?;
    let authority = pki.authority("ca", "kubernetes")?;
    // Side by side, since each of them waits for the disk when it is new.
    let (serving, admin, tokens) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| serving_certificate(&pki, &authority, listen, config));
        let admin = scope.spawn(|| pki.issue(&authority, &ADMIN));
        (joined(serving), joined(admin), pki.tokens())
    });
    Ok(Certificates { serving: serving?, admin: admin?, tokens: tokens?, authority })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The kubeconfig of the administrator, for clients of this machine.
pub fn write_kubeconfig(path: &Path, address: SocketAddr, authority: &Pair, admin: &Pair) -> Result<()> {
    let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let text = kubeconfig::write(&url, &authority.certificate, "kubernetes-admin", admin);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    write_private(path, &String::from_utf8_lossy(&text))
}

const ADMIN: Subject<'static> = Subject {
    file: "admin",
    common_name: "kubernetes-admin",
    organization: "system:masters",
    names: &[],
    addresses: &[],
};

/// Where the clients of this machine reach a server that listens here.
pub fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        // A dual-stack socket: the older family is there too.
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        other => other,
    }
}

/// Where others reach it: the address of the way out of this machine, where it listens on all or on
/// the loopback alone. Connecting a datagram socket sends nothing.
pub fn advertised(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() && !listen.is_loopback() {
        return listen;
    }
    let way_out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Reserved for documentation: any address that is not local will do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    way_out().unwrap_or_else(|| reachable(listen))
}

fn serving_certificate(pki: &Pki, authority: &Pair, listen: IpAddr, config: &server::Config) -> Result<Pair> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    addresses.extend([reachable(listen), config.advertise_address]);
    addresses.extend(config.service_cidrs.iter().filter_map(|(network, _)| first_address(*network)));
    addresses.sort_unstable();
    addresses.dedup();
    let subject = Subject {
        file: "apiserver",
        common_name: "kube-apiserver",
        organization: "",
        names: &names,
        addresses: &addresses,
    };
    pki.issue(authority, &subject)
}

/// The address of the `kubernetes` service: the first of its range.
fn first_address(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V4(v4) => Some(IpAddr::from((u32::from(v4).checked_add(1)?).to_be_bytes())),
        IpAddr::V6(v6) => Some(IpAddr::from((u128::from(v6).checked_add(1)?).to_be_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_come_back_and_follow_their_addresses() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = server::Config::default();
        let make = |listen: [u8; 4]| certificates(dir.path(), IpAddr::from(listen), &config).expect("certificates");
        let (first, again, other) = (make([127, 0, 0, 1]), make([127, 0, 0, 1]), make([10, 1, 2, 3]));
        assert_eq!(first.serving.certificate, again.serving.certificate);
        assert_eq!(first.admin.key, again.admin.key);
        assert_ne!(first.serving.certificate, other.serving.certificate);
        assert_eq!(first.authority.certificate, other.authority.certificate);
    }

    #[test]
    fn a_damaged_certificate_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = server::Config::default();
        certificates(dir.path(), IpAddr::from([127, 0, 0, 1]), &config).expect("certificates");
        std::fs::remove_file(dir.path().join("pki/ca.key")).expect("a file");
        let error = certificates(dir.path(), IpAddr::from([127, 0, 0, 1]), &config).err().expect("an error");
        assert!(error.describe().contains("pki/ca.key"), "{}", error.describe());
    }
}
