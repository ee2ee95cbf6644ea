//! A real etcd on loopback, for as long as a test needs it.

use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

pub struct Etcd {
    port: u16,
    _child: Child,
}

impl Etcd {
    /// Starts it in an empty folder. The test fails where the program is missing: it is part of `./test`.
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

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("its address").port()
}

async fn wait_for(port: u16) {
    let reached = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(super::client::DEADLINE, reached).await.expect("etcd answers in time");
}
