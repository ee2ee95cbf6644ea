//! The store of a real cluster moves to etcd and back; scheduled snapshots go to an S3-compatible service; the commands of
//! the documents run.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json};
use stdx::wait::{until_ok, until_ok_await};

use crate::support::{BINARY, Server, config_map, free_port, root, tool};

const PATIENCE: Duration = Duration::from_secs(60);

struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One member of etcd, and its URL.
fn start_etcd(dir: &Path) -> (ChildGuard, String) {
    let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let child = Command::new("etcd")
        .args(["--data-dir", dir.join("etcd").to_str().expect("text"), "--unsafe-no-fsync"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd is missing: run ./test, which installs it");
    let address = client.trim_start_matches("http://").to_string();
    until_ok("etcd listens", PATIENCE, || std::net::TcpStream::connect(&address));
    (ChildGuard(child), client)
}

fn tiphys(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = tiphys(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

#[track_caller]
fn fails(arguments: &[&str], word: &str) {
    let output = tiphys(arguments);
    assert!(!output.status.success() && text(&output).contains(word), "{arguments:?}: {}", text(&output));
}

async fn get(server: &Server, path: &str) -> Tree {
    let (code, body) = server.client().await.call("GET", path, "").await.expect("a response");
    assert_eq!(code, 200, "{}", String::from_utf8_lossy(&body));
    json::decode(&body).expect("JSON")
}

/// Names, UIDs and data of all ConfigMaps in the namespace.
async fn objects(server: &Server) -> Vec<(String, String, String)> {
    let list = get(server, "/api/v1/namespaces/default/configmaps").await;
    let of = |item: &Tree| {
        let data = String::from_utf8_lossy(&json::encode(item.at("data"), None)).into_owned();
        (item.str("metadata.name").to_string(), item.str("metadata.uid").to_string(), data)
    };
    list.list("items").iter().filter(|item| item.str("metadata.name") != "kube-root-ca.crt").map(of).collect()
}

async fn create(server: &Server, count: u32, prefix: &str) {
    let mut client = server.client().await;
    for number in 0..count {
        let body = config_map(&format!("{prefix}-{number:05}"), "value");
        let (code, _) = client.call("POST", "/api/v1/namespaces/default/configmaps", &body).await.expect("a response");
        assert_eq!(code, 201);
    }
}

fn stop(mut server: Server) -> Arc<tempfile::TempDir> {
    server.signal("-TERM");
    server.wait();
    server.dir.clone()
}

/// `TIPHYS_STORE_OBJECTS=20000` for more.
#[tokio::test]
async fn objects_move_to_etcd_and_back() {
    let count = std::env::var("TIPHYS_STORE_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let scratch = tempfile::tempdir().expect("a directory");
    let (_etcd, url) = start_etcd(scratch.path());
    let server = Server::start();
    create(&server, count, "before").await;
    let before = objects(&server).await;
    let version = get(&server, "/api/v1/namespaces/default/configmaps?limit=1").await;
    let version = version.str("metadata.resourceVersion").to_string();
    let data = server.dir.path().join("data").display().to_string();
    fails(&["store", "copy", "--from", &data, "--to", &url], &format!("pid {}", server.process.id()));
    assert!(succeeds(&["store", "status", "--data-dir", &data]).contains("in use by a server"));
    let port = server.port;
    let dir = stop(server);
    let copied = succeeds(&["store", "copy", "--from", &data, "--to", &url]);
    assert!(copied.contains("copied and verified"), "{copied}");
    fails(&["store", "copy", "--from", &data, "--to", &url], "already");
    assert!(succeeds(&["store", "verify", "--etcd-servers", &url]).contains("hash"));

    let of_etcd = format!("--apiserver-arg=etcd-servers={url}");
    let server = Server::start_again(dir, port, &[&of_etcd]);
    assert_eq!(objects(&server).await, before);
    let watch = format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5&resourceVersion={version}");
    let (_, events) = server.client().await.call("GET", &watch, "").await.expect("a response");
    let events = String::from_utf8_lossy(&events).into_owned();
    assert!(events.contains("410"), "a client with an old version is told to list again: {events}");
    create(&server, 5, "in-etcd").await;
    let with_new = objects(&server).await;
    let versions = get(&server, "/api/v1/namespaces/default/configmaps").await;
    fails(&["store", "copy", "--from", &url, "--to", &data], "contains a store already");
    let store = Path::new(&data).join("store");
    std::fs::rename(&store, Path::new(&data).join("store.before-etcd")).expect("renamed");
    let other = scratch.path().join("other").display().to_string();
    fails(&["store", "copy", "--from", &url, "--to", &other], "an API server runs on this etcd");
    let dir = stop(server);
    succeeds(&["store", "copy", "--from", &url, "--to", &data]);

    let server = Server::start_again(dir, port, &[]);
    assert_eq!(objects(&server).await, with_new);
    let after = get(&server, "/api/v1/namespaces/default/configmaps/before-00000").await;
    let there = versions.list("items").iter().find(|item| item.str("metadata.name") == "before-00000").expect("there");
    assert_eq!(after.str("metadata.resourceVersion"), there.str("metadata.resourceVersion"), "versions are kept");
    create(&server, 1, "after").await;
    let _dir = stop(server);
    let status = succeeds(&["store", "status", "--data-dir", &data]);
    assert!(status.contains("state        closed"), "{status}");
    succeeds(&["store", "compact", "--data-dir", &data]);
    fails(&["store", "defrag", "--data-dir", &data], "tiphys store compact");
    succeeds(&["store", "verify", "--data-dir", &data]);
}

/// Starts moto, and creates a bucket.
async fn start_s3(port: u16) -> ChildGuard {
    let child = Command::new(tool("services/bin/moto_server"))
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("moto is missing: run ./test, which installs it");
    let child = ChildGuard(child);
    let create = || {
        let output = curl(&["-X", "PUT", &format!("http://127.0.0.1:{port}/backups")]);
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    };
    until_ok("the service creates a bucket", PATIENCE, create);
    child
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").args(["-sSf"]).args(arguments).output().expect("curl is there")
}

#[tokio::test]
async fn scheduled_snapshots_go_to_a_bucket() {
    let port = free_port();
    let _s3 = start_s3(port).await;
    let scratch = tempfile::tempdir().expect("a directory");
    let credentials = scratch.path().join("credentials");
    let secret = "a-secret-that-no-log-may-show";
    let file = format!("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {secret}\n");
    std::fs::write(&credentials, file).expect("a file");
    let (endpoint, credentials) = (format!("http://127.0.0.1:{port}"), credentials.display().to_string());
    let server = Server::start_with(&[
        "--snapshot-schedule=@every 1s",
        "--snapshot-retention=2",
        "--snapshot-dir=s3://backups/cluster/a",
        &format!("--snapshot-s3-endpoint={endpoint}"),
        &format!("--snapshot-s3-credentials-file={credentials}"),
    ]);
    create(&server, 20, "saved").await;
    let saved = objects(&server).await;
    let list = || {
        let page = curl(&[&format!("{endpoint}/backups?list-type=2&prefix=cluster/a/")]);
        let page = String::from_utf8_lossy(&page.stdout).into_owned();
        let keys = page.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
        keys.map(|(key, _)| key.to_string()).collect::<Vec<_>>()
    };
    let first = until_ok("a snapshot", PATIENCE, || list().into_iter().next().ok_or("there is none"));
    let rotated = || match list() {
        keys if keys.len() == 2 && !keys.contains(&first) => Ok(keys),
        keys => Err(format!("{keys:?}")),
    };
    until_ok("older snapshots are removed", PATIENCE, rotated);
    stop(server);
    let newest = list().pop().expect("a snapshot");
    let snapshot = scratch.path().join("snapshot").display().to_string();
    let signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &format!("AKIATEST:{secret}")];
    let object = format!("{endpoint}/backups/{newest}");
    let saved_copy = curl(&[&signed[..], &["-o", &snapshot, &object]].concat());
    assert!(saved_copy.status.success(), "{newest}: {}", text(&saved_copy));
    succeeds(&["store", "verify", &snapshot]);
    let restored = Arc::new(tempfile::tempdir().expect("a directory"));
    let data = restored.path().join("data").display().to_string();
    succeeds(&["store", "restore", &snapshot, "--data-dir", &data]);
    fails(&["store", "restore", &snapshot, "--data-dir", &data], "contains a store already");
    let server = Server::start_in(restored);
    assert_eq!(objects(&server).await, saved);
}

/// The commands of a section of the document, without comments.
fn commands(document: &str, section: &str) -> String {
    let start = format!("<!-- test: {section} -->\n```sh\n");
    let (_, rest) = document.split_once(&start).expect("the section is there");
    rest.split_once("```").expect("it ends").0.to_string()
}

#[tokio::test]
async fn commands_of_the_document_work() {
    let document = std::fs::read_to_string(root().join("docs/operations/store.md")).expect("the document");
    let scratch = tempfile::tempdir().expect("a directory");
    let (_etcd, url) = start_etcd(scratch.path());
    let server = Server::start();
    create(&server, 10, "saved").await;
    let data = server.dir.path().join("data").display().to_string();
    let bin = scratch.path().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(BINARY, bin.join("tiphys")).expect("a link");
    let run = |section: &str| {
        let script = commands(&document, section)
            .replace("https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379", &url)
            .replace("/var/lib/tiphys", &data)
            .replace(" --etcd-cafile ca.crt --etcd-certfile etcd-client.crt --etcd-keyfile etcd-client.key", "");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh").args(["-exc", &script]).env("PATH", path).current_dir(scratch.path()).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{section}: {}", text(&output));
    };
    run("backup");
    let dir = stop(server);
    run("offline");
    run("move to etcd");
    run("maintain etcd");
    run("move back");
    // A restored store has revisions that etcd cannot reach.
    run("restore");
    let server = Server::start_in(dir);
    let names = async || {
        let names: Vec<String> = objects(&server).await.into_iter().map(|(name, _, _)| name).collect();
        if names.len() == 10 { Ok(()) } else { Err(format!("{names:?}")) }
    };
    until_ok_await("the objects", PATIENCE, names).await;
}
