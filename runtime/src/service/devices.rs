//! The host devices that a container requests.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use cri::ContainerConfig;

use crate::error::{Context, Result, refused};
use crate::plan;
use crate::spec::DeviceSpec;

/// The requested host devices. A directory stands for all devices in it, and a privileged container gets all devices.
pub(super) fn devices(config: &ContainerConfig) -> Result<Vec<(DeviceSpec, String)>> {
    let mut found = Vec::new();
    for device in &config.devices {
        let access = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
        if !access.chars().all(|c| "rwm".contains(c)) {
            return refused(format!("devices[host_path={:?}]: permissions {access:?}", device.host_path));
        }
        let before = found.len();
        collect(Path::new(&device.host_path), &device.container_path, access, &mut found)?;
        if found.len() == before {
            return refused(format!("devices[host_path={:?}] is not a device", device.host_path));
        }
    }
    if plan::context(config).privileged {
        collect(Path::new("/dev"), "/dev", "rwm", &mut found)?;
    }
    Ok(found)
}

fn collect(host: &Path, seen_as: &str, access: &str, found: &mut Vec<(DeviceSpec, String)>) -> Result<()> {
    /// Directories of /dev with file systems of which the container has its own instance.
    const OWN: [&str; 4] = ["pts", "shm", "mqueue", "fd"];
    let data = fs::metadata(host).context(|| format!("looking at the device {}", host.display()))?;
    let kind = data.file_type();
    if kind.is_dir() {
        let entries = fs::read_dir(host).context(|| format!("reading {}", host.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let link = entry.file_type().is_ok_and(|t| t.is_symlink());
            if !link && !OWN.iter().any(|own| *own == name) {
                collect(&entry.path(), &format!("{seen_as}/{}", name.to_string_lossy()), access, found)?;
            }
        }
        return Ok(());
    }
    let kind = match (kind.is_char_device(), kind.is_block_device()) {
        (true, _) => "c",
        (_, true) => "b",
        _ => return Ok(()),
    };
    let device = DeviceSpec {
        path: seen_as.into(),
        kind: kind.into(),
        major: rustix::fs::major(data.rdev()),
        minor: rustix::fs::minor(data.rdev()),
        mode: data.mode() & 0o777,
        uid: data.uid(),
        gid: data.gid(),
    };
    found.push((device, access.into()));
    Ok(())
}
