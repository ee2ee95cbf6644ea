//! The servers that are measured, as children of this process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::client::https::Https;
use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::client::{Connection, Identity, Tls};
use crate::objects::{SERVICE_ACCOUNT, SERVICE_ACCOUNTS, Template};

/// A server that takes longer than this to start or to stop is broken.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Server {
    child: Child,
    pub address: SocketAddr,
    pub tls: Tls,
    /// The time from the start of the process to its first successful readiness response.
    pub ready_after: Duration,
    /// The kubeconfig of its administrator.
    kubeconfig: Option<PathBuf>,
}

impl Server {
    /// `tiphys up` without control loops and scheduler, which would do their own work for each object and have
    /// benchmarks of their own.
    pub(crate) async fn api(dir: &Path) -> Result<Server> {
        Server::api_with(dir, &["--controllers=-*", "--disable-scheduler"]).await
    }

    pub(crate) async fn api_with(dir: &Path, flags: &[&str]) -> Result<Server> {
        Server::up(dir, &[&["--disable-agent"], flags].concat()).await
    }

    /// A whole cluster, with this machine as its node.
    pub(crate) async fn up(dir: &Path, flags: &[&str]) -> Result<Server> {
        let port = free_port()?;
        let kubeconfig = dir.join("kubeconfig");
        let mut command = this_binary()?;
        command.args(["up", "--bind-address", "127.0.0.1", "--port", &port.to_string()]);
        command.arg("--data-dir").arg(dir).arg("--kubeconfig").arg(&kubeconfig).args(flags);
        let mut server = Server::spawn(command, port)?;
        server.ready_after = server.wait("/readyz").await?;
        server.tls = Tls::with_client(&identity(&kubeconfig).await?)?;
        // Pods need it. It may be there: from before the restart, or by a controller.
        let account = Template::post(SERVICE_ACCOUNTS, SERVICE_ACCOUNT);
        server.connect().await?.exchange(account.bytes()).await?;
        Ok(server)
    }

    /// The API server alone, with flags of upstream's, ready.
    pub(crate) async fn apiserver(dir: &Path, flags: &[String]) -> Result<Server> {
        Server::spawn_apiserver(dir, flags)?.ready().await
    }

    pub(crate) fn spawn_apiserver(dir: &Path, flags: &[String]) -> Result<Server> {
        let port = free_port()?;
        let mut command = this_binary()?;
        command.args(["kube-apiserver", "--bind-address=127.0.0.1", &format!("--secure-port={port}")]);
        command.arg(format!("--data-dir={}", dir.display())).args(flags).stderr(Stdio::null());
        let mut server = Server::spawn(command, port)?;
        server.kubeconfig = Some(dir.join("kubeconfig"));
        Ok(server)
    }

    /// Becomes its administrator, and waits until it serves: not every server serves anonymous clients.
    pub(crate) async fn ready(mut self) -> Result<Server> {
        if let Some(kubeconfig) = &self.kubeconfig {
            self.tls = Tls::with_client(&identity(kubeconfig).await?)?;
        }
        self.ready_after = self.wait("/readyz").await?;
        Ok(self)
    }

    pub(crate) async fn bare() -> Result<Server> {
        Server::spawn_bare()?.reachable().await
    }

    pub(crate) fn spawn_bare() -> Result<Server> {
        let port = free_port()?;
        let mut command = this_binary()?;
        command.args(["bench", "bare", &port.to_string()]);
        Server::spawn(command, port)
    }

    pub(crate) async fn reachable(self) -> Result<Server> {
        let started = Instant::now();
        while self.connect().await.is_err() {
            check_patience(started)?;
        }
        Ok(self)
    }

    fn spawn(mut command: Command, port: u16) -> Result<Server> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Server { child, address, tls: Tls::anonymous()?, ready_after: Duration::ZERO, kubeconfig: None })
    }

    async fn wait(&self, path: &str) -> Result<Duration> {
        let started = Instant::now();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        loop {
            if let Ok(mut connection) = self.connect().await
                && connection.exchange(request.as_bytes()).await.is_ok_and(|answer| answer.code == 200)
            {
                return Ok(started.elapsed());
            }
            check_patience(started)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As its administrator.
    pub(crate) fn client(&self) -> Result<client::Client> {
        let https = Https::new("localhost", self.address.port(), None, self.tls.config())?;
        Ok(client::Client::new(Arc::new(https), "bench"))
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, &self.tls).await
    }

    pub(crate) async fn connections(&self, count: usize) -> Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }

    /// Stops the process, and waits until it has exited.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        let started = Instant::now();
        while self.child.try_wait()?.is_none() {
            check_patience(started)?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_patience(started: Instant) -> Result<()> {
    if started.elapsed() > PATIENCE { Err("a server did not start or stop in time".into()) } else { Ok(()) }
}

pub(crate) fn this_binary() -> Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The user of a kubeconfig, which is written last.
async fn identity(kubeconfig: &PathBuf) -> Result<Identity> {
    let started = Instant::now();
    let text = loop {
        match fs::read(kubeconfig) {
            Ok(text) => break text,
            Err(_) => check_patience(started)?,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let config = api::yaml::decode(&text).map_err(|error| error.to_string())?;
    let user = config.list("users").first().ok_or("the kubeconfig has no user")?.at("user");
    let data = |key: &str| api::base64::decode(user.str(key)).map_err(|_| "the kubeconfig has no client certificate");
    Ok(Identity { certificate: data("client-certificate-data")?, key: data("client-key-data")? })
}
