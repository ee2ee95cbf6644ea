//! What `tiphys check` reads from a machine.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cgroup::Hierarchies;
use network::nft::Nft;

use crate::error::{Error, Result};

/// The port of the kubelet.
const KUBELET: u16 = 10250;
/// Writes whose median is the time of a sync.
const SYNCS: usize = 9;

/// What is known of a machine.
pub(super) struct Facts {
    pub(super) is_root: bool,
    pub(super) release: String,
    pub(super) kernel: Option<(u32, u32)>,
    /// The version of cgroups; None without any.
    pub(super) cgroups: Option<&'static str>,
    pub(super) controllers: Vec<String>,
    pub(super) has_overlay: bool,
    pub(super) nftables: std::result::Result<(), network::netlink::Error>,
    /// Available bytes.
    pub(super) memory: u64,
    /// Free bytes of the disk.
    pub(super) disk: u64,
    pub(super) is_writable: bool,
    pub(super) sync: Option<Duration>,
    /// Seconds since 1970.
    pub(super) now: u64,
    pub(super) api_port: PortUse,
    pub(super) kubelet_port: PortUse,
    /// Processes of other kubelets.
    pub(super) kubelets: Vec<u32>,
    /// Configurations of other pod networks.
    pub(super) cni: Vec<String>,
}

/// Whether a port can be listened on.
pub(super) enum PortUse {
    Free(SocketAddr),
    Taken(SocketAddr),
    Unusable(SocketAddr, String),
}

impl Facts {
    pub(super) fn collect(data_dir: &Path, listen: SocketAddr) -> Result<Facts> {
        let release = read("/proc/sys/kernel/osrelease");
        let stat = rustix::fs::statvfs(data_dir).map_err(|error| Error::file(data_dir)(error.into()))?;
        let sync = measure_sync(data_dir);
        let (cgroups, controllers) = cgroups();
        Ok(Facts {
            is_root: rustix::process::geteuid().is_root(),
            kernel: version(&release),
            release,
            cgroups,
            controllers,
            has_overlay: read("/proc/filesystems").lines().any(|line| line.trim_end().ends_with("\toverlay")),
            nftables: Nft::open().map(drop),
            memory: available_memory(&read("/proc/meminfo")),
            disk: stat.f_bavail * stat.f_frsize,
            is_writable: sync.is_some(),
            sync,
            now: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            api_port: port(listen),
            kubelet_port: port(SocketAddr::from((Ipv4Addr::UNSPECIFIED, KUBELET))),
            kubelets: kubelets(),
            cni: configurations(Path::new("/etc/cni/net.d")),
        })
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_string()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn available_memory(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

fn cgroups() -> (Option<&'static str>, Vec<String>) {
    let Ok(hierarchies) = Hierarchies::detect() else { return (None, Vec::new()) };
    if hierarchies.unified_only() {
        let controllers = read("/sys/fs/cgroup/cgroup.controllers");
        return (Some("version 2"), controllers.split_whitespace().map(str::to_string).collect());
    }
    let enabled = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.last() == Some(&"1")).then(|| words[0].to_string())
    };
    (Some("version 1"), read("/proc/cgroups").lines().skip(1).filter_map(enabled).collect())
}

/// The median of some synced writes; None if the directory cannot be written to.
fn measure_sync(dir: &Path) -> Option<Duration> {
    let path = dir.join(format!(".tiphys-check-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    let mut times: Vec<Duration> = (0..SYNCS)
        .filter_map(|_| {
            let started = Instant::now();
            file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).ok().map(|()| started.elapsed())
        })
        .collect();
    let _ = fs::remove_file(&path);
    times.sort();
    times.get(times.len() / 2).copied()
}

fn port(address: SocketAddr) -> PortUse {
    match TcpListener::bind(address) {
        Ok(_) => PortUse::Free(address),
        Err(error) if error.kind() == ErrorKind::AddrInUse => PortUse::Taken(address),
        Err(error) => PortUse::Unusable(address, error.to_string()),
    }
}

/// Processes whose program is a kubelet.
fn kubelets() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| read(&format!("/proc/{pid}/comm")) == "kubelet")
        .collect();
    pids.sort_unstable();
    pids
}

fn configurations(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end)))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.15+"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
        assert_eq!(available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), 2 << 20);
        assert_eq!(available_memory(""), 0);
    }

    #[test]
    fn ports_and_disks_are_tried() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address");
        assert!(matches!(port(address), PortUse::Taken(found) if found == address));
        drop(taken);
        assert!(matches!(port(SocketAddr::from(([192, 0, 2, 1], 1))), PortUse::Unusable(..)));
        let dir = tempfile::tempdir().expect("a directory");
        assert!(measure_sync(dir.path()).is_some());
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "nothing is left");
        assert!(measure_sync(&dir.path().join("none")).is_none());
        fs::write(dir.path().join("10-flannel.conflist"), "").expect("a file");
        fs::write(dir.path().join("README"), "").expect("a file");
        assert_eq!(configurations(dir.path()), ["10-flannel.conflist"]);
    }
}
