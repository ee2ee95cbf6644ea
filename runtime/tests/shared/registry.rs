//! Debian's docker-registry, with basic authentication, on its own loopback port.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runtime::images::Credentials;
use stdx::wait::until_async;

/// `user` with the password `secret`.
const HTPASSWD: &str = "user:$2b$04$0OJFlSaCrgO93UaE/ijaLOCSPYifrxs2OwmwMmuHO7dboFZNoKVPW\n";

/// A registry that is stopped on drop.
pub struct Registry {
    process: Child,
    _directory: tempfile::TempDir,
    pub address: String,
}

impl Registry {
    pub async fn start() -> Registry {
        let directory = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        std::fs::write(directory.path().join("htpasswd"), HTPASSWD).expect("a file");
        let config = directory.path().join("config.yml");
        std::fs::write(&config, configuration(directory.path(), port)).expect("a file");
        let log = std::fs::File::create(directory.path().join("log")).expect("a file");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("docker-registry is installed");
        let registry = Registry { process, _directory: directory, address: format!("127.0.0.1:{port}") };
        let answers = || TcpStream::connect(&registry.address).is_ok();
        until_async("the registry answers", Duration::from_secs(20), answers).await;
        registry
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {directory}/data}}}}\n\
         http: {{addr: '127.0.0.1:{port}', secret: x}}\n\
         auth: {{htpasswd: {{realm: test, path: {directory}/htpasswd}}}}\n"
    )
}

pub fn user() -> Option<Credentials> {
    Some(Credentials::basic("user", "secret"))
}
