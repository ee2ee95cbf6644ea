//! A real etcd on loopback, for as long as a test needs it.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// A running etcd.
pub struct Etcd {
    port: u16,
    _child: Child,
}

impl Etcd {
    /// Starts it in an empty directory. The test fails where the program is missing: it is part of `./test`.
    pub async fn start(dir: &Path) -> Etcd {
        let (port, peer) = (free_port().await, free_port().await);
        let (client_url, peer_url) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir)
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}"), "--logger", "zap", "--log-level", "error"])
            .kill_on_drop(true)
            .spawn()
            .expect("etcd is installed (Debian's etcd-server; ./test installs it)");
        wait_for(port).await;
        Etcd { port, _child: child }
    }

    /// The port for clients: gRPC without TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes a value directly to etcd, as another server would.
    pub async fn put(&self, key: &str, value: &[u8]) {
        let mut child =
            self.etcdctl(&["put", key]).stdin(Stdio::piped()).spawn().expect("etcdctl (Debian's etcd-client)");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(value).await.expect("etcdctl reads");
        drop(input);
        assert!(child.wait().await.expect("etcdctl ends").success());
    }

    /// The keys below a prefix.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let output = self.etcdctl(&["get", "--prefix", "--keys-only", prefix]).output().await.expect("etcdctl runs");
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_string).collect()
    }

    /// The value of a key as it is stored.
    pub async fn value(&self, key: &str) -> Vec<u8> {
        self.etcdctl(&["get", "--print-value-only", key]).output().await.expect("etcdctl runs").stdout
    }

    fn etcdctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint()]).args(args).stdout(Stdio::piped());
        command
    }

    /// The client URL.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("its address").port()
}

async fn wait_for(port: u16) {
    let connect = async || TcpStream::connect(("127.0.0.1", port)).await;
    stdx::wait::until_ok_await("etcd responds", super::client::DEADLINE, connect).await;
}
