//! A registry on loopback, Debian's, and the images that both runtimes pull from it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use runtime::images::layer::tar::{Entry, Kind, Writer};
use runtime::images::{Config, Images, NoProgress, Options};
use tokio::net::TcpStream;

use super::ended;
use crate::Result;

/// The only program of the image: it waits for SIGTERM, or exits at once if it has an argument.
const PROGRAM: &str = "#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { (void)s; _exit(0); }\n\
    int main(int n, char **v) { (void)v; signal(SIGTERM, end); if (n > 1) return 0; for (;;) pause(); }\n";
/// The additional size of the second image.
const BALLAST_BYTES: usize = 100 << 20;
/// The number of layers.
const LAYERS: usize = 4;

pub(crate) struct Registry {
    child: Child,
    address: String,
    dir: PathBuf,
}

impl Drop for Registry {
    fn drop(&mut self) {
        ended(&mut self.child);
    }
}

impl Registry {
    /// Starts it, and puts the small image into it.
    pub(crate) async fn start(dir: &Path) -> Result<Registry> {
        std::fs::create_dir_all(dir)?;
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
            dir.join("blobs").display()
        );
        std::fs::write(dir.join("registry.yml"), config)?;
        let log = std::fs::File::create(dir.join("registry.log"))?;
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.join("registry.yml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("docker-registry (Debian package docker-registry): {error}"))?;
        let registry = Registry { child, address, dir: dir.to_path_buf() };
        super::until("the registry", async || TcpStream::connect(&registry.address).await.is_ok()).await?;
        let program = compiled(dir)?;
        registry.push("pause", vec![layer("pause", &program)?]).await?;
        Ok(registry)
    }

    /// Puts an image of 100 MB into it.
    pub(crate) async fn publish_large(&self) -> Result<()> {
        let program = std::fs::read(self.dir.join("pause"))?;
        let ballast = |number| layer(&format!("ballast-{number}"), &noise(number as u64, BALLAST_BYTES / LAYERS));
        let layers = std::iter::once(layer("pause", &program)).chain((0..LAYERS).map(ballast));
        self.push("large", layers.collect::<Result<_>>()?).await
    }

    /// The name of an image in this registry. Both runtimes use plain HTTP for loopback addresses.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }

    async fn push(&self, name: &str, layers: Vec<Vec<u8>>) -> Result<()> {
        let config = Config { entrypoint: vec!["/pause".to_string()], ..Config::default() };
        let images = Images::open(&self.dir.join("made"), Options::default())?;
        let id = images.build(&self.image(name), layers, config, &NoProgress).await?;
        Ok(images.push(&id, &self.image(name), None).await?)
    }
}

/// A layer that holds one executable file.
fn layer(name: &str, content: &[u8]) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new());
    let entry = Entry { size: content.len() as u64, ..Entry::new(name, Kind::File, 0o755) };
    writer.entry(&entry)?;
    std::io::Write::write_all(writer.data(), content)?;
    Ok(writer.finish()?)
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The program, static, by the compiler that built this binary's C parts too.
fn compiled(dir: &Path) -> Result<Vec<u8>> {
    let (source, program) = (dir.join("pause.c"), dir.join("pause"));
    std::fs::write(&source, PROGRAM)?;
    let status = Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(&program).arg(&source).status();
    if !status.map_err(|error| format!("cc: {error}"))?.success() {
        return Err("cc cannot link statically".into());
    }
    Ok(std::fs::read(program)?)
}

/// Incompressible bytes.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
