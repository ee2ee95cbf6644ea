//! The life of a pod of one container, as a kubelet drives it: start, exec, removal.

use std::path::Path;
use std::time::{Duration, Instant};

use cri::RuntimeService;

use super::daemon::Daemon;
use crate::Result;
use crate::inside::CGROUP;

/// Distinguishes the container's own process from those of its runtime.
pub(crate) const ARGUMENT_ZERO: &str = "/pause";

pub(super) struct Pod {
    sandbox: String,
    container: String,
}

/// A pod that runs, and how long it took.
pub(super) async fn start(daemon: &Daemon, image: &str, logs: &Path, name: &str) -> Result<(Pod, Duration)> {
    let config = sandbox_config(logs, name);
    // The client of the CRI creates the directory of logs.
    std::fs::create_dir_all(logs.join(name))?;
    let began = Instant::now();
    let request = cri::RunPodSandboxRequest { config: Some(config.clone()), ..cri::RunPodSandboxRequest::default() };
    let sandbox = daemon.runtime.run_pod_sandbox(request).await?.pod_sandbox_id;
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container_config(image)),
        sandbox_config: Some(config),
    };
    let container = daemon.runtime.create_container(request).await?.container_id;
    let request = cri::StartContainerRequest { container_id: container.clone() };
    daemon.runtime.start_container(request).await?;
    Ok((Pod { sandbox, container }, began.elapsed()))
}

/// Stops and removes it. The process has no handler, so that the grace is never used up by a runtime of its own
/// will: a kubelet that deletes without grace sends 0.
pub(super) async fn remove(daemon: &Daemon, pod: &Pod) -> Result<Duration> {
    let began = Instant::now();
    let runtime = &daemon.runtime;
    let container_id = pod.container.clone();
    runtime.stop_container(cri::StopContainerRequest { container_id: container_id.clone(), timeout: 0 }).await?;
    runtime.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
    runtime.remove_container(cri::RemoveContainerRequest { container_id }).await?;
    runtime.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: pod.sandbox.clone() }).await?;
    Ok(began.elapsed())
}

/// A command in the container that ends at once.
pub(super) async fn exec(daemon: &Daemon, pod: &Pod) -> Result<Duration> {
    let cmd = vec![ARGUMENT_ZERO.to_string(), "end".to_string()];
    let began = Instant::now();
    let request = cri::ExecSyncRequest { container_id: pod.container.clone(), cmd, timeout: 30 };
    let answer = daemon.runtime.exec_sync(request).await?;
    if answer.exit_code != 0 {
        return Err(format!("a command ended with {}", answer.exit_code).into());
    }
    Ok(began.elapsed())
}

fn sandbox_config(logs: &Path, name: &str) -> cri::PodSandboxConfig {
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: name.to_string(),
            uid: format!("uid-{name}"),
            namespace: "bench".to_string(),
            attempt: 0,
        }),
        hostname: name.to_string(),
        log_directory: logs.join(name).display().to_string(),
        dns_config: Some(cri::DNSConfig { servers: vec!["10.96.0.10".to_string()], ..cri::DNSConfig::default() }),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: CGROUP.to_string(),
            security_context: Some(cri::LinuxSandboxSecurityContext::default()),
            ..cri::LinuxPodSandboxConfig::default()
        }),
        ..cri::PodSandboxConfig::default()
    }
}

fn container_config(image: &str) -> cri::ContainerConfig {
    let resources = cri::LinuxContainerResources {
        cpu_shares: 102,
        cpu_period: 100_000,
        cpu_quota: 50_000,
        memory_limit_in_bytes: 64 << 20,
        oom_score_adj: 999,
        ..cri::LinuxContainerResources::default()
    };
    let profile = cri::SecurityProfile { profile_type: cri::ProfileType::RuntimeDefault as i32, ..Default::default() };
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "main".to_string(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: image.to_string(), ..cri::ImageSpec::default() }),
        log_path: "main.log".to_string(),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources),
            security_context: Some(cri::LinuxContainerSecurityContext {
                seccomp: Some(profile),
                no_new_privs: true,
                ..cri::LinuxContainerSecurityContext::default()
            }),
        }),
        ..cri::ContainerConfig::default()
    }
}
