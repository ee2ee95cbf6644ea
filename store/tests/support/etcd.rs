//! A real etcd from Debian's package, on free loopback ports with its own data.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use store::etcd::{self, Config, Etcd};

use super::{Fixture, Recorder};

pub struct Server {
    pub dir: tempfile::TempDir,
    child: Option<Child>,
    client_port: u16,
    peer_port: u16,
    arguments: Vec<String>,
    scheme: &'static str,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with("http", |_| Vec::new())
    }

    /// `arguments` returns additional arguments for the server's directory.
    pub fn start_with(scheme: &'static str, arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let arguments = arguments(dir.path());
        let (client_port, peer_port) = free_ports();
        let mut server = Self { dir, child: None, client_port, peer_port, arguments, scheme };
        server.run();
        server
    }

    /// Starts it, also again after `kill`, with the same data and address.
    pub fn run(&mut self) {
        let client = self.endpoint();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let child = Command::new(binary())
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.child = Some(child);
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.client_port)
    }

    /// Changes to an unknown port. Returns the previous one.
    pub fn move_to_another_port(&mut self) -> u16 {
        std::mem::replace(&mut self.client_port, free_ports().0)
    }

    pub fn move_to_port(&mut self, port: u16) {
        self.client_port = port;
    }

    /// Like a power failure.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("etcd can be killed");
            child.wait().expect("etcd ends");
        }
    }

    pub fn config(&self, prefix: &str) -> Config {
        Config {
            prefix: prefix.to_owned(),
            compact_interval: None,
            timeout: super::DEADLINE,
            progress_interval: Duration::from_millis(50),
            ..Config::new(vec![self.endpoint()])
        }
    }

    pub async fn connect(&self, config: Config, sink: Arc<Recorder>) -> Etcd {
        match super::within("etcd's answer", etcd::connect(config, sink)).await {
            Ok(store) => store,
            Err(error) => {
                let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("etcd cannot be used: {error}\n{log}");
            }
        }
    }

    /// Runs etcdctl.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint()]).args(arguments);
        let output = command.output().expect("etcdctl, from Debian's package etcd-client, runs");
        assert!(output.status.success(), "etcdctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn binary() -> PathBuf {
    let places = ["/usr/bin/etcd", "/usr/local/bin/etcd"];
    match places.iter().map(PathBuf::from).find(|path| path.exists()) {
        Some(path) => path,
        None => panic!("these tests need a real etcd: install Debian's package etcd-server"),
    }
}

/// Two ports that were free a moment ago.
fn free_ports() -> (u16, u16) {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [client, peer] = listeners.map(|listener| listener.local_addr().unwrap().port());
    (client, peer)
}

pub async fn fixture() -> Fixture {
    let server = Server::start();
    let sink = Recorder::new();
    let store = Arc::new(server.connect(server.config("/registry"), sink.clone()).await);
    Fixture { store, sink, fills: false, splits: false, _keep: Box::new(server) }
}
