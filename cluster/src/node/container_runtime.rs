//! The container runtime of a node: the built-in one, or another that listens on a socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet::runtime::Runtime;
use network::cni::builtin::{ClusterPods, Names};
use runtime::images::Images;
use runtime::service::{NetworkOptions, Service};

use super::image_files;
use crate::error::{Error, Result};
use crate::machine::identity;
use crate::machine::pods::{self, PodsError};

/// The runtime that creates the containers.
pub enum RuntimeChoice {
    Builtin(BuiltinRuntime),
    Socket(PathBuf),
}

/// The built-in runtime of a data directory.
pub struct BuiltinRuntime {
    pub data_dir: PathBuf,
    pub cgroup_root: String,
    /// The names of the built-in pod network.
    pub names: Names,
    /// The pods of other nodes, for the built-in pod network.
    pub cluster: ClusterPods,
}

impl RuntimeChoice {
    /// Whether pods get their addresses from the built-in pod network.
    pub fn uses_builtin_network(&self) -> bool {
        matches!(self, RuntimeChoice::Builtin(_)) && !has_network_configuration(Path::new(CNI_CONF_DIR))
    }
}

/// Whether the machine has a network configuration for pods, which is used instead of the built-in one.
fn has_network_configuration(dir: &Path) -> bool {
    let is_configuration =
        |path: PathBuf| path.extension().is_some_and(|end| CNI_EXTENSIONS.iter().any(|one| end == *one));
    std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| is_configuration(entry.path()))
}

/// The state of running pods, with a directory for each cluster. It survives a restart of the runtime, but not a
/// reboot.
pub(crate) const STATES: &str = "/run/tiphys";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";
const CNI_EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

impl BuiltinRuntime {
    /// The images of a directory of the runtime.
    fn images(&self, root: &Path) -> Result<Images> {
        Images::open(&root.join("images"), Default::default())
            .map_err(|error| Error::Node(format!("failed to open the image store: {}", error.chain())))
    }

    /// Imports the archives of the data directory.
    pub(super) async fn import_images(&self) -> Result<()> {
        image_files::import_all(&self.data_dir, |root| self.images(root)).await
    }

    /// Persistent data is in the data directory; the state of running pods is found by the ID of the cluster.
    fn options(&self) -> Result<runtime::service::Options> {
        let data_dir = identity::open_data_dir(&self.data_dir)?;
        let id = identity::cluster_id(&data_dir, Path::new(STATES))?;
        Ok(runtime::service::Options {
            root: data_dir.join("runtime"),
            state: Path::new(STATES).join(id),
            handlers: Default::default(),
            shim_cgroup: format!("{}/tiphys-shims", self.cgroup_root.trim_end_matches('/')),
            network: NetworkOptions {
                conf_dir: CNI_CONF_DIR.into(),
                bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
                cache_dir: data_dir.join("cni"),
                builtin: true,
                names: self.names.clone(),
                cluster: self.cluster.clone(),
            },
            streaming_address: SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }
}

/// A runtime that is connected.
pub(crate) struct OpenRuntime {
    pub runtime: Runtime,
    /// The built-in runtime, and its state directory.
    pub builtin: Option<(Arc<Service>, PathBuf)>,
}

impl OpenRuntime {
    /// Removes all pods that the built-in runtime still has.
    pub(crate) async fn remove_pods(&self) -> std::result::Result<(), PodsError> {
        if self.builtin.is_none() {
            return Ok(());
        }
        let left = pods::list(&self.runtime).await?.into_iter().map(|(_, uid)| uid).collect();
        pods::remove(&self.runtime, &left).await
    }

    /// Stops the processes of the built-in runtime. Returns its state directory, which no process uses any more.
    pub(crate) fn close(self) -> Option<PathBuf> {
        let (service, state) = self.builtin?;
        service.end_zygote();
        Some(state)
    }
}

pub(crate) async fn open(choice: RuntimeChoice) -> Result<OpenRuntime> {
    match choice {
        RuntimeChoice::Socket(socket) => {
            let (service, images) = cri::connect(&socket);
            let runtime = Runtime { service: Arc::new(service), images: Arc::new(images) };
            Ok(OpenRuntime { runtime, builtin: None })
        }
        RuntimeChoice::Builtin(embedded) => {
            let options = embedded.options()?;
            let images = embedded.images(&options.root)?;
            let state = options.state.clone();
            let service = Service::open(options, images).await;
            let service = Arc::new(service.map_err(|error| Error::Node(error.to_string()))?);
            let runtime = Runtime { service: service.clone(), images: service.clone() };
            Ok(OpenRuntime { runtime, builtin: Some((service, state)) })
        }
    }
}
