//! The etcd cluster of `up --servers N`: its binary, its certificates, and its members on simulated hosts. Members and
//! servers verify each other's certificates, since pods can reach the hosts.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::hosts::Program;
use stdx::backoff::Backoff;
use store::etcd::Config;
use store::etcd::maintenance::Members;

use super::host_id::{HostId, MEMBERS};
use crate::error::{Error, Result};
use crate::pki::{Pki, Subject};

/// Below the directory of the hosts.
const PKI: &str = "etcd-pki";
const CA: &str = "etcd-ca";
const CLIENT: &str = "client";
const PROGRAM: &str = "etcd";
const FLAG: &str = "--etcd-binary";
/// How long the members may take to elect a leader.
const ELECTION: Duration = Duration::from_secs(60);
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// An etcd that runs on this machine, by its absolute path.
#[derive(Debug, Clone)]
pub struct EtcdBinary(PathBuf);

impl EtcdBinary {
    /// The etcd of `--etcd-binary`, or that of `$PATH`.
    pub(crate) fn find(given: Option<&Path>) -> Result<EtcdBinary> {
        let found = match given {
            Some(path) => path.to_path_buf(),
            None => std::env::var_os("PATH").as_deref().and_then(search).ok_or_else(missing)?,
        };
        let path = std::path::absolute(&found).map_err(Error::file(&found))?;
        let wrong = |why: &dyn std::fmt::Display| Error::Flags(vec![format!("{FLAG}: {}: {why}", path.display())]);
        let output = Command::new(&path).arg("--version").output().map_err(|error| wrong(&error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match version(&text) {
            Some(version) if version >= (3, 4) => Ok(EtcdBinary(path)),
            Some((major, minor)) => Err(wrong(&format!("it is etcd {major}.{minor}; 3.4 or newer is required"))),
            None => Err(wrong(&"it is no etcd: its --version shows no version")),
        }
    }
}

fn missing() -> Error {
    let why = format!(
        "{FLAG}: several servers share an etcd cluster, and there is no `{PROGRAM}` in $PATH: install it (Debian package \
         etcd-server, or github.com/etcd-io/etcd), or name its file with {FLAG}"
    );
    Error::Flags(vec![why])
}

fn search(path: &std::ffi::OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|dir| dir.join(PROGRAM)).find(|file| file.is_file())
}

/// Of `etcd Version: 3.4.23`.
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?.trim();
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// How servers reach the members.
#[derive(Debug, Clone)]
pub(super) struct EtcdClient {
    pub(super) endpoints: Vec<String>,
    pub(super) ca: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The members, by their numbers from 1.
#[derive(Debug, Clone)]
pub(super) struct EtcdCluster {
    binary: EtcdBinary,
    pki: PathBuf,
    addresses: Vec<IpAddr>,
}

impl EtcdCluster {
    /// Creates the certificates that are missing or about to expire.
    pub(super) fn create(binary: EtcdBinary, hosts: &Path, addresses: Vec<IpAddr>) -> Result<EtcdCluster> {
        let pki = Pki::open(hosts.join(PKI))?;
        let ca = pki.ensure_ca(CA, CA)?;
        let subject = |file: String, addresses: Vec<IpAddr>| Subject {
            common_name: file.clone(),
            file,
            ca: CA,
            organization: String::new(),
            names: Vec::new(),
            addresses,
        };
        pki.leaf(&ca, &subject(CLIENT.to_string(), Vec::new()))?;
        for (at, address) in addresses.iter().enumerate() {
            pki.peer(&ca, &subject(member_file(at + 1), vec![*address, IpAddr::from([127, 0, 0, 1])]))?;
        }
        Ok(EtcdCluster { binary, pki: pki.dir().to_path_buf(), addresses })
    }

    pub(super) fn client(&self) -> EtcdClient {
        EtcdClient {
            endpoints: self.addresses.iter().map(|address| format!("https://{address}:2379")).collect(),
            ca: self.file(CA, "crt"),
            certificate: self.file(CLIENT, "crt"),
            key: self.file(CLIENT, "key"),
        }
    }

    fn file(&self, name: &str, end: &str) -> PathBuf {
        self.pki.join(format!("{name}.{end}"))
    }

    /// The program of a member. `dir` is that of its host.
    pub(super) fn program(&self, number: u32, first: &str, dir: &Path) -> Option<Program> {
        let at = number as usize;
        let address = self.addresses.get(at.checked_sub(1)?)?;
        let name = |number: u32| HostId::Member(number).name(first);
        let peer = |address: &IpAddr| format!("https://{address}:2380");
        let members = (1..=MEMBERS).zip(&self.addresses).map(|(number, ip)| format!("{}={}", name(number), peer(ip)));
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let (certificate, key) = (text(self.file(&member_file(at), "crt")), text(self.file(&member_file(at), "key")));
        let (client, ca) = (format!("https://{address}:2379"), text(self.file(CA, "crt")));
        let flags = [
            ("name", name(number)),
            ("data-dir", text(dir.join(PROGRAM))),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer(address)),
            ("initial-advertise-peer-urls", peer(address)),
            ("initial-cluster", members.collect::<Vec<_>>().join(",")),
            ("cert-file", certificate.clone()),
            ("key-file", key.clone()),
            ("trusted-ca-file", ca.clone()),
            ("client-cert-auth", "true".to_string()),
            ("peer-cert-file", certificate),
            ("peer-key-file", key),
            ("peer-trusted-ca-file", ca),
            ("peer-client-cert-auth", "true".to_string()),
            ("logger", "zap".to_string()),
        ];
        let flags = flags.map(|(name, value)| format!("--{name}={value}"));
        Some(Program::Other(self.binary.0.clone(), flags.to_vec()))
    }
}

fn member_file(number: usize) -> String {
    format!("member-{number}")
}

impl EtcdClient {
    /// Waits until the members have a leader.
    pub(super) async fn wait_for_leader(&self) -> Result<()> {
        let mut config = Config::new(self.endpoints.clone());
        config.timeout = Duration::from_secs(2);
        (config.ca_file, config.cert_file, config.key_file) =
            (Some(self.ca.clone()), Some(self.certificate.clone()), Some(self.key.clone()));
        let members = Members::new(&config)?;
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let elected = async {
            while !members.status().await.iter().any(|(_, status)| status.as_ref().is_ok_and(|status| status.is_leader))
            {
                tokio::time::sleep(backoff.next_pause()).await;
            }
        };
        let late = |_| Error::Node("the members of etcd have not elected a leader: see their logs".to_string());
        tokio::time::timeout(ELECTION, elected).await.map_err(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_checked() {
        assert_eq!(version("etcd Version: 3.4.23\nGit SHA: Not provided\n"), Some((3, 4)));
        assert_eq!(version("etcd Version: 3.5.0-rc.1\n"), Some((3, 5)));
        assert_eq!(version("kubectl v1\n"), None);
    }

    #[test]
    fn an_etcd_is_required() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(search(dir.path().as_os_str()), None);
        let why = missing().describe();
        assert!(why.contains("--etcd-binary") && why.contains("$PATH"), "{why}");
        let refused = |path: &str| EtcdBinary::find(Some(Path::new(path))).expect_err("refused").describe();
        assert!(refused("/bin/true").contains("--etcd-binary: /bin/true: it is no etcd"));
        assert!(refused("/no/etcd").contains("--etcd-binary: /no/etcd: "));
    }

    #[test]
    fn members_verify_certificates() {
        let dir = tempfile::tempdir().expect("a directory");
        let addresses = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last])).to_vec();
        let binary = EtcdBinary("/usr/bin/etcd".into());
        let cluster = EtcdCluster::create(binary, dir.path(), addresses).expect("certificates");
        let Some(Program::Other(path, flags)) = cluster.program(2, "node", Path::new("/d")) else {
            panic!("a program")
        };
        assert_eq!(path, Path::new("/usr/bin/etcd"));
        for want in [
            "--name=node-etcd-2",
            "--listen-client-urls=https://10.0.0.2:2379",
            "--initial-cluster=node-etcd-1=https://10.0.0.1:2380,node-etcd-2=https://10.0.0.2:2380,\
             node-etcd-3=https://10.0.0.3:2380",
            "--client-cert-auth=true",
            "--peer-client-cert-auth=true",
        ] {
            assert!(flags.iter().any(|flag| flag == want), "{want}: {flags:?}");
        }
        assert!(cluster.program(4, "node", Path::new("/d")).is_none());
        assert!(cluster.client().key.exists());
    }
}
