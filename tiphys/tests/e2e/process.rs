//! The process: start, errors, stop, restart, kill.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use stdx::wait::until_await;
use tokio::sync::watch;

use crate::support::{BINARY, Server, config_map, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn fails(arguments: &[&str], want: &[&str]) {
    let output = Command::new(BINARY).args(arguments).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
    for part in want {
        assert!(text.contains(part), "{arguments:?}: {part:?} is not in {text:?}");
    }
}

#[test]
fn prints_the_version() {
    let output = Command::new(BINARY).arg("version").output().expect("the binary starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Kubernetes 1.37"));
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"] {
        let output = Command::new(BINARY).args([component, "--version"]).output().expect("the binary starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.starts_with("Kubernetes v1.37."), "{component}: {printed}");
    }
}

#[tokio::test]
async fn components_inside_of_up_take_flags() {
    let dir = tempfile::tempdir().expect("a directory");
    let (tokens, profiles) = (dir.path().join("tokens"), dir.path().join("scheduler.yaml"));
    std::fs::write(&tokens, "secret,alice,1\n").expect("a file");
    let profile = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                   profiles: [{schedulerName: mine}]\n";
    std::fs::write(&profiles, profile).expect("a file");
    let (tokens, profiles) =
        (format!("token-auth-file={}", tokens.display()), format!("config={}", profiles.display()));
    let server = Server::start_with(&[
        "--apiserver-arg=enable-admission-plugins=AlwaysPullImages",
        "--kube-apiserver-arg",
        &tokens,
        "--controller-manager-arg=--concurrent-job-syncs=1",
        "--scheduler-arg",
        &profiles,
        "--fake-nodes=1",
    ]);
    let mut client = server.client().await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"schedulerName":"mine","automountServiceAccountToken":false,
        "containers":[{"name":"c","image":"a:1"}]}}"#;
    let pods = "/api/v1/namespaces/default/pods";
    let deadline = Duration::from_secs(30);
    // The pod needs the service account of its namespace.
    let is_created = async || client.call("POST", pods, pod).await.expect("an answer").0 == 201;
    until_await("a pod", deadline, is_created).await;
    let is_bound = async || {
        let (_, body) = client.call("GET", &format!("{pods}/p"), "").await.expect("an answer");
        let pod = api::json::decode(&body).expect("JSON");
        assert_eq!(pod.list("spec.containers")[0].str("imagePullPolicy"), "Always");
        !pod.str("spec.nodeName").is_empty()
    };
    until_await("a binding by its scheduler", deadline, is_bound).await;
    let url = format!("https://127.0.0.1:{}/apis/authentication.k8s.io/v1/selfsubjectreviews", server.port);
    let review = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
    let mut curl = Command::new("curl");
    curl.args([
        "-sk",
        "-H",
        "Authorization: Bearer secret",
        "-H",
        "Content-Type: application/json",
        "-d",
        review,
        &url,
    ]);
    let printed = curl.output().expect("curl is there");
    assert!(String::from_utf8_lossy(&printed.stdout).contains("alice"), "{}", String::from_utf8_lossy(&printed.stdout));
    let other = dir.path().join("other");
    let up = ["up", "--disable-agent", "--data-dir", other.to_str().expect("text")];
    fails(&[&up[..], &["--apiserver-arg=secure-port=1"]].concat(), &["--apiserver-arg: --secure-port"]);
    fails(&[&up[..], &["--kubelet-arg=max-pods=1"]].concat(), &["--kubelet-arg", "--disable-agent"]);
}

#[tokio::test]
async fn components_inside_of_up_are_healthy() {
    let server = Server::start();
    let (code, body) = server.client().await.call("GET", "/api/v1/componentstatuses", "").await.expect("an answer");
    let list = api::json::decode(&body).expect("JSON");
    assert_eq!((code, list.list("items").len()), (200, 3));
    for item in list.list("items") {
        let condition = &item.list("conditions")[0];
        assert_eq!(condition.str("status"), "True", "{}: {}", item.str("metadata.name"), condition.str("message"));
    }
}

#[test]
fn rejects_unsupported_flags_by_name() {
    fails(&["kube-apiserver", "--allow-privileged=false", "--nope"], &["--allow-privileged", "--nope"]);
    fails(&["kube-apiserver"], &["--etcd-servers", "--data-dir"]);
}

#[test]
fn errors_of_files_name_the_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let policy = write("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n");
    let encryption = write(
        "encryption.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - rot13: {}\n",
    );
    let data = format!("--data-dir={}", dir.path().join("data").display());
    let start = |flag: String, want: &[&str]| fails(&["kube-apiserver", &data, "--secure-port=1", &flag], want);
    start(format!("--audit-policy-file={policy}"), &["policy.yaml:4: rules[0].level: Everything"]);
    start(
        format!("--encryption-provider-config={encryption}"),
        &["encryption.yaml:6: resources[0].providers[0].rot13"],
    );
    start(format!("--audit-log-path={policy}"), &["--audit-policy-file"]);
}

#[test]
fn the_binary_is_a_component_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("kube-apiserver");
    std::os::unix::fs::symlink(BINARY, &link).expect("a link");
    let output = Command::new(&link).arg("--nope").output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: unknown flag: --nope\n");
}

#[test]
fn ports_and_directories_in_use_are_named() {
    let server = Server::start();
    let other = tempfile::tempdir().expect("a directory");
    let other = other.path().to_str().expect("text");
    let data = server.dir.path().join("data");
    let data = data.to_str().expect("text");
    let port = server.port.to_string();
    let words = ["127.0.0.1:", "is in use", "choose another one by --port"];
    fails(&["up", "--disable-agent", "--data-dir", other, "--port", &port], &words);
    let words = [&format!(":{port} is in use"), "choose another one by --secure-port"];
    let flags = ["--bind-address=127.0.0.1".to_string(), format!("--secure-port={port}")];
    let directory = format!("--data-dir={other}/apiserver");
    fails(&["kube-apiserver", &directory, &flags[0], &flags[1]], &words);
    let kubeconfig = format!("--kubeconfig={data}/kubeconfig");
    for component in ["kube-controller-manager", "kube-scheduler"] {
        fails(&[component, &kubeconfig, &flags[0], &flags[1]], &words);
    }
    fails(&["up", "--disable-agent", "--data-dir", data, "--port", "0"], &["is in use by another tiphys process (pid"]);
}

/// In a directory without a kubeconfig, and with a home that has none either.
fn fails_without_kubeconfig(arguments: &[&str], want: &[&str]) {
    let empty = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(empty.path()).env("HOME", empty.path()).env_remove("KUBECONFIG");
    let output = command.output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
    for part in want {
        assert!(text.contains(part), "{arguments:?}: {part:?} is not in {text:?}");
    }
}

#[test]
fn a_missing_kubeconfig_is_explained() {
    let where_it_looks = "no kubeconfig found in $KUBECONFIG, ./data/kubeconfig or ~/.kube/config";
    for arguments in [&["why", "pod", "p"][..], &["token", "list"], &["token", "create"]] {
        let words = [where_it_looks, "use --kubeconfig FILE", "`tiphys up` writes DATA_DIR/kubeconfig"];
        fails_without_kubeconfig(arguments, &words);
        let named: Vec<&str> = arguments.iter().copied().chain(["--kubeconfig", "/none/kubeconfig"]).collect();
        fails_without_kubeconfig(&named, &["/none/kubeconfig"]);
    }
}

#[test]
fn a_server_that_does_not_listen_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("kubeconfig");
    let server = format!("https://127.0.0.1:{}", crate::support::free_port());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    std::fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("text");
    for arguments in [&["why", "pod", "p"][..], &["token", "list"]] {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--kubeconfig", file]).collect();
        fails(&arguments, &[&format!("{server}: "), "Connection refused"]);
    }
}

#[test]
fn damaged_stores_are_reported_and_not_served() {
    let mut server = Server::start();
    server.signal("-TERM");
    server.wait();
    let store = server.dir.path().join("data/store");
    let log = std::fs::read_dir(&store).expect("a directory").filter_map(Result::ok).map(|entry| entry.path());
    let log = log.into_iter().find(|path| path.to_string_lossy().contains("log-")).expect("a log");
    let mut bytes = std::fs::read(&log).expect("a file");
    let at = bytes.windows(15).position(|window| window == b"kube-node-lease").expect("the namespace is there");
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).expect("a file");
    let data = server.dir.path().join("data");
    let name = log.file_name().expect("a name").to_string_lossy().into_owned();
    fails(
        &["up", "--disable-agent", "--port", "0", "--data-dir", data.to_str().expect("text")],
        &[&name, "is damaged at offset"],
    );
}

#[tokio::test]
async fn restart_keeps_all_objects() {
    for signal in ["-INT", "-TERM"] {
        let mut server = Server::start();
        let mut client = server.client().await;
        let (code, _) = client.call("POST", MAPS, &config_map("kept", "v")).await.expect("an answer");
        assert_eq!(code, 201);
        let (_, before) = client.call("GET", &format!("{MAPS}/kept"), "").await.expect("an answer");
        // An open watch must not keep the server from stopping.
        let watch = client.send(request("GET", &format!("{MAPS}?watch=1"), "")).await.expect("a watch");
        server.signal(signal);
        assert_eq!(server.wait(), Some(0), "{signal}");
        drop(watch);
        let again = Server::start_in(server.dir.clone());
        let (_, after) = again.client().await.call("GET", &format!("{MAPS}/kept"), "").await.expect("an answer");
        assert_eq!(before, after);
    }
}

/// Writes until the connection breaks; returns the last acknowledged value of each name.
async fn write(server: Arc<Server>, writer: usize, written: watch::Sender<usize>) -> BTreeMap<String, String> {
    let mut client = server.client().await;
    let mut acknowledged = BTreeMap::new();
    for round in 0.. {
        let name = format!("w{writer}-{round}");
        match client.call("POST", MAPS, &config_map(&name, "v")).await {
            Ok((201, _)) => {
                acknowledged.insert(name, "v".to_string());
                written.send_modify(|written| *written += 1);
            }
            Ok((code, body)) => panic!("{code}: {body:?}"),
            Err(_) => break,
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_outlive_a_kill() {
    let mut server = Arc::new(Server::start());
    for round in 0..3usize {
        let written = watch::Sender::new(0);
        let writer = |n: usize| tokio::spawn(write(server.clone(), round * 100 + n, written.clone()));
        let writers: Vec<_> = (0..16).map(writer).collect();
        // All writers are still active.
        let mut seen = written.subscribe();
        let enough = seen.wait_for(|written| *written >= 400);
        tokio::time::timeout(Duration::from_secs(60), enough).await.expect("400 writes").expect("writers");
        server.signal("-KILL");
        let mut acknowledged = BTreeMap::new();
        for writer in writers {
            acknowledged.extend(writer.await.expect("a writer ends well"));
        }
        assert!(acknowledged.len() >= 400, "only {} writes", acknowledged.len());
        // Its connections are closed before its files.
        Arc::get_mut(&mut server).expect("the writers have ended").wait();
        let dir = server.dir.clone();
        server = Arc::new(Server::start_in(dir));
        let (code, list) = server.client().await.call("GET", MAPS, "").await.expect("an answer");
        assert_eq!(code, 200);
        let list = String::from_utf8_lossy(&list);
        for name in acknowledged.keys() {
            assert!(list.contains(&format!("\"name\":\"{name}\"")), "{name} was acknowledged and is gone");
        }
    }
}

#[tokio::test]
async fn openapi_documents_are_compressed_and_have_etags() {
    let server = Server::start();
    let mut client = server.client().await;
    let path = "/openapi/v3/api/v1";
    let mut http_request = request("GET", path, "");
    http_request.headers_mut().insert("accept-encoding", "gzip".parse().expect("a value"));
    let response = client.send(http_request).await.expect("an answer");
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let etag = response.headers()["etag"].clone();
    http_body_util::BodyExt::collect(response.into_body()).await.expect("a body");
    let mut known = request("GET", path, "");
    known.headers_mut().insert("if-none-match", etag);
    let response = client.send(known).await.expect("an answer");
    assert_eq!(response.status(), 304);
    http_body_util::BodyExt::collect(response.into_body()).await.expect("a body");
    let (code, plain) = client.call("GET", path, "").await.expect("an answer");
    assert!(code == 200 && plain.starts_with(b"{\"components\""), "{code}");
    let (code, _) = client.call("GET", "/openapi/v3/api/v1?hash=OLD", "").await.expect("an answer");
    assert_eq!(code, 301);
}
