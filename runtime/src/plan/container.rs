//! The spec of a container.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cri::{ContainerConfig, LinuxContainerSecurityContext, NamespaceMode, PodSandboxConfig};

use super::{Host, host_ipc, host_network, mounts, resources, sandbox_cgroup, security, userns};
use crate::container::user::{MAX_ID, check_id};
use crate::error::{Result, refused};
use crate::spec::{CgroupSpec, ContainerSpec, DeviceRule, DeviceSpec, PidMode, ProcessSpec, RootSpec, UserSpec};

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The defaults of containers from an image's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub user: String,
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub working_dir: String,
}

/// Everything that determines a container's spec, looked up in advance.
pub(crate) struct ContainerInput<'a> {
    pub id: &'a str,
    pub config: &'a ContainerConfig,
    pub sandbox: &'a PodSandboxConfig,
    pub image: &'a Defaults,
    pub host: &'a Host,
    pub root: RootSpec,
    /// Files of the sandbox that are mounted into its containers, by their paths in the container.
    pub sandbox_files: Vec<(String, PathBuf)>,
    /// The layers of images that are mounted as volumes, by the image reference of the request.
    pub image_layers: BTreeMap<String, Vec<PathBuf>>,
    /// The requested host devices with their access; for a privileged container, all devices.
    pub devices: Vec<(DeviceSpec, String)>,
    pub seccomp: Option<PathBuf>,
    pub handler: Option<PathBuf>,
}

impl ContainerInput<'_> {
    pub(crate) fn context(&self) -> LinuxContainerSecurityContext {
        context(self.config)
    }
}

pub(crate) fn context(config: &ContainerConfig) -> LinuxContainerSecurityContext {
    config.linux.as_ref().and_then(|l| l.security_context.clone()).unwrap_or_default()
}

pub(crate) fn container(input: &ContainerInput) -> Result<ContainerSpec> {
    let (config, context) = (input.config, input.context());
    if !config.cdi_devices.is_empty() {
        return refused(format!("CDI device {:?}: CDI is not supported", config.cdi_devices[0].name));
    }
    let linux = config.linux.clone().unwrap_or_default();
    let rules: Vec<_> = input.devices.iter().map(|(device, access)| rule(device, access)).collect();
    let mut devices = default_devices();
    devices.extend(input.devices.iter().map(|(device, _)| device.clone()));
    let privileged = context.privileged;
    Ok(ContainerSpec {
        id: input.id.into(),
        process: process(input, &context)?,
        root: RootSpec { readonly: context.readonly_rootfs, ..input.root.clone() },
        mounts: mounts::mounts(input, privileged)?,
        masked_paths: if privileged { vec![] } else { context.masked_paths.clone() },
        readonly_paths: if privileged { vec![] } else { context.readonly_paths.clone() },
        devices: unique(devices),
        device_rules: security::device_rules(privileged, &rules),
        pid: pid_mode(input, &context)?,
        network: !host_network(input.sandbox),
        ipc: !host_ipc(input.sandbox),
        cgroup: CgroupSpec {
            path: format!("{}/{}", sandbox_cgroup(input.sandbox), input.id),
            resources: resources(linux.resources.as_ref()),
        },
        cgroup_namespace: input.host.unified_cgroups && !privileged,
        userns: userns(input.sandbox)?,
        tty: config.tty,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        log_path: log_path(config, input.sandbox),
        handler: input.handler.clone(),
    })
}

pub(crate) fn log_path(config: &ContainerConfig, sandbox: &PodSandboxConfig) -> Option<PathBuf> {
    let requested = !sandbox.log_directory.is_empty() && !config.log_path.is_empty();
    requested.then(|| PathBuf::from(&sandbox.log_directory).join(&config.log_path))
}

fn process(input: &ContainerInput, context: &LinuxContainerSecurityContext) -> Result<ProcessSpec> {
    let config = input.config;
    let resources = config.linux.as_ref().and_then(|l| l.resources.as_ref());
    let cwd = [&config.working_dir, &input.image.working_dir].into_iter().find(|cwd| !cwd.is_empty());
    Ok(ProcessSpec {
        args: args(config, input.image)?,
        env: env(input)?,
        cwd: cwd.cloned().unwrap_or_else(|| "/".into()),
        user: user(input, context)?,
        capabilities: security::capabilities(context, input.host)?,
        no_new_privs: context.no_new_privs,
        seccomp: input.seccomp.clone(),
        apparmor: security::apparmor(context, input.host)?,
        selinux: security::selinux(context, input.host),
        rlimits: vec![],
        oom_score_adj: resources.map(|r| r.oom_score_adj.clamp(-1000, 1000) as i32),
        terminal: config.tty,
    })
}

/// A command of the container replaces the image's entrypoint and cmd; arguments alone replace only its cmd.
fn args(config: &ContainerConfig, image: &Defaults) -> Result<Vec<String>> {
    let (command, args) = match (config.command.is_empty(), config.args.is_empty()) {
        (true, true) => (&image.entrypoint, &image.cmd),
        (true, false) => (&image.entrypoint, &config.args),
        (false, _) => (&config.command, &config.args),
    };
    let all: Vec<_> = command.iter().chain(args).cloned().collect();
    if all.is_empty() {
        return refused("no command specified");
    }
    Ok(all)
}

/// The variables of the image, then the hostname, then those of the container. A later one replaces an earlier one.
fn env(input: &ContainerInput) -> Result<Vec<String>> {
    let mut env: Vec<String> = Vec::new();
    let mut set = |entry: String| {
        let name = entry.split('=').next().unwrap_or_default();
        match env.iter_mut().find(|e| e.split('=').next() == Some(name)) {
            Some(old) => *old = entry,
            None => env.push(entry),
        }
    };
    set(PATH.into());
    if input.config.tty {
        set("TERM=xterm".into());
    }
    input.image.env.iter().cloned().for_each(&mut set);
    if !input.sandbox.hostname.is_empty() {
        set(format!("HOSTNAME={}", input.sandbox.hostname));
    }
    for pair in &input.config.envs {
        match std::str::from_utf8(&pair.value) {
            Ok(value) => set(format!("{}={value}", pair.key)),
            Err(_) => return refused(format!("envs[key={:?}]: the value is not UTF-8", pair.key)),
        }
    }
    Ok(env)
}

fn user(input: &ContainerInput, context: &LinuxContainerSecurityContext) -> Result<UserSpec> {
    let id = |value: i64, field: &str| match u32::try_from(value) {
        Ok(value) => check_id(value, field),
        Err(_) => refused(format!("{field} {value} is not a valid id: ids are 0 to {MAX_ID}")),
    };
    let name = match (&context.run_as_user, context.run_as_username.as_str()) {
        (Some(uid), _) => id(uid.value, "run_as_user")?.to_string(),
        (None, "") => input.image.user.clone(),
        (None, name) => name.to_string(),
    };
    let gid = context.run_as_group.as_ref().map(|gid| id(gid.value, "run_as_group")).transpose()?;
    let groups = context.supplemental_groups.iter().map(|g| id(*g, "supplemental_groups")).collect::<Result<_>>()?;
    let merge = context.supplemental_groups_policy() == cri::SupplementalGroupsPolicy::Merge;
    Ok(UserSpec { name, gid, groups, image_groups: merge })
}

fn pid_mode(input: &ContainerInput, context: &LinuxContainerSecurityContext) -> Result<PidMode> {
    let options = context.namespace_options.clone().unwrap_or_else(|| super::namespaces(input.sandbox));
    Ok(match options.pid() {
        NamespaceMode::Pod => PidMode::Pod,
        NamespaceMode::Container => PidMode::Container,
        NamespaceMode::Node => PidMode::Node,
        NamespaceMode::Target if options.target_id.is_empty() => {
            return refused("namespace_options.target_id is empty");
        }
        NamespaceMode::Target => PidMode::Target(options.target_id),
    })
}

fn default_devices() -> Vec<DeviceSpec> {
    let device = |path: &str, major, minor| DeviceSpec {
        path: path.into(),
        kind: "c".into(),
        major,
        minor,
        mode: 0o666,
        uid: 0,
        gid: 0,
    };
    vec![
        device("/dev/null", 1, 3),
        device("/dev/zero", 1, 5),
        device("/dev/full", 1, 7),
        device("/dev/random", 1, 8),
        device("/dev/urandom", 1, 9),
        device("/dev/tty", 5, 0),
    ]
}

/// Keeps the first device of each path, so that the default devices cannot be replaced.
fn unique(devices: Vec<DeviceSpec>) -> Vec<DeviceSpec> {
    let mut seen = std::collections::BTreeSet::new();
    // These are symlinks or mounts of the container itself.
    let own = ["/dev/ptmx", "/dev/console", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
    devices.into_iter().filter(|d| !own.contains(&d.path.as_str()) && seen.insert(d.path.clone())).collect()
}

fn rule(device: &DeviceSpec, access: &str) -> DeviceRule {
    DeviceRule {
        allow: true,
        kind: device.kind.clone(),
        major: Some(device.major),
        minor: Some(device.minor),
        access: access.into(),
    }
}
