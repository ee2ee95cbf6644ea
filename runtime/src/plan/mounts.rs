//! The mounts of a container, in order.

use std::path::PathBuf;

use cri::{Mount, MountPropagation};

use super::container::ContainerInput;
use super::maps;
use crate::error::{Result, refused};
use crate::spec::{IdMaps, MountOptions, MountSpec, Propagation, Source};

const RESTRICTED: MountOptions = MountOptions { nosuid: true, nodev: true, noexec: true };

fn kernel(target: &str, kind: &str, options: &[(&str, &str)], flags: MountOptions) -> MountSpec {
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    plain(target, Source::Kernel { kind: kind.into(), options }, flags)
}

fn plain(target: &str, source: Source, options: MountOptions) -> MountSpec {
    MountSpec {
        target: target.into(),
        source,
        readonly: false,
        recursive_readonly: false,
        options,
        propagation: Propagation::Private,
        idmap: None,
    }
}

pub(super) fn mounts(input: &ContainerInput, privileged: bool) -> Result<Vec<MountSpec>> {
    let requested = &input.config.mounts;
    let covered = |target: &str| requested.iter().any(|m| m.container_path.trim_end_matches('/') == target);
    let mut list = kernel_mounts(privileged);
    list.retain(|mount| !covered(&mount.target));
    for (target, source) in &input.sandbox_files {
        if !covered(target) {
            let mut file = plain(target, Source::Bind(source.clone()), MountOptions::default());
            file.readonly = input.context().readonly_rootfs;
            list.push(file);
        }
    }
    let mut own = requested.iter().map(|mount| mount_of(mount, input)).collect::<Result<Vec<_>>>()?;
    // A parent has to be mounted before its children.
    own.sort_by_key(|mount| mount.target.split('/').filter(|part| !part.is_empty()).count());
    list.extend(own);
    Ok(list)
}

fn kernel_mounts(privileged: bool) -> Vec<MountSpec> {
    let dev = MountOptions { nosuid: true, ..MountOptions::default() };
    let pts = MountOptions { nosuid: true, noexec: true, nodev: false };
    let pts_options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5")];
    let mut list = vec![
        kernel("/proc", "proc", &[], RESTRICTED),
        kernel("/dev", "tmpfs", &[("mode", "755"), ("size", "65536k")], dev),
        kernel("/dev/pts", "devpts", &pts_options, pts),
        plain("/dev/shm", Source::Shm, RESTRICTED),
        kernel("/dev/mqueue", "mqueue", &[], RESTRICTED),
        kernel("/sys", "sysfs", &[], RESTRICTED),
        plain("/sys/fs/cgroup", Source::Cgroup, RESTRICTED),
    ];
    for mount in list.iter_mut().filter(|m| m.target.starts_with("/sys")) {
        mount.readonly = !privileged;
    }
    list
}

fn mount_of(mount: &Mount, input: &ContainerInput) -> Result<MountSpec> {
    let target = &mount.container_path;
    let field = || format!("mounts[container_path={target:?}]");
    if !target.starts_with('/') {
        return refused(format!("{}: the path is not absolute", field()));
    }
    if target.split('/').all(|part| part.is_empty() || part == ".") {
        return refused(format!("{}: the root file system cannot be replaced by a mount", field()));
    }
    if mount.selinux_relabel && input.host.selinux {
        return refused(format!("{}: SELinux relabelling is not supported", field()));
    }
    let propagation = match mount.propagation() {
        MountPropagation::Private => Propagation::Private,
        MountPropagation::HostToContainer => Propagation::HostToContainer,
        MountPropagation::Bidirectional => Propagation::Bidirectional,
    };
    if mount.recursive_read_only && (!mount.readonly || propagation != Propagation::Private) {
        return refused(format!("{}: recursive_read_only needs readonly and private propagation", field()));
    }
    let source = source(mount, input).map_err(|e| crate::error::Error::Refused(format!("{}: {e}", field())))?;
    let image = matches!(source, Source::Image { .. });
    Ok(MountSpec {
        target: target.clone(),
        source,
        readonly: mount.readonly || image,
        recursive_readonly: mount.recursive_read_only,
        options: options(mount)?,
        propagation,
        idmap: idmap(mount)?,
    })
}

fn source(mount: &Mount, input: &ContainerInput) -> Result<Source> {
    match (&mount.image, mount.host_path.is_empty()) {
        (Some(_), false) => refused("image and host_path are mutually exclusive"),
        (Some(image), true) => match input.image_layers.get(&image.image) {
            Some(lower) => Ok(Source::Image { lower: lower.clone(), sub_path: mount.image_sub_path.clone() }),
            None => refused(format!("image {:?} is not present", image.image)),
        },
        (None, true) => refused("host_path is empty"),
        (None, false) => Ok(Source::Bind(PathBuf::from(&mount.host_path))),
    }
}

fn options(mount: &Mount) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    for option in &mount.mount_options {
        match option.as_str() {
            "nosuid" => options.nosuid = true,
            "nodev" => options.nodev = true,
            "noexec" => options.noexec = true,
            "suid" => options.nosuid = false,
            "dev" => options.nodev = false,
            "exec" => options.noexec = false,
            "rbind" | "bind" => {}
            other => {
                return refused(format!(
                    "mounts[container_path={:?}]: option {other:?} is not supported",
                    mount.container_path
                ));
            }
        }
    }
    Ok(options)
}

fn idmap(mount: &Mount) -> Result<Option<IdMaps>> {
    match (mount.uid_mappings.is_empty(), mount.gid_mappings.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(IdMaps { uids: maps(&mount.uid_mappings), gids: maps(&mount.gid_mappings) })),
        _ => refused(format!("mounts[container_path={:?}]: uids and gids must both be mapped", mount.container_path)),
    }
}
