//! Translates a container into a configuration of the OCI runtime specification, for OCI runtimes such as runc and crun.
//!
//! The shim prepares the mounts that only it can open, and the configuration binds them from there.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::capabilities;
use crate::error::{Result, refused};
use crate::spec::{ContainerSpec, DeviceRule, MountSpec, PidMode, Propagation, Source};

/// The context of a container when the shim runs the OCI runtime.
pub(crate) struct ContainerContext<'a> {
    /// Contains `rootfs`, and a directory for each prepared mount.
    pub bundle: &'a Path,
    pub namespaces: &'a Namespaces,
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
    pub home: &'a str,
}

/// The files of the namespaces that the container joins; None if it does not join one.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    pub network: Option<PathBuf>,
    pub uts: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub pid: Option<PathBuf>,
}

pub(crate) fn config(spec: &ContainerSpec, context: &ContainerContext) -> Result<Value> {
    if spec.process.terminal {
        return refused("a terminal is not supported with a RuntimeClass handler");
    }
    if spec.userns.is_some() {
        return refused("a user namespace is not supported with a RuntimeClass handler");
    }
    if spec.process.seccomp.is_some() {
        // The profile is compiled for the built-in runtime. Running without it would be less secure than requested.
        return refused("seccomp profiles are not supported with a RuntimeClass handler");
    }
    let mounts = spec.mounts.iter().enumerate().map(|(n, mount)| mount_json(n, mount, context)).collect::<Vec<_>>();
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": process(spec, context),
        "root": {"path": "rootfs", "readonly": spec.root.readonly},
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces(spec, context),
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

fn process(spec: &ContainerSpec, context: &ContainerContext) -> Value {
    let process = &spec.process;
    let sets = &process.capabilities;
    let mut env = process.env.clone();
    if !env.iter().any(|e| e.starts_with("HOME=")) {
        env.push(format!("HOME={}", context.home));
    }
    let mut value = json!({
        "args": process.args,
        "env": env,
        "cwd": process.cwd,
        "user": {"uid": context.uid, "gid": context.gid, "additionalGids": context.groups},
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

fn namespaces(spec: &ContainerSpec, context: &ContainerContext) -> Vec<Value> {
    let known = context.namespaces;
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

/// The directory in the bundle of a mount that the shim has prepared.
pub(crate) fn prepared_directory(number: usize) -> String {
    format!("mount-{number}")
}

fn mount_json(number: usize, mount: &MountSpec, context: &ContainerContext) -> Value {
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
            bound(context.bundle.join(prepared_directory(number)).to_string_lossy().into_owned(), options)
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
    fn joins_the_namespaces_of_the_pod() {
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
        let context = ContainerContext {
            bundle: Path::new("/b"),
            namespaces: &namespaces,
            uid: 1,
            gid: 2,
            groups: &[3],
            home: "/h",
        };
        let config = config(&spec, &context).unwrap();
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
    fn refuses_unsupported_features() {
        let namespaces = Namespaces::default();
        let context = ContainerContext {
            bundle: Path::new("/b"),
            namespaces: &namespaces,
            uid: 0,
            gid: 0,
            groups: &[],
            home: "/",
        };
        let mut spec = ContainerSpec::default();
        spec.process.terminal = true;
        assert!(config(&spec, &context).unwrap_err().to_string().contains("terminal"));
        spec.process.terminal = false;
        spec.process.seccomp = Some("/x".into());
        assert!(config(&spec, &context).unwrap_err().to_string().contains("seccomp"));
    }
}
