//! The CRI configuration of a container, from all objects that it refers to.

use std::path::Path;
use std::sync::Arc;

use api::Tree;

use super::dependencies::{self, UserError, VariablesError};
use super::files::{self, FileError};
use super::start::Inputs;
use super::sync;
use crate::images;
use crate::logs::files as log_files;
use crate::model::env::Variable;
use crate::model::pod;
use crate::model::state::{PodState, keys};
use crate::pod::context::PodContext;
use crate::pod::cri_config::container;
use crate::pod::cri_config::resources::Limits;
use crate::pod::plan::StartContainer;
use crate::pod::user_namespaces::UserNamespaceError;
use crate::resources::managers::Assignment;
use crate::resources::managers::devices::DeviceError;
use crate::volumes::{self, MountError};

/// A container that cannot be configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Devices(#[from] DeviceError),
    #[error(transparent)]
    Variables(#[from] VariablesError),
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    #[error(transparent)]
    Mounts(#[from] MountError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The sources of a container's configuration.
pub(crate) struct ConfigSources<'a> {
    pub(crate) spec: &'a Tree,
    pub(crate) image: images::LocalImage,
    /// Images of volumes, by volume.
    pub(crate) images: Vec<(String, cri::ImageSpec)>,
    pub(crate) addresses: &'a [String],
    pub(crate) inputs: &'a Inputs<'a>,
    pub(crate) start: &'a StartContainer,
}

/// The configuration, and the exclusive CPUs of the container. Creates the directory of its logs.
pub(crate) async fn config(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    parts: ConfigSources<'_>,
) -> Result<(cri::ContainerConfig, String), ConfigError> {
    let ConfigSources { spec, image, inputs, start, .. } = &parts;
    dependencies::check_user(pod, spec, image)?;
    let mut assigned = context.managers.prepare(pod, spec).await?;
    let env = variables(context, pod, &parts, &mut assigned).await?;
    let users = context.users.of(pod)?;
    let mounts = mounts(context, pod, &parts, (&env, users.as_ref()), &mut assigned).await?;
    let mut devices = volumes::devices(spec, inputs.mounted)?;
    devices.append(&mut assigned.devices);
    let limits = context.limits();
    let config = container::config(
        pod,
        spec,
        container::Inputs {
            restarts: start.restarts,
            image: cri::ImageSpec { image: image.id.clone(), ..images::spec(spec.str("image")) },
            env: &env,
            mounts,
            devices,
            cdi_devices: assigned.cdi_devices,
            annotations: assigned.annotations.into_iter().chain(round(inputs.state)).collect(),
            limits: Limits { cfs_quota: limits.cfs_quota && !assigned.has_cpus, ..limits },
            security: container::Security {
                target: &target(pod, &parts),
                users: users.as_ref(),
                volume_groups: &inputs.mounted.groups(pod),
                seccomp_root: &context.config.root_dir.join("seccomp").display().to_string(),
                seccomp_default: context.config.seccomp_default,
            },
            cpuset: (assigned.cpus.clone(), assigned.memory_nodes),
        },
    );
    create_log_dir(context, pod, &start.name)?;
    Ok((config, assigned.cpus))
}

/// Variables of the pod override variables of its devices.
async fn variables(
    context: &Arc<PodContext>,
    pod: &Tree,
    parts: &ConfigSources<'_>,
    assigned: &mut Assignment,
) -> Result<Vec<Variable>, VariablesError> {
    let own = dependencies::variables(context, pod, parts.spec, parts.addresses, parts.inputs.mounted).await?;
    let of_devices = std::mem::take(&mut assigned.env).into_iter();
    Ok(of_devices.map(|(name, value)| (name, value.into_bytes())).chain(own).collect())
}

async fn mounts(
    context: &Arc<PodContext>,
    pod: &Tree,
    parts: &ConfigSources<'_>,
    (env, users): (&[Variable], Option<&cri::UserNamespace>),
    assigned: &mut Assignment,
) -> Result<Vec<cri::Mount>, ConfigError> {
    let recursive_read_only = context.features.recursive_read_only;
    let inputs = volumes::MountInputs { env, images: &parts.images, users, recursive_read_only };
    let volumes = volumes::mounts(&context.config, pod, parts.spec, parts.inputs.mounted, &inputs).await?;
    let mut mounts = files::own_mounts(context, pod, parts.spec, parts.addresses, parts.start)?;
    mounts.extend(volumes);
    mounts.append(&mut assigned.mounts);
    Ok(mounts)
}

/// The ID of the container whose processes are visible to this container.
fn target(pod: &Tree, parts: &ConfigSources<'_>) -> String {
    let target = container::target(parts.spec, pod).and_then(|name| parts.inputs.state.active(name));
    target.map(|seen| seen.id.clone()).unwrap_or_default()
}

fn round(state: &PodState) -> Option<(String, String)> {
    (state.round > 0).then(|| (keys::ROUND.to_string(), state.round.to_string()))
}

/// The directory of a container's logs, or of the pod's without a name.
pub(super) fn create_log_dir(context: &PodContext, pod: &Tree, name: &str) -> Result<(), FileError> {
    let below = pod::log_dir(Path::new(""), pod).join(name);
    let path = sync::logs(context, pod).join(name);
    log_files::create_dir(&context.config.pod_logs_dir, &below).map_err(|source| FileError { path, source })
}
