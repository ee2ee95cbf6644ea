//! What `tiphys check` reads from a machine.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use network::nft::Nft;

use crate::error::{Error, Result};
use crate::machine::preflight::directory::DirectoryFacts;
use crate::machine::preflight::kernel::KernelFacts;

/// The port of the kubelet.
const KUBELET: u16 = 10250;
/// Writes whose median is the time of a sync.
const SYNCS: usize = 9;

/// What is known of a machine.
pub(super) struct Facts {
    pub(super) is_root: bool,
    pub(super) kernel: KernelFacts,
    pub(super) directory: DirectoryFacts,
    pub(super) nftables: std::result::Result<(), network::netlink::Error>,
    /// Available bytes.
    pub(super) memory: u64,
    pub(super) sync: Option<Duration>,
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
        let data_dir = existing(data_dir);
        Ok(Facts {
            is_root: rustix::process::geteuid().is_root(),
            kernel: KernelFacts::collect(),
            directory: DirectoryFacts::collect(&data_dir).map_err(|error| Error::file(&data_dir)(error.into()))?,
            nftables: Nft::open().map(drop),
            memory: available_memory(&read("/proc/meminfo")),
            sync: measure_sync(&data_dir),
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

fn available_memory(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The directory itself, or the next one above it that exists.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_path_buf()
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
        assert_eq!(existing(&dir.path().join("none/data")), dir.path());
        fs::write(dir.path().join("10-flannel.conflist"), "").expect("a file");
        fs::write(dir.path().join("README"), "").expect("a file");
        assert_eq!(configurations(dir.path()), ["10-flannel.conflist"]);
    }
}
