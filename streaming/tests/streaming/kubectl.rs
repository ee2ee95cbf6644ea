//! Every installed kubectl against the crate's servers: older ones use SPDY, newer ones WebSocket and SPDY tunneled
//! in WebSocket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::ports::echo;
use crate::server::{RequestLog, start_noting, within};

fn version_of(binary: &Path) -> Option<(u32, u32)> {
    let output = std::process::Command::new(binary).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let number = |name: &str| version["clientVersion"][name].as_str()?.trim_end_matches('+').parse().ok();
    Some((number("major")?, number("minor")?))
}

/// Debian's old version must be installed; others next to the one on the path are used too.
fn binaries() -> BTreeMap<(u32, u32), PathBuf> {
    let tools = std::env::var_os("TIPHYS_TEST_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-tools"));
    let debian = tools.join("kubectl-1.20/usr/bin/kubectl");
    assert!(debian.exists(), "run ./test --prepare: {} is missing", debian.display());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("kubectl")).find(|file| file.exists());
    let directory = on_path.and_then(|file| file.canonicalize().ok()?.parent().map(Path::to_path_buf));
    let beside = directory.into_iter().flat_map(|directory| directory.read_dir().into_iter().flatten().flatten());
    let beside = beside
        .map(|entry| entry.path())
        .filter(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("kubectl")));
    beside.chain([debian]).filter_map(|file| Some((version_of(&file)?, file))).collect()
}

struct Kubectl {
    binary: PathBuf,
    server: String,
    home: PathBuf,
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(format!("--server={}", self.server)).args(arguments);
        command.env("HOME", &self.home).env("KUBECONFIG", "/dev/null").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = tokio::spawn(async move { stdin.write_all(&input).await });
        let output = within(child.wait_with_output()).await.unwrap();
        // A command that needs no input may end before reading it.
        let _ = feeding.await.unwrap();
        output
    }

    async fn all(&self) {
        self.exec().await;
        self.copy().await;
        self.attach().await;
        self.port_forward().await;
        self.terminal().await;
        let _ = std::fs::remove_dir_all(&self.home);
    }

    /// Each command reads its input to the end before it writes. Several kubectl versions listen before they have
    /// created their streams and drop earlier data; input is sent only after the streams exist.
    async fn exec(&self) {
        let output = self.run(&["exec", "-i", "web", "--", "cat"], b"hi\n").await;
        self.assert(&output, 0, "hi\n", "");
        let output =
            self.run(&["exec", "-i", "web", "--", "sh", "-c", "cat; echo out; echo err >&2; exit 7"], b"").await;
        self.assert(&output, 7, "out\n", "err\ncommand terminated with exit code 7\n");
        let output = self.run(&["exec", "-i", "web", "--", "/does/not/exist"], b"").await;
        assert_eq!(output.status.code(), Some(1), "{:?}", self.binary);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("error executing command in container: No such file"), "{:?}: {printed}", self.binary);
    }

    /// Ten megabytes in both directions, like copying a file.
    async fn copy(&self) {
        let sent: Vec<u8> = (0..10_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let output = self.run(&["exec", "-i", "web", "--", "cat"], &sent).await;
        assert!(output.stdout == sent, "{:?}: {} bytes", self.binary, output.stdout.len());
    }

    async fn attach(&self) {
        let output = self.run(&["attach", "-i", "web"], b"typed\n").await;
        assert_eq!(output.status.code(), Some(0), "{:?}: {output:?}", self.binary);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "typed\nattached\n", "{:?}", self.binary);
    }

    async fn port_forward(&self) {
        let target = echo().await;
        let mut child = self.command(&["port-forward", "pod/web", &format!(":{target}")]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within(lines.next_line()).await.unwrap().expect("it says where it listens");
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_string();
        let address = format!("127.0.0.1:{port}");
        let mut open = Vec::new();
        for number in 0..5u8 {
            let mut socket = TcpStream::connect(&address).await.unwrap();
            socket.write_all(&vec![number; 200_000]).await.unwrap();
            open.push((number, socket));
        }
        for (number, mut socket) in open {
            socket.shutdown().await.unwrap();
            let mut answer = Vec::new();
            within(socket.read_to_end(&mut answer)).await.unwrap();
            assert!(answer == vec![number; 200_000], "{:?}: {} bytes", self.binary, answer.len());
        }
        child.kill().await.unwrap();
    }

    /// A terminal for kubectl, created by `script`.
    async fn terminal(&self) {
        let line =
            format!("stty rows 43 cols 132; {} --server={} exec -it web -- size", self.binary.display(), self.server);
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("HOME", &self.home).env("KUBECONFIG", "/dev/null");
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = within(output).await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("132x43"), "{:?}: {printed}", self.binary);
    }

    fn assert(&self, output: &Output, code: i32, stdout: &str, stderr: &str) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The same versions complain about the empty first message.
        let is_greeting = |line: &&str| line.contains("Unknown stream id 1, discarding message");
        let errors: String = text(&output.stderr).split_inclusive('\n').filter(|line| !is_greeting(line)).collect();
        let seen = (output.status.code(), text(&output.stdout), errors);
        assert_eq!(seen, (Some(code), stdout.to_string(), stderr.to_string()), "{:?}", self.binary);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_with_every_kubectl() {
    let seen = RequestLog::default();
    let server = format!("http://127.0.0.1:{}", start_noting(seen.clone()).await);
    let binaries = binaries();
    let newest = binaries.keys().last().copied().unwrap_or_default();
    println!("kubectl versions driven: {:?}", binaries.keys().collect::<Vec<_>>());
    let mut running = JoinSet::new();
    for (version, binary) in binaries {
        let home = std::env::temp_dir().join(format!("streaming-{}-{}", std::process::id(), version.1));
        let kubectl = Kubectl { binary, server: server.clone(), home };
        running.spawn(async move { kubectl.all().await });
    }
    running.join_all().await;
    let seen = seen.lock();
    println!("protocols spoken: {seen:?}");
    let spoke = |what: &str| assert!(seen.contains(what), "{what} is not in {seen:?}");
    ["exec", "attach"].iter().for_each(|verb| spoke(&format!("{verb} SPDY/3.1 v4.channel.k8s.io")));
    spoke("portforward SPDY/3.1 portforward.k8s.io");
    // Newer versions prefer WebSocket.
    if newest >= (1, 31) {
        spoke("exec websocket v5.channel.k8s.io");
        spoke("attach websocket v5.channel.k8s.io");
        spoke("portforward websocket SPDY/3.1+portforward.k8s.io");
    }
}
