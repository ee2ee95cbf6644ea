//! The past of objects by the commands of the binary: after kills, restarts and compactions of the log.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{BINARY, Server};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(server: &Server, arguments: &[&str]) -> Output {
    let command = |binary: &str| Command::new(binary).args(arguments).env("KUBECONFIG", server.kubeconfig()).output();
    command(BINARY).expect("the binary runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn succeeds(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// The command ends with this code, and says this.
#[track_caller]
fn ends(server: &Server, arguments: &[&str], code: i32, words: &str) -> String {
    let output = run(server, arguments);
    let shown = text(&output);
    assert!(output.status.code() == Some(code) && shown.contains(words), "{arguments:?}: {:?} {shown}", output.status);
    shown
}

fn revision(server: &Server, object: &str) -> String {
    succeeds(server, &["kubectl", "get", object, "-o", "jsonpath={.metadata.resourceVersion}"])
}

fn value(server: &Server, arguments: &[&str]) -> String {
    let format = ["-o", "jsonpath={.data.value}"];
    succeeds(server, &[&["kubectl", "get", "configmap/a"], arguments, &format].concat())
}

fn set(server: &Server, value: &str) {
    let patch = format!("{{\"data\":{{\"value\":\"{value}\"}}}}");
    succeeds(server, &["kubectl", "patch", "configmap", "a", "--type=merge", "-p", &patch]);
}

/// Kills the server, and starts another on its data.
fn kill(mut server: Server) -> Server {
    server.signal("-KILL");
    server.wait();
    Server::start_in(server.dir.clone())
}

fn history_files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let count = |entry: std::fs::DirEntry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => history_files(&entry.path()),
        false => usize::from(entry.file_name().to_string_lossy().starts_with("history-")),
    };
    entries.map(count).sum()
}

#[test]
fn objects_are_shown_compared_and_restored_as_they_were() {
    let server = Server::start();
    succeeds(&server, &["kubectl", "create", "configmap", "a", "--from-literal=value=one"]);
    let first = revision(&server, "configmap/a");
    set(&server, "two");
    succeeds(&server, &["kubectl", "create", "secret", "generic", "s", "--from-literal=password=hidden"]);
    let second = revision(&server, "secret/s");
    let server = kill(server);
    let shown = succeeds(&server, &["history", "configmap", "a"]);
    for part in
        [&format!("revision {first}  ")[..], "created", "patched", "(kubectl/", "-   value: one", "+   value: two"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = succeeds(&server, &["history", "configmap/a", "-o", "json"]);
    assert!(json.contains("\"kind\": \"ObjectHistory\"") && json.contains("\"auditID\""), "{json}");
    assert_eq!(value(&server, &["--at", &first]), "one");
    assert!(succeeds(&server, &["kubectl", "get", "configmaps", "--at", &first]).contains("a  "));
    ends(&server, &["kubectl", "get", "secret/s", "--at", &first], 1, "not found");
    let differences = ends(&server, &["diff", "--at", &first, "--at", &second], 1, "configmap/a changed");
    assert!(differences.contains("secret/s created") && !differences.contains("aGlkZGVu"), "{differences}");
    ends(&server, &["diff", "--at", &second, "--at", &second], 0, "");
    ends(&server, &["diff"], 2, "give --at once or twice");
    assert!(succeeds(&server, &["history", "secret/s"]).contains("*** (value 1)"));
    assert!(succeeds(&server, &["history", "secret/s", "--show-values"]).contains("aGlkZGVu"));
    // Nothing is changed without a confirmation.
    ends(&server, &["undo", "configmap/a", "--to", &first], 1, "confirm with --yes");
    let preview = succeeds(&server, &["undo", "configmap/a", "--to", &first, "--dry-run"]);
    assert!(preview.contains("-   value: two") && preview.contains("+   value: one"), "{preview}");
    assert_eq!(value(&server, &[]), "two");
    succeeds(&server, &["undo", "configmap/a", "--to", &first, "--yes"]);
    assert_eq!(value(&server, &[]), "one");
    succeeds(&server, &["kubectl", "delete", "configmap", "a"]);
    succeeds(&server, &["undo", "configmap/a", "--to", &first, "--yes"]);
    assert_eq!(value(&server, &[]), "one");
    assert!(succeeds(&server, &["history", "configmap/a"]).contains("created anew"));
    ends(&server, &["undo", "configmap/a", "--to", "1"], 1, "not found");
}

#[test]
fn versions_and_causes_outlive_a_compaction_of_the_log() {
    let server = Server::start();
    succeeds(&server, &["kubectl", "create", "configmap", "a", "--from-literal=value=one"]);
    let first = revision(&server, "configmap/a");
    set(&server, "two");
    let filler = server.dir.path().join("filler");
    std::fs::write(&filler, "x".repeat(900 << 10)).expect("a file");
    let filler = format!("--from-file=filler={}", filler.display());
    // The log is compacted at 16 MiB.
    for number in 0..20 {
        let name = format!("filler-{number}");
        succeeds(&server, &["kubectl", "create", "configmap", &name, &filler]);
        succeeds(&server, &["kubectl", "delete", "configmap", &name]);
    }
    let data = server.dir.path().join("data");
    stdx::wait::until("a history file", PATIENCE, || history_files(&data) > 0);
    let server = kill(server);
    let shown = succeeds(&server, &["history", "configmap/a"]);
    assert!(shown.contains("created") && shown.contains("(kubectl/") && shown.contains("-   value: one"), "{shown}");
    assert_eq!(value(&server, &["--at", &first]), "one");
}
