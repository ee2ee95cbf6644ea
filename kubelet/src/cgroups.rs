//! The control groups of pods: one a class of service, below it one a pod.

use std::io;
use std::path::{Path, PathBuf};

use api::Tree;

use crate::config::{CgroupDriver, Config};
use crate::make::resources::{Class, class};
use crate::pod;

/// The control group that a pod's containers are in, as the runtime is told.
pub fn pod_parent(config: &Config, pod: &Tree) -> String {
    let uid = match pod::annotation(pod, pod::HASH) {
        "" => pod::uid(pod),
        hash => hash,
    };
    let class = match class(pod) {
        Class::Guaranteed => None,
        Class::Burstable => Some("burstable"),
        Class::BestEffort => Some("besteffort"),
    };
    match config.cgroup_driver {
        CgroupDriver::Cgroupfs => {
            let root = config.cgroup_root.trim_end_matches('/');
            let class = class.map_or(String::new(), |class| format!("/{class}"));
            format!("{root}/kubepods{class}/pod{uid}")
        }
        CgroupDriver::Systemd => {
            let class = class.map_or(String::new(), |class| format!("-{class}"));
            format!("kubepods{class}-pod{}.slice", uid.replace('-', "_"))
        }
    }
}

const MOUNT: &str = "/sys/fs/cgroup";

/// Where hierarchies are mounted: one, or one a controller.
fn roots() -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_path_buf()];
    }
    let entries = std::fs::read_dir(mount).into_iter().flatten().filter_map(Result::ok);
    let mut roots: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    // Controllers that are mounted together have links by their single names.
    roots.retain(|path| !path.is_symlink() && path.join("cgroup.procs").exists());
    roots
}

/// Removes the control group of a pod that has ended, in all hierarchies; what has processes stays, and is an error.
pub fn remove(config: &Config, pod: &Tree) -> io::Result<()> {
    if config.cgroup_driver == CgroupDriver::Systemd {
        return Ok(());
    }
    let path = pod_parent(config, pod);
    roots().iter().try_for_each(|root| remove_below(&root.join(path.trim_start_matches('/'))))
}

/// Folders alone: the files in them are the kernel's.
fn remove_below(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_below(&entry.path())?;
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
