//! `kube-apiserver` in this process, configured by flags as users do.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use cluster::apiserver::{self, flags};
use cluster::control_plane::ControlPlane;
use cluster::pki::Pki;

use crate::client::Client;

/// A running server; its directory is the caller's.
pub struct FlaggedServer {
    running: ControlPlane,
    pki: Pki,
}

impl FlaggedServer {
    /// Starts with a data directory below the directory.
    pub async fn start(dir: &Path, more: &[String]) -> cluster::error::Result<FlaggedServer> {
        let mut arguments = vec!["--bind-address=127.0.0.1".to_string(), format!("--secure-port={}", free_port())];
        arguments.push(format!("--data-dir={}", dir.join("data").display()));
        arguments.extend_from_slice(more);
        let running = apiserver::run(flags::parse(&arguments)?).await?;
        let pki = Pki::open(dir.join("data/pki"))?;
        Ok(FlaggedServer { running, pki })
    }

    /// A client without a certificate.
    pub fn anonymous(&self) -> Client {
        let ca = self.pki.read("ca").expect("a CA bundle").expect("a CA bundle");
        Client::as_user(self.running.address, &ca, None)
    }

    /// The administrator of the data directory.
    pub fn admin(&self) -> Client {
        let ca = self.pki.read("ca").expect("a CA bundle").expect("a CA bundle");
        let admin = self.pki.read("admin").expect("a certificate").expect("a certificate");
        Client::as_user(self.running.address, &ca, Some(&admin))
    }

    /// Stops the server.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

/// A port that was free a moment ago: the flag does not accept 0.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}
