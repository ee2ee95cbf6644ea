//! Converts the runtime's state into CRI messages.

use cri::{
    ContainerAttributes, ContainerResources, ContainerState, ContainerStatus, ContainerUser, ImageSpec,
    LinuxContainerUser, LinuxPodSandboxStatus, Namespace, PodIP, PodSandbox, PodSandboxAttributes,
    PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
};

use super::records::{SandboxRecord, Stage};
use super::state::Container;
use crate::container::user::User;
use crate::plan;

pub(super) fn state_name(state: ContainerState) -> &'static str {
    match state {
        ContainerState::Created => "CONTAINER_CREATED",
        ContainerState::Running => "CONTAINER_RUNNING",
        ContainerState::Exited => "CONTAINER_EXITED",
        ContainerState::Unknown => "CONTAINER_UNKNOWN",
    }
}

/// A sandbox whose pause process has exited is not ready.
pub(super) fn sandbox_state(record: &SandboxRecord) -> PodSandboxState {
    let ready = record.stage() == Stage::Ready && record.pause > 0;
    if ready { PodSandboxState::Ready } else { PodSandboxState::Notready }
}

pub(super) fn sandbox(record: &SandboxRecord) -> PodSandbox {
    let config = record.config();
    PodSandbox {
        id: record.id.clone(),
        metadata: config.metadata,
        state: sandbox_state(record) as i32,
        created_at: record.created_at,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.handler.clone(),
    }
}

pub(super) fn sandbox_status(record: &SandboxRecord) -> PodSandboxStatus {
    let config = record.config();
    let network = record.ips.first().map(|ip| PodSandboxNetworkStatus {
        ip: ip.clone(),
        additional_ips: record.ips[1..].iter().map(|ip| PodIP { ip: ip.clone() }).collect(),
    });
    PodSandboxStatus {
        id: record.id.clone(),
        state: sandbox_state(record) as i32,
        created_at: record.created_at,
        network: Some(network.unwrap_or_default()),
        linux: Some(LinuxPodSandboxStatus { namespaces: Some(Namespace { options: Some(plan::namespaces(&config)) }) }),
        metadata: config.metadata,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.handler.clone(),
    }
}

pub(super) fn sandbox_attributes(record: &SandboxRecord) -> PodSandboxAttributes {
    let config = record.config();
    PodSandboxAttributes {
        id: record.id.clone(),
        metadata: config.metadata,
        labels: config.labels,
        annotations: config.annotations,
    }
}

pub(super) fn container(container: &Container) -> cri::Container {
    let record = container.record();
    let config = record.config.unwrap_or_default();
    cri::Container {
        id: record.id,
        pod_sandbox_id: record.sandbox,
        metadata: config.metadata,
        image: config.image,
        image_ref: record.image_ref,
        state: container.status().state as i32,
        created_at: record.created_at,
        labels: config.labels,
        annotations: config.annotations,
        image_id: record.image_id,
    }
}

pub(super) fn container_status(container: &Container) -> ContainerStatus {
    let (record, status) = (container.record(), container.status());
    let config = record.config.unwrap_or_default();
    let log_path = plan::log_path(&config, &container.sandbox.config());
    ContainerStatus {
        id: record.id,
        state: status.state as i32,
        created_at: record.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        image: Some(config.image.unwrap_or(ImageSpec::default())),
        image_ref: record.image_ref,
        reason: status.reason,
        message: status.message,
        log_path: log_path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
        resources: status.resources.map(|linux| ContainerResources { linux: Some(linux), windows: None }),
        image_id: record.image_id,
        user: status.user.as_ref().map(user),
        metadata: config.metadata,
        labels: config.labels,
        annotations: config.annotations,
        mounts: config.mounts,
        stop_signal: config.stop_signal,
    }
}

fn user(user: &User) -> ContainerUser {
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid.into(),
            gid: user.gid.into(),
            supplemental_groups: user.groups.iter().map(|g| i64::from(*g)).collect(),
        }),
    }
}

pub(super) fn container_attributes(container: &Container) -> ContainerAttributes {
    let record = container.record();
    let config = record.config.unwrap_or_default();
    ContainerAttributes {
        id: record.id,
        metadata: config.metadata,
        labels: config.labels,
        annotations: config.annotations,
    }
}
