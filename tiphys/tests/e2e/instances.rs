//! Clusters in the background: `up --detach`, `status`, `logs`, `list` and `down`.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::BINARY;

/// A home for named clusters; what still runs there at the end is killed.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a directory"))
    }

    fn tiphys(&self, words: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(self.0.path());
        command.env("TIPHYS_HOME", self.0.path()).env("KUBECONFIG", self.0.path().join("config"));
        command.output().expect("the binary starts")
    }

    /// The output of a command that succeeds.
    fn run(&self, words: &[&str]) -> String {
        let output = self.tiphys(words);
        assert!(output.status.success(), "{words:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// The errors of a command that fails.
    fn fail(&self, words: &[&str]) -> String {
        let output = self.tiphys(words);
        assert!(!output.status.success(), "{words:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn data(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join("clusters").join(name)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for name in ["dev", "test"] {
            let _ = self.tiphys(&["down", "--name", name, "--timeout", "5"]);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_listed(list: &str, name: &str, status: &str) -> bool {
    list.lines().any(|line| line.split_whitespace().take(2).eq([name, status]))
}

#[test]
fn clusters_run_in_the_background() {
    let home = Home::new();
    assert!(home.run(&["list"]).contains("no clusters"));
    let up = ["up", "--detach", "--disable-agent", "--port", "0"];
    let started = home.run(&[&up[..], &["--name", "dev", "--merge-kubeconfig"]].concat());
    assert!(started.contains("✓ API server") && started.contains("`tiphys down --name dev` stops it"), "{started}");
    home.run(&[&up[..], &["--name", "test"]].concat());
    let list = home.run(&["list"]);
    assert!(is_listed(&list, "dev", "running") && is_listed(&list, "test", "running"), "{list}");

    let status = home.run(&["status", "--name", "dev"]);
    assert!(status.starts_with("cluster dev runs since") && status.contains("✓ scheduler"), "{status}");
    let status = api::json::decode(home.run(&["status", "--name", "test", "-o", "json"]).as_bytes()).expect("JSON");
    assert_eq!((status.str("status"), status.at("healthy").as_bool()), ("running", Some(true)));
    // The merged context works with any client.
    let versions = home.run(&["kubectl", "--context", "tiphys-dev", "version"]);
    assert!(versions.contains("Server Version: v1.37"), "{versions}");

    let error = home.fail(&[&up[..], &["--name", "dev"]].concat());
    assert!(error.contains("in use by another tiphys process") && error.contains("tiphys down"), "{error}");
    assert!(home.run(&["down", "--name", "dev"]).ends_with("stopped\n"));
    let list = home.run(&["list"]);
    assert!(is_listed(&list, "dev", "stopped") && is_listed(&list, "test", "running"), "{list}");
    assert!(home.fail(&["status", "--name", "dev"]).contains("`tiphys up --name dev` starts it"));
    assert!(home.run(&["down", "--name", "dev"]).contains("is not running"));
    home.run(&["down", "--name", "test"]);
    assert!(!home.0.path().join("running").exists(), "nothing is left of what ran");
    assert!(!home.data("dev").join("run.json").exists());
}

#[test]
fn failed_starts_in_the_background_say_why() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let error = home.fail(&["up", "-d", "--disable-agent", "--name", "dev", "--port", &port]);
    assert!(error.contains("is in use") && error.contains("--port"), "{error}");
    assert!(home.fail(&["status"]).contains("`tiphys up` starts one"));
    assert!(home.fail(&["up", "--name", "../dev"]).contains("--name"));
    let log = std::fs::read_to_string(home.data("dev").join("logs/tiphys.log")).expect("a log");
    assert!(log.contains("error: "), "{log}");
}

#[test]
fn logs_are_kept_and_selected_by_component() {
    let home = Home::new();
    let up = ["up", "-d", "--disable-agent", "--port", "0", "--log-level", "info", "--name", "dev"];
    home.run(&up);
    let all = home.run(&["logs", "--name", "dev"]);
    assert!(all.contains("serving"), "{all}");
    assert_eq!(home.run(&["logs", "--name", "dev", "cluster"]), all);
    assert_eq!(home.run(&["logs", "--name", "dev", "dns"]), "");
    assert_eq!(home.run(&["logs", "--name", "dev", "--tail", "1"]).lines().count(), 1);
    assert!(home.fail(&["logs", "--name", "dev", "etcd"]).contains("is not a component"));
    follows(&home.data("dev"));
}

/// A server that a service manager would start.
struct ServerProcess(std::process::Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_have_a_status_and_logs() {
    let home = Home::new();
    let data_dir = home.0.path().join("server");
    let mut server = Command::new(BINARY);
    server.args(["server", "--bind-address", "127.0.0.1", "--port", "0", "--data-dir"]).arg(&data_dir);
    server.env("TIPHYS_HOME", home.0.path()).stderr(std::process::Stdio::null());
    let mut server = ServerProcess(server.spawn().expect("the binary starts"));
    let of_server = ["--data-dir", data_dir.to_str().expect("text")];
    let deadline = std::time::Duration::from_secs(60);
    stdx::wait::until("its state", deadline, || data_dir.join("run.json").exists());
    let status = home.run(&[&["status"], &of_server[..]].concat());
    assert!(status.contains("runs since") && status.contains("✓ scheduler"), "{status}");
    assert!(home.run(&[&["logs"], &of_server[..]].concat()).contains("serving"));
    assert!(is_listed(&home.run(&["list"]), "tiphys", "running"));
    assert!(home.run(&[&["down"], &of_server[..]].concat()).ends_with("stopped\n"));
    assert!(server.0.wait().expect("it is our child").success());
    assert!(home.fail(&[&["status"], &of_server[..]].concat()).contains("is not running"));
}

#[test]
fn machines_are_checked() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = home.tiphys(&["check", "--listen", &address]);
    let shown = text(&output.stdout);
    assert!(!output.status.success() && shown.contains(&format!("{address} is in use")), "{shown}");
    assert!(shown.lines().any(|line| line.split_whitespace().take(2).eq(["kernel", "ok"])), "{shown}");
    let json = api::json::decode(&home.tiphys(&["check", "-o", "json"]).stdout).expect("JSON");
    assert!(json.as_list().is_some_and(|checks| checks.iter().all(|check| !check.str("result").is_empty())));
}

/// `logs --follow` prints what is written later.
fn follows(data_dir: &Path) {
    use std::io::{BufRead, BufReader, Write};
    let mut command = Command::new(BINARY);
    command.args(["logs", "--follow", "--tail", "0", "--data-dir"]).arg(data_dir);
    let mut follower = command.stdout(std::process::Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(follower.stdout.take().expect("it is piped")).lines();
    let mut log = std::fs::OpenOptions::new().append(true).open(data_dir.join("logs/tiphys.log")).expect("the log");
    // Written until the follower has opened the file, since it starts at the end.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(lines.next()));
    let line = stdx::wait::until_ok("a line", std::time::Duration::from_secs(20), || {
        writeln!(log, "2026-01-01T00:00:00Z  INFO cluster: a late line").expect("a line");
        receiver.try_recv()
    });
    let _ = follower.kill();
    let _ = follower.wait();
    assert!(line.expect("a line").expect("text").contains("a late line"));
}
