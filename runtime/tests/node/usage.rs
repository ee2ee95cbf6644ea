//! What is said to somebody who starts the runtime wrongly: the flag, the file, and what is the matter with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use cri::{RuntimeService, VersionRequest};

use crate::harness::Node;

/// Runs the program with a flag of the test's and directories of its own, and gives what it says at its end.
fn refused(node: &Node, flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiphys-cri"));
    for (flag, path) in [("--socket", "other.sock"), ("--root", "other/root"), ("--state", "other/state")] {
        if !flags.contains(&flag) {
            command.arg(flag).arg(node.path(path));
        }
    }
    // Nothing of the machine's is touched by what comes far enough to begin.
    command.arg("--shim-cgroup").arg(format!("{}/shims", node.cgroup())).arg("--cni-cache-dir").arg(node.path("cni"));
    let output = command.args(flags).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{flags:?} are taken");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn wrong_flags_are_named() {
    let node = Node::start().await;
    let path = |name: &str| node.path(name).to_string_lossy().into_owned();
    let (file, socket, state) = (path("file"), path("cri.sock"), path("state"));
    fs::write(&file, "kept").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let below = format!("{file}/x");
    let (not_program, no_program) = (format!("x={file}"), "x=/none".to_string());
    let long = path(&"x".repeat(200));
    let table: [(&[&str], &[&str]); 12] = [
        (&["--bogus"], &["'--bogus'"]),
        (&["extra"], &["'extra'"]),
        (&["--streaming-address", "nowhere"], &["--streaming-address", "'nowhere'"]),
        (&["--streaming-address", "192.0.2.1:1"], &["192.0.2.1:1", "Cannot assign"]),
        (&["--socket", &below], &["--socket", &file]),
        (&["--socket", &file], &["--socket", &file, "something else is there"]),
        (&["--socket", &socket], &["--socket", &socket, "another runtime serves it"]),
        (&["--socket", &long], &["--socket", &long]),
        (&["--root", &file], &["--root", &file]),
        (&["--state", &state], &[&state, "another tiphys (process "]),
        (&["--handler", &no_program], &["--handler", "/none", "No such file"]),
        (&["--handler", &not_program], &["--handler", &file, "Permission denied"]),
    ];
    for (flags, expected) in table {
        let said = refused(&node, flags);
        assert!(expected.iter().all(|word| said.contains(word)), "{flags:?}: {said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept", "nothing of the user's is removed");
    node.runtime.version(VersionRequest::default()).await.unwrap();
    node.end().await;
}
