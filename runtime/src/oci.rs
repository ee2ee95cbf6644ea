//! A container as the OCI's runtime specification has it, for programs that make containers by it: runc, crun, ...
//!
//! Only what those need is different from what this runtime does itself: the mounts that only the shim can open are
//! put where the program finds them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::capabilities;
use crate::error::{Result, refused};
use crate::spec::{ContainerSpec, DeviceRule, MountSpec, PidMode, Propagation, Source};

/// What the shim knows when it starts the program.
pub struct Place<'a> {
    /// Holds `rootfs`, and a directory for each mount that is put there.
    pub bundle: &'a Path,
    pub namespaces: &'a Namespaces,
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
    pub home: &'a str,
}

/// Files of the namespaces that the container joins; one that is missing here is not joined.
#[derive(Debug, Default)]
pub struct Namespaces {
    pub network: Option<PathBuf>,
    pub uts: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub pid: Option<PathBuf>,
}

pub fn config(spec: &ContainerSpec, place: &Place) -> Result<Value> {
    if spec.process.terminal {
        return refused("a terminal is not supported with a RuntimeClass handler");
    }
    if spec.userns.is_some() {
        return refused("a user namespace is not supported with a RuntimeClass handler");
    }
    if spec.process.seccomp.is_some() {
        // The profile is compiled for this runtime's own hands; running without it would be less safe than asked.
        return refused("seccomp profiles are not supported with a RuntimeClass handler");
    }
    let mounts = spec.mounts.iter().enumerate().map(|(n, mount)| mount_of(n, mount, place)).collect::<Vec<_>>();
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": process(spec, place),
        "root": {"path": "rootfs", "readonly": spec.root.readonly},
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces(spec, place),
            "cgroupsPath": spec.cgroup.path,
            "resources": resources(spec),
            "maskedPaths": spec.masked_paths,
            "readonlyPaths": spec.readonly_paths,
            "devices": spec.devices.iter().map(|d| json!({
                "path": d.path, "type": d.kind, "major": d.major, "minor": d.minor,
                "fileMode": d.mode, "uid": d.uid, "gid": d.gid,
            })).collect::<Vec<_>>(),
        },
    }))
}

fn process(spec: &ContainerSpec, place: &Place) -> Value {
    let process = &spec.process;
    let sets = &process.capabilities;
    let mut env = process.env.clone();
    if !env.iter().any(|e| e.starts_with("HOME=")) {
        env.push(format!("HOME={}", place.home));
    }
    let mut value = json!({
        "args": process.args,
        "env": env,
        "cwd": process.cwd,
        "user": {"uid": place.uid, "gid": place.gid, "additionalGids": place.groups},
        "noNewPrivileges": process.no_new_privs,
        "capabilities": {
            "bounding": capabilities::names(sets.bounding),
            "permitted": capabilities::names(sets.permitted),
            "effective": capabilities::names(sets.permitted),
            "inheritable": capabilities::names(sets.inheritable),
            "ambient": capabilities::names(sets.ambient),
        },
    });
    if let Some(profile) = &process.apparmor {
        value["apparmorProfile"] = json!(profile);
    }
    if let Some(label) = &process.selinux {
        value["selinuxLabel"] = json!(label);
    }
    value
}

fn namespaces(spec: &ContainerSpec, place: &Place) -> Vec<Value> {
    let known = place.namespaces;
    let joined = [("network", &known.network), ("uts", &known.uts), ("ipc", &known.ipc), ("pid", &known.pid)];
    let mut list = vec![json!({"type": "mount"})];
    list.extend(joined.iter().filter_map(|(kind, path)| Some(json!({"type": kind, "path": path.as_ref()?}))));
    if spec.pid == PidMode::Container {
        list.push(json!({"type": "pid"}));
    }
    if spec.cgroup_namespace {
        list.push(json!({"type": "cgroup"}));
    }
    list
}

/// Where a mount that only the shim can open is put for the program.
pub fn prepared(number: usize) -> String {
    format!("mount-{number}")
}

fn mount_of(number: usize, mount: &MountSpec, place: &Place) -> Value {
    let mut options: Vec<String> = Vec::new();
    for (wanted, option) in [
        (mount.options.nosuid, "nosuid"),
        (mount.options.nodev, "nodev"),
        (mount.options.noexec, "noexec"),
        (mount.readonly, "ro"),
        (mount.recursive_readonly, "rro"),
    ] {
        if wanted {
            options.push(option.into());
        }
    }
    let bound = |source: String, mut options: Vec<String>| {
        let propagation = match mount.propagation {
            Propagation::Private => "rprivate",
            Propagation::HostToContainer => "rslave",
            Propagation::Bidirectional => "rshared",
        };
        options.extend(["rbind".to_string(), propagation.to_string()]);
        json!({"destination": mount.target, "type": "bind", "source": source, "options": options})
    };
    match &mount.source {
        Source::Bind(path) => bound(path.to_string_lossy().into_owned(), options),
        Source::Image { .. } | Source::Shm => {
            bound(place.bundle.join(prepared(number)).to_string_lossy().into_owned(), options)
        }
        Source::Cgroup => {
            json!({"destination": mount.target, "type": "cgroup", "source": "cgroup", "options": options})
        }
        Source::Kernel { kind, options: own } => {
            let own = own.iter().map(|(k, v)| if v.is_empty() { k.clone() } else { format!("{k}={v}") });
            options.extend(own);
            json!({"destination": mount.target, "type": kind, "source": kind, "options": options})
        }
    }
}

fn resources(spec: &ContainerSpec) -> Value {
    let limits = &spec.cgroup.resources;
    let rule = |r: &DeviceRule| json!({"allow": r.allow, "type": r.kind, "major": r.major, "minor": r.minor, "access": r.access});
    let without_null = |value: Value| match value {
        Value::Object(map) => Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).collect()),
        other => other,
    };
    json!({
        "devices": spec.device_rules.iter().map(|r| without_null(rule(r))).collect::<Vec<_>>(),
        "memory": without_null(json!({"limit": limits.memory, "swap": limits.memory_swap})),
        "cpu": without_null(json!({
            "shares": limits.cpu_shares, "quota": limits.cpu_quota, "period": limits.cpu_period,
            "cpus": limits.cpuset_cpus, "mems": limits.cpuset_mems,
        })),
        "unified": limits.unified,
        "hugepageLimits": limits.hugepages.iter()
            .map(|(size, limit)| json!({"pageSize": size, "limit": limit})).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{MountOptions, ProcessSpec};

    fn mount(target: &str, source: Source) -> MountSpec {
        MountSpec {
            target: target.into(),
            source,
            readonly: true,
            recursive_readonly: false,
            options: MountOptions::default(),
            propagation: Propagation::Private,
            idmap: None,
        }
    }

    #[test]
    fn what_is_the_pods_is_joined() {
        let spec = ContainerSpec {
            network: true,
            ipc: true,
            pid: PidMode::Pod,
            mounts: vec![mount("/data", Source::Bind("/host".into())), mount("/dev/shm", Source::Shm)],
            process: ProcessSpec { args: vec!["sh".into()], ..Default::default() },
            ..Default::default()
        };
        let of = |kind: &str| Some(PathBuf::from(format!("/proc/7/fd/{kind}")));
        let namespaces = Namespaces { network: of("net"), uts: of("uts"), ipc: of("ipc"), pid: of("pid") };
        let place =
            Place { bundle: Path::new("/b"), namespaces: &namespaces, uid: 1, gid: 2, groups: &[3], home: "/h" };
        let config = config(&spec, &place).unwrap();
        let text = config.to_string();
        for expected in [
            r#"{"path":"/proc/7/fd/net","type":"network"}"#,
            r#"{"path":"/proc/7/fd/pid","type":"pid"}"#,
            r#""options":["ro","rbind","rprivate"],"source":"/host""#,
            r#""source":"/b/mount-1""#,
            r#""additionalGids":[3],"gid":2,"uid":1"#,
            r#""env":["HOME=/h"]"#,
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn what_it_cannot_carry_is_refused() {
        let namespaces = Namespaces::default();
        let place = Place { bundle: Path::new("/b"), namespaces: &namespaces, uid: 0, gid: 0, groups: &[], home: "/" };
        let mut spec = ContainerSpec::default();
        spec.process.terminal = true;
        assert!(config(&spec, &place).unwrap_err().to_string().contains("terminal"));
        spec.process.terminal = false;
        spec.process.seccomp = Some("/x".into());
        assert!(config(&spec, &place).unwrap_err().to_string().contains("seccomp"));
    }
}
