//! Errors of the command line: they name the flag, the file, and the problem.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use cri::{RuntimeService, VersionRequest};

use crate::harness::Node;

/// Runs the program with these flags and its own directories, and returns its standard error.
fn refused(node: &Node, flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiphys-cri"));
    for (flag, path) in [("--socket", "other.sock"), ("--root", "other/root"), ("--state", "other/state")] {
        if !flags.contains(&flag) {
            command.arg(flag).arg(node.path(path));
        }
    }
    // If the program starts, it must not affect the machine.
    command.arg("--shim-cgroup").arg(format!("{}/shims", node.cgroup())).arg("--cni-cache-dir").arg(node.path("cni"));
    let output = command.args(flags).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{flags:?} are taken");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn errors_name_the_flag() {
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
        (&["--socket", &file], &["--socket", &file, "not a socket"]),
        (&["--socket", &socket], &["--socket", &socket, "another process is serving"]),
        (&["--socket", &long], &["--socket", &long]),
        (&["--root", &file], &["--root", &file]),
        (&["--state", &state], &[&state, "another tiphys (process "]),
        (&["--handler", &no_program], &["--handler", "/none", "No such file"]),
        (&["--handler", &not_program], &["--handler", &file, "Permission denied"]),
    ];
    for (flags, expected) in table {
        let text = refused(&node, flags);
        assert!(expected.iter().all(|word| text.contains(word)), "{flags:?}: {text}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept", "nothing of the user's is removed");
    node.runtime.version(VersionRequest::default()).await.unwrap();
    node.end().await;
}
