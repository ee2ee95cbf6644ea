//! The two runtimes that are measured: ours, and Debian's containerd with runc. Both are child processes with separate
//! data, and are called through their sockets only.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cri::{ImageService, ImageServiceClient, RuntimeService, RuntimeServiceClient};

use super::ended;
use crate::Result;
use crate::child::this_binary;
use crate::inside::CGROUP;

pub(crate) struct Daemon {
    child: Child,
    pub socket: PathBuf,
    pub runtime: RuntimeServiceClient,
    pub images: ImageServiceClient,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        ended(&mut self.child);
    }
}

impl Daemon {
    pub(crate) async fn ours(dir: &Path) -> Result<Daemon> {
        std::fs::create_dir_all(dir.join("cni"))?;
        let socket = dir.join("cri.sock");
        let mut command = this_binary()?;
        command.arg("cri").arg("--socket").arg(&socket);
        command.arg("--root").arg(dir.join("root")).arg("--state").arg(dir.join("state"));
        command.arg("--cni-conf-dir").arg(dir.join("cni")).arg("--cni-cache-dir").arg(dir.join("cache"));
        command.arg("--shim-cgroup").arg(format!("{CGROUP}/shims"));
        let daemon = Daemon::spawn(command, dir, &socket)?;
        daemon.answers("tiphys cri").await?;
        daemon.set_pod_cidr("10.231.0.0/16").await?;
        Ok(daemon)
    }

    pub(crate) async fn containerd(dir: &Path, sandbox_image: &str) -> Result<Daemon> {
        std::fs::create_dir_all(dir.join("cni"))?;
        let socket = dir.join("containerd.sock");
        std::fs::write(dir.join("cni/10-bench.conflist"), NETWORK)?;
        std::fs::write(dir.join("config.toml"), config(dir, &socket, sandbox_image))?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(dir.join("config.toml"));
        let daemon = Daemon::spawn(command, dir, &socket).map_err(|error| {
            format!("containerd (Debian packages containerd, runc, containernetworking-plugins): {error}")
        })?;
        daemon.answers("containerd").await?;
        Ok(daemon)
    }

    fn spawn(mut command: Command, dir: &Path, socket: &Path) -> Result<Daemon> {
        let log = std::fs::File::create(dir.join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let (runtime, images) = cri::connect(socket);
        Ok(Daemon { child, socket: socket.to_path_buf(), runtime, images })
    }

    async fn answers(&self, name: &str) -> Result<()> {
        super::until(name, async || self.runtime.version(cri::VersionRequest::default()).await.is_ok()).await
    }

    async fn set_pod_cidr(&self, cidr: &str) -> Result<()> {
        let network_config = Some(cri::NetworkConfig { pod_cidr: cidr.to_string() });
        let runtime_config = Some(cri::RuntimeConfig { network_config });
        self.runtime.update_runtime_config(cri::UpdateRuntimeConfigRequest { runtime_config }).await?;
        Ok(())
    }

    pub(crate) async fn pull(&self, image: &str) -> Result<()> {
        let image = Some(cri::ImageSpec { image: image.to_string(), ..cri::ImageSpec::default() });
        self.images.pull_image(cri::PullImageRequest { image, ..cri::PullImageRequest::default() }).await?;
        Ok(())
    }

    pub(crate) async fn forget(&self, image: &str) -> Result<()> {
        let image = Some(cri::ImageSpec { image: image.to_string(), ..cri::ImageSpec::default() });
        self.images.remove_image(cri::RemoveImageRequest { image }).await?;
        Ok(())
    }
}

/// Like our own network: a bridge, addresses by host-local, masquerade.
const NETWORK: &str = r#"{"cniVersion":"0.4.0","name":"bench","plugins":[{"type":"bridge","bridge":"bench0","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.232.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},{"type":"portmap","capabilities":{"portMappings":true}}]}"#;

fn config(dir: &Path, socket: &Path, sandbox_image: &str) -> String {
    let path = |name: &str| -> PathBuf { dir.join(name) };
    format!(
        r#"version = 2
root = {root:?}
state = {state:?}
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = {socket:?}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {sandbox_image:?}
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = {cni:?}
"#,
        root = path("root"),
        state = path("state"),
        cni = path("cni"),
    )
}
