//! `tiphys images`, and the demo image that is built from the binary. Needs root to run the image.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

const DEMO: &str = "tiphys.local/hello";

fn images(root: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tiphys")).arg("images").args(args).arg("--root").arg(root).output();
    output.expect("the binary runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The directory of the one layer that the demo image has.
fn content(root: &Path) -> PathBuf {
    let layers = std::fs::read_dir(root.join("layers")).expect("there are layers");
    let mut paths = layers.map(|entry| entry.expect("a layer").path()).filter(|path| !path.ends_with("empty"));
    paths.next().expect("there is a layer").join("fs")
}

struct ImageServer(Child);

impl Drop for ImageServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    stdx::wait::until_ok(what, Duration::from_secs(20), || look().ok_or(""))
}

#[test]
fn demo_image_runs_on_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("store");
    let id = text(&images(&root, &["pull", DEMO]));
    assert!(id.starts_with("sha256:"), "{id}");
    let listed = text(&images(&root, &["list"]));
    assert!(listed.contains("tiphys.local/hello:latest") && listed.contains("yes"), "{listed}");
    let chroot = || {
        let mut command = Command::new("chroot");
        command.arg(content(&root)).args(["/tiphys", "hello"]);
        command
    };
    let status = chroot().args(["exit", "7"]).status().expect("chroot is there");
    assert_eq!(status.code(), Some(7));

    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let server = chroot().args(["--port", &port.to_string()]).env("POD_NAME", "web-0").spawn().expect("it starts");
    let mut server = ImageServer(server);
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = until("it answers", || ask(port, request));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Hello from web-0"), "{answer}");
    let file = ask(port, &request.replace("GET /", "GET /files/etc/passwd")).expect("an answer");
    assert!(file.contains("nobody"), "{file}");
    ask(port, "POST /exit?code=3 HTTP/1.1\r\n\r\n");
    let status = until("it ends", || server.0.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(3));
}

#[test]
fn images_are_exported_and_imported() {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, other) = (directory.path().join("store"), directory.path().join("other"));
    let id = text(&images(&root, &["pull", DEMO]));
    let file = directory.path().join("demo.tar");
    let file = file.to_str().expect("a path");
    text(&images(&root, &["export", DEMO, "--output", file]));
    assert_eq!(text(&images(&other, &["import", file])), id);
    let pinned = images(&root, &["remove", DEMO]);
    assert!(String::from_utf8_lossy(&pinned.stderr).contains("is pinned"), "{pinned:?}");
    assert_eq!(text(&images(&root, &["remove", "--force", DEMO])), id);
    assert_eq!(text(&images(&root, &["list", "--quiet"])), "");
    assert_eq!(text(&images(&other, &["prune", "--all"])), id);
    let missing = images(&root, &["remove", "nothing"]);
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "error: image \"nothing\" is not present\n");
    let refused = images(&root, &["pull", "Not A Name"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("invalid image reference"), "{refused:?}");
}
