//! Creates containers: plans and records them, without starting them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::{ContainerConfig, ContainerEventType, CreateContainerRequest, NamespaceMode, PodSandboxConfig};
use stdx::sync::Mutex;
use tokio::sync::watch;

use super::devices::devices;
use super::records::{self, ContainerRecord, Stage};
use super::sandboxes::{SHARED_FILES, remove_directory};
use super::state::{Container, Sandbox, Status};
use super::{Service, blocking, fault, new_id};
use crate::error::{Context, Error, Result, refused};
use crate::images::Image;
use crate::plan::{self, ContainerInput, Defaults, Seccomp, signal};
use crate::private;
use crate::seccomp;
use crate::shim::log::Timestamp;
use crate::shim::protocol::SPEC_FILE;
use crate::spec::{ContainerSpec, RootSpec};

impl Service {
    pub(super) async fn create(&self, sandbox: &Arc<Sandbox>, request: CreateContainerRequest) -> Result<String> {
        let config = request.config.unwrap_or_default();
        if sandbox.stage() != Stage::Ready {
            return refused(format!("sandbox {:?} is not ready", sandbox.id));
        }
        let id = new_id()?;
        let draft =
            ContainerRecord { sandbox: sandbox.id.clone(), config: Some(config.clone()), ..ContainerRecord::default() };
        if config.metadata.as_ref().is_none_or(|metadata| metadata.name.is_empty()) {
            return refused("config.metadata.name is empty");
        }
        self.reserve(&unique_name(&draft), &id)?;
        let (service, pod, key) = (self.clone(), sandbox.clone(), id.clone());
        let recorded = blocking(move || service.record_container(&pod, &key, config)).await?;
        match recorded {
            Ok(container) => {
                self.0.containers.insert(&id, container);
                self.publish(&id, sandbox, ContainerEventType::Created);
                Ok(id)
            }
            Err(error) => {
                self.discard(&id, &sandbox.directory.join(&id));
                self.release_names(&id);
                Err(error)
            }
        }
    }

    /// All blocking work, in an order that leaves nothing unrecorded after a crash.
    fn record_container(&self, sandbox: &Arc<Sandbox>, id: &str, config: ContainerConfig) -> Result<Arc<Container>> {
        let desired = config.image.clone().unwrap_or_default().image;
        let image = self.local_image(&desired)?;
        let directory = sandbox.directory.join(id);
        private::create_dir(&directory).context(|| format!("creating {}", directory.display()))?;
        let rootfs = self.0.images.prepare(id, &image.id).map_err(|e| Error::Refused(e.chain()))?;
        fault::point("snapshot-prepared");
        let views = self.views(id, &config)?;
        let host_config = sandbox.config();
        let defaults = Defaults {
            user: image.config.user.clone(),
            env: image.config.env.clone(),
            entrypoint: image.config.entrypoint.clone(),
            cmd: image.config.cmd.clone(),
            working_dir: image.config.working_dir.clone(),
        };
        create_host_directories(&config)?;
        self.check_target(&config, sandbox)?;
        self.report_ignored_selinux(&config);
        let spec = plan::container(&ContainerInput {
            id,
            config: &config,
            sandbox: &host_config,
            image: &defaults,
            host: &self.0.host,
            root: RootSpec { lower: rootfs.lower, upper: rootfs.upper, work: rootfs.work, readonly: false },
            sandbox_files: sandbox_files(&sandbox.directory),
            image_layers: views.values().cloned().collect(),
            devices: devices(&config)?,
            seccomp: self.seccomp(&config, &directory)?,
            handler: self.0.options.handlers.get(&sandbox.record().handler).cloned(),
        })?;
        let spec = ContainerSpec {
            log_path: spec.log_path.map(|path| real_log_path(&path, &host_config)).transpose()?,
            ..spec
        };
        let text = serde_json::to_vec(&spec).map_err(std::io::Error::from).at("writing the spec")?;
        records::replace(&directory.join(SPEC_FILE), &text)?;
        let record = ContainerRecord {
            id: id.into(),
            sandbox: sandbox.id.clone(),
            created_at: Timestamp::now().0,
            image_id: image.id.clone(),
            image_ref: image.repo_digests.first().cloned().unwrap_or_else(|| image.id.clone()),
            stop_signal: signal::stop(config.stop_signal(), &image.config.stop_signal),
            cgroup: spec.cgroup.path.clone(),
            views: views.into_keys().collect(),
            config: Some(config),
            ..ContainerRecord::default()
        };
        records::write(&directory, &record)?;
        fault::point("container-recorded");
        Ok(new_container(record, directory, sandbox.clone()))
    }

    /// Images that are mounted as volumes, each with its own snapshot: by snapshot key, the reference and its layers.
    fn views(&self, id: &str, config: &ContainerConfig) -> Result<BTreeMap<String, (String, Vec<PathBuf>)>> {
        let mut views = BTreeMap::new();
        let images = config.mounts.iter().filter_map(|m| m.image.as_ref());
        for (number, image) in images.enumerate() {
            let found = self.local_image(&image.image)?;
            let key = format!("{id}-volume-{number}");
            let layers = self.0.images.view(&key, &found.id).map_err(|e| Error::Refused(e.chain()))?;
            views.insert(key, (image.image.clone(), layers));
        }
        Ok(views)
    }

    /// An image that is present.
    fn local_image(&self, desired: &str) -> Result<Arc<Image>> {
        self.0.images.get(desired).ok_or_else(|| Error::NotFound(format!("image {desired:?} is not present")))
    }

    /// The target of a shared PID namespace has to be a running container of the same pod.
    fn check_target(&self, config: &ContainerConfig, sandbox: &Sandbox) -> Result<()> {
        let options = plan::context(config).namespace_options.unwrap_or_default();
        if options.pid() != NamespaceMode::Target {
            return Ok(());
        }
        match self.0.containers.find(&options.target_id) {
            Some(target) if target.is_running() && target.sandbox.id == sandbox.id => Ok(()),
            _ => refused(format!("the target container {:?} is not running in this pod", options.target_id)),
        }
    }

    /// Logs once that labels are ignored, because the kernel has no SELinux.
    fn report_ignored_selinux(&self, config: &ContainerConfig) {
        if plan::has_selinux_options(&plan::context(config)) && !self.0.host.selinux {
            self.0.selinux_ignored.call_once(|| {
                tracing::warn!("seLinuxOptions of containers are ignored: this kernel has no SELinux");
            });
        }
    }

    /// The compiled seccomp filter on disk. The default filter is shared by containers with the same capabilities.
    fn seccomp(&self, config: &ContainerConfig, directory: &Path) -> Result<Option<PathBuf>> {
        let context = plan::context(config);
        let (path, profile) = match Seccomp::of(&context)? {
            Seccomp::Unconfined => return Ok(None),
            Seccomp::Default => {
                let bounding = plan::capabilities(&context, &self.0.host)?.bounding;
                let path = self.0.options.state.join(format!("seccomp-{bounding:x}"));
                // An existing file may be of an earlier version, which allowed other system calls.
                if !self.0.filters.lock().insert(bounding) && path.exists() {
                    return Ok(Some(path));
                }
                (path, seccomp::default_profile(bounding))
            }
            Seccomp::Localhost(file) => {
                let text = fs::read_to_string(&file).context(|| format!("reading the seccomp profile {file:?}"))?;
                (directory.join("seccomp"), seccomp::parse(&text)?)
            }
        };
        records::replace(&path, &seccomp::compile(&profile)?)?;
        Ok(Some(path))
    }

    /// Removes what a failed creation left behind.
    fn discard(&self, id: &str, directory: &Path) {
        let keys: Vec<_> = self.0.images.keys().into_iter().filter(|key| key.starts_with(id)).collect();
        for key in keys {
            let _ = self.0.images.release(&key);
        }
        let _ = remove_directory(directory);
    }
}

/// The name of a container is unique in its pod for each attempt.
pub(super) fn unique_name(record: &ContainerRecord) -> String {
    let metadata = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    format!("container {}_{}_{}", metadata.name, record.sandbox, metadata.attempt)
}

pub(super) fn new_container(record: ContainerRecord, directory: PathBuf, sandbox: Arc<Sandbox>) -> Arc<Container> {
    let linux = record.config.as_ref().and_then(|c| c.linux.as_ref());
    let status = Status::created(linux.and_then(|l| l.resources.clone()));
    Arc::new(Container {
        id: record.id.clone(),
        directory,
        sandbox,
        record: Mutex::new(record),
        status: watch::Sender::new(status),
        changing: tokio::sync::Mutex::new(()),
    })
}

/// The log's path with symlinks resolved above the pod's log directory. Below it none is followed when the log is
/// opened: a pod that can write there must not choose which file of the host is written.
fn real_log_path(log: &Path, sandbox: &PodSandboxConfig) -> Result<PathBuf> {
    let directory = Path::new(&sandbox.log_directory);
    let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else { return Ok(log.to_path_buf()) };
    let above = fs::canonicalize(above).context(|| format!("log_directory: finding {}", above.display()))?;
    let below = log.strip_prefix(directory).unwrap_or(Path::new(""));
    Ok(above.join(name).join(below))
}

fn sandbox_files(directory: &Path) -> Vec<(String, PathBuf)> {
    SHARED_FILES.map(|name| (format!("/etc/{name}"), directory.join(name))).into()
}

/// Creates missing host directories of mounts, as CRI clients expect.
fn create_host_directories(config: &ContainerConfig) -> Result<()> {
    for mount in config.mounts.iter().filter(|m| !m.host_path.is_empty()) {
        if !Path::new(&mount.host_path).exists() {
            fs::create_dir_all(&mount.host_path).context(|| format!("creating {:?} on the host", mount.host_path))?;
        }
    }
    Ok(())
}
