//! Controller managers as separate processes: a leader that is paused, and a server that is killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stdx::wait::{until_await, until_ok_await};

use crate::support::{BINARY, Server, free_port};

/// A component beside the server; it is killed at the end of the test.
pub struct Component(Child);

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Component {
    fn manager(server: &Server, more: &[&str]) -> Component {
        let pki = server.dir.path().join("data/pki");
        let files = ["root-ca-file", "client-ca-file"].map(|flag| format!("--{flag}={}", pki.join("ca.crt").display()));
        let mut all: Vec<&str> = files.iter().map(String::as_str).collect();
        all.push("--use-service-account-credentials=true");
        all.extend(more);
        Component::start(server, "kube-controller-manager", "controller-manager", &all)
    }

    /// Starts with the client certificate of a user, as with kubeadm, on any port.
    pub fn start(server: &Server, name: &str, user: &str, more: &[&str]) -> Component {
        let pki = server.dir.path().join("data/pki");
        let config = server.dir.path().join(format!("{user}.conf"));
        std::fs::write(&config, kubeconfig(&pki, user, server.port)).expect("a file");
        let file = |flag: &str| format!("--{flag}={}", config.display());
        let process = Command::new(BINARY)
            .arg(name)
            .args(["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(file))
            .arg("--bind-address=127.0.0.1")
            .args(more)
            .arg(format!("--secure-port={}", free_port()))
            .stderr(Stdio::null())
            .spawn();
        Component(process.expect("the binary starts"))
    }

    /// Waits until the process exits; returns its exit code.
    pub async fn wait(&mut self) -> Option<i32> {
        let exit = async || self.0.try_wait().expect("it is our child").ok_or("it runs");
        until_ok_await("the process exits", Duration::from_secs(60), exit).await.code()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }
}

fn kubeconfig(pki: &Path, user: &str, port: u16) -> String {
    let file = |name: &str| pki.join(name).display().to_string();
    format!(
        "kind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{client-certificate: '{}', client-key: '{}'}}}}]\n",
        file("ca.crt"),
        file(&format!("{user}.crt")),
        file(&format!("{user}.key")),
    )
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    until_await(what, Duration::from_secs(60), async || holds().await).await;
}

async fn read(server: &Server, path: &str) -> String {
    let (_, body) = server.client().await.call("GET", path, "").await.expect("an answer");
    String::from_utf8_lossy(&body).into_owned()
}

/// The leader, from the text of the lease.
async fn holder(server: &Server) -> String {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let lease = read(server, path).await;
    let rest = lease.split_once("\"holderIdentity\":\"").map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or("").to_string()
}

async fn make_set(server: &Server, name: &str, replicas: usize) {
    let labels = format!(r#"{{"app":"{name}"}}"#);
    let spec = r#"{"containers":[{"name":"c","image":"i"}]}"#;
    let set = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{{"name":"{name}"}},"spec":{{"replicas":{replicas},
        "selector":{{"matchLabels":{labels}}},"template":{{"metadata":{{"labels":{labels}}},"spec":{spec}}}}}}}"#
    );
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let (code, body) = server.client().await.call("POST", path, &set).await.expect("an answer");
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
}

async fn pods(server: &Server, name: &str) -> usize {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
    read(server, &path).await.matches("\"creationTimestamp\"").count()
}

#[tokio::test]
async fn paused_leader_writes_nothing_twice() {
    let server = Server::start_with(&["--controllers", ""]);
    let hasty =
        ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms"];
    let mut first = Component::manager(&server, &hasty);
    until("the first one leads", async || !holder(&server).await.is_empty()).await;
    let leader = holder(&server).await;
    make_set(&server, "one", 3).await;
    until("its pods", async || pods(&server, "one").await == 3).await;
    let _second = Component::manager(&server, &hasty);
    first.signal("-STOP");
    until(
        "the second one leads",
        async || !matches!(holder(&server).await, other if other == leader || other.is_empty()),
    )
    .await;
    // The first process resumes with a set that it has not read yet, while the second one has the lease.
    make_set(&server, "two", 5).await;
    first.signal("-CONT");
    until("its pods", async || pods(&server, "two").await == 5).await;
    assert_ne!(first.wait().await, Some(0), "it has lost its lease");
    assert_eq!((pods(&server, "one").await, pods(&server, "two").await), (3, 5), "no pod too many");
}

#[tokio::test]
async fn manager_survives_a_killed_api_server() {
    let none = ["--controllers", ""];
    let mut server = Server::start_with(&none);
    let _manager = Component::manager(&server, &[]);
    make_set(&server, "one", 3).await;
    until("its pods", async || pods(&server, "one").await == 3).await;
    for name in ["two", "three"] {
        server.signal("-KILL");
        server.wait();
        server = Server::start_again(server.dir.clone(), server.port, &none);
        make_set(&server, name, 4).await;
        until("its pods", async || pods(&server, name).await == 4).await;
    }
    assert_eq!(pods(&server, "one").await, 3);
}
