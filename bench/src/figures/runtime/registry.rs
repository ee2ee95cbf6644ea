//! A registry on loopback, Debian's, and the images that both runtimes pull from it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::ended;
use crate::Result;

/// A process that does nothing, or ends at once where it is told a word: the whole of an image.
const PROGRAM: &str =
    "#include <unistd.h>\nint main(int n, char **v) { (void)v; if (n > 1) return 0; for (;;) pause(); }\n";
/// What the second image has beside it.
const BALLAST_BYTES: usize = 100 << 20;
/// In so many layers.
const LAYERS: usize = 4;

pub struct Registry {
    child: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        ended(&mut self.child);
    }
}

impl Registry {
    /// Starts it, and puts the small image and the large one into it.
    pub async fn start(dir: &Path) -> Result<Registry> {
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
        let registry = Registry { child, address };
        super::until("the registry", async || TcpStream::connect(&registry.address).await.is_ok()).await?;
        let program = compiled(dir)?;
        registry.push("pause", &[tar("pause", &program)?]).await?;
        let mut layers = vec![tar("pause", &program)?];
        for layer in 0..LAYERS {
            layers.push(tar(&format!("ballast-{layer}"), &noise(layer as u64, BALLAST_BYTES / LAYERS))?);
        }
        registry.push("large", &layers).await?;
        Ok(registry)
    }

    /// The name of an image here. Both runtimes speak plain HTTP to loopback.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }

    async fn push(&self, name: &str, layers: &[Vec<u8>]) -> Result<()> {
        let diff_ids: Vec<String> = layers.iter().map(|layer| format!("\"{}\"", sha256(layer))).collect();
        let config = format!(
            r#"{{"architecture":"{}","os":"linux","config":{{"Entrypoint":["/pause"]}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            architecture(),
            diff_ids.join(",")
        );
        let mut described = Vec::new();
        for layer in layers {
            self.upload(name, layer).await?;
            described.push(descriptor("application/vnd.oci.image.layer.v1.tar", layer));
        }
        self.upload(name, config.as_bytes()).await?;
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
            descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            described.join(",")
        );
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("/v2/{name}/manifests/1"))
            .header(header::CONTENT_TYPE, "application/vnd.oci.image.manifest.v1+json");
        self.send(request, Bytes::from(manifest)).await?;
        Ok(())
    }

    async fn upload(&self, name: &str, blob: &[u8]) -> Result<()> {
        let begin = Request::builder().method(Method::POST).uri(format!("/v2/{name}/blobs/uploads/"));
        let location = self.send(begin, Bytes::new()).await?;
        let path = location.split_once(&self.address).map_or(location.as_str(), |(_, path)| path).to_string();
        let separator = if path.contains('?') { '&' } else { '?' };
        let put = Request::builder()
            .method(Method::PUT)
            .uri(format!("{path}{separator}digest={}", sha256(blob)))
            .header(header::CONTENT_TYPE, "application/octet-stream");
        self.send(put, Bytes::copy_from_slice(blob)).await?;
        Ok(())
    }

    /// Sends a request that has to succeed; the Location of its answer.
    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<String> {
        let request = request.header(header::HOST, &self.address).body(Full::new(body))?;
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        if !matches!(response.status(), StatusCode::CREATED | StatusCode::ACCEPTED) {
            let (status, body) = (response.status(), response.into_body().collect().await?.to_bytes());
            return Err(format!("the registry answered {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        Ok(location.unwrap_or_default().to_string())
    }
}

fn descriptor(media: &str, bytes: &[u8]) -> String {
    format!(r#"{{"mediaType":"{media}","digest":"{}","size":{}}}"#, sha256(bytes), bytes.len())
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
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

/// Bytes that nobody can compress.
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

/// A layer of one executable file.
fn tar(name: &str, content: &[u8]) -> Result<Vec<u8>> {
    let mut head = [0u8; 512];
    (&mut head[..100]).write_all(name.as_bytes())?;
    for (at, text) in [
        (100, "0000755\0".to_string()),
        (108, "0000000\0".to_string()),
        (116, "0000000\0".to_string()),
        (124, format!("{:011o}\0", content.len())),
        (136, "00000000000\0".to_string()),
        (148, " ".repeat(8)),
        (156, "0".to_string()),
        (257, "ustar\x0000".to_string()),
    ] {
        head[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = head.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    Ok(all)
}
