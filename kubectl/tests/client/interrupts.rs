//! Pipes that close, and signals: a command ends, and a terminal is as it was before.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Reply, User, Web, discovery, json, path, program, read_head, table};

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill is there");
    assert!(status.success());
}

/// Waits for the end of a process, which must be soon.
fn ended(child: &mut Child) -> std::process::ExitStatus {
    let look = || child.try_wait().expect("it is a child").ok_or("it runs");
    stdx::wait::until_ok("the end of kubectl", Duration::from_secs(20), look)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_pipe_ends_the_command_silently() {
    let server = Web::start(|_| json(&"x\n".repeat(1_000_000))).await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let mut child = user.command("get --raw /").spawn().expect("kubectl");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    drop(out);
    let status = ended(&mut child);
    let mut err = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut err).expect("text");
    assert_eq!((status.code(), err.as_str(), line.as_str()), (Some(141), "", "x\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_watch() {
    let server = Web::start(|head| {
        discovery(head).unwrap_or_else(|| match head.contains("watch=true") {
            true => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_vec()),
            false => json(&table(&["first"])),
        })
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let mut child = user.command("get pods --watch").spawn().expect("kubectl");
    server.wait_for("watch=true").await;
    signal("-INT", child.id());
    assert!(!ended(&mut child).success());
    let mut out = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut out).expect("text");
    assert!(out.ends_with("first\n"), "what was there before is shown: {out:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_can_have_several_types() {
    let event = |name: &str| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", table(&[name]));
    let server = Web::start(move |head| {
        discovery(head).unwrap_or_else(|| {
            let name = if path(head).contains("/pods") { "new-pod" } else { "new-map" };
            match head.contains("watch=true") {
                true => Reply::Stall(
                    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", event(name)).into_bytes(),
                ),
                false => json(&table(&[])),
            }
        })
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let mut child = user.command("get pods,configmaps --watch").spawn().expect("kubectl");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let mut seen: Vec<String> = lines.filter(|line| line.contains("new-")).take(2).collect();
    seen.sort();
    assert_eq!(seen, ["configmap/new-map", "pod/new-pod"]);
    signal("-TERM", child.id());
    ended(&mut child);
}

/// A server of pods whose exec, over WebSocket, prints a word and then waits.
async fn exec_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Some(head) = read_head(&mut stream).await else { return };
                let key = head.lines().find(|line| line.to_lowercase().starts_with("sec-websocket-key:"));
                let Some(key) = key.and_then(|line| line.split_once(": ")).map(|(_, key)| key.trim().to_string())
                else {
                    let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"default"},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Running"}}"#;
                    let Reply::Bytes(bytes) = discovery(&head).unwrap_or_else(|| json(pod)) else { return };
                    let _ = stream.write_all(&bytes).await;
                    return;
                };
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: \
                     {}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
                    streaming::accept_key(&key)
                );
                // A binary frame of 6 bytes: the channel of the output, and a word.
                let frame = [&[0x82, 6, 1][..], b"ready"].concat();
                if stream.write_all(answer.as_bytes()).await.is_ok() && stream.write_all(&frame).await.is_ok() {
                    let mut buffer = [0; 1024];
                    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
                }
            });
        }
    });
    address
}

/// A command on a terminal of its own, after it the terminal's settings; and the file with the command's process ID.
fn on_terminal(user: &User, line: &str) -> (Child, std::path::PathBuf) {
    let pid = user.home.path().join("pid");
    let command = format!(
        "stty -a | tr ' ' '\\n' | grep echo$; sh -c 'echo $$ > {}; exec {} {line}'; echo code=$?; stty -a | tr ' ' '\\n' | grep echo$",
        pid.display(),
        program().display()
    );
    let child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("HOME", user.home.path())
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Debian's script is there");
    (child, pid)
}

fn read_until(out: &mut impl Read, text: &str) -> String {
    let mut all = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&all).contains(text) && out.read(&mut byte).is_ok_and(|count| count == 1) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_restore_the_terminal_of_exec() {
    let address = exec_server().await;
    for name in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        let user = User::new();
        user.kubeconfig(&format!("http://{address}"), "");
        let (mut script, pid) = on_terminal(&user, "exec -it p -- sh");
        let stdin = script.stdin.take();
        let mut out = script.stdout.take().expect("it is piped");
        let before = read_until(&mut out, "ready");
        assert!(before.starts_with("echo") && before.ends_with("ready"), "{name}: {before:?}");
        let pid: u32 = std::fs::read_to_string(pid).expect("a file").trim().parse().expect("a number");
        signal(name, pid);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("text");
        assert!(rest.contains("code=1") && rest.trim_end().ends_with("\necho"), "{name}: {rest:?}");
        drop(stdin);
        ended(&mut script);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_copy() {
    let address = exec_server().await;
    let user = User::new();
    user.kubeconfig(&format!("http://{address}"), "");
    let mut child = user.command("cp p:/file out").spawn().expect("kubectl");
    // The handler of the signal, or its default, is there from the start.
    signal("-INT", child.id());
    assert!(!ended(&mut child).success());
    assert!(!user.home.path().join("out").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_table_follows_changes_until_ctrl_c() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server = Web::start(move |head| {
        discovery(head).unwrap_or_else(|| match head.contains("watch=true") {
            // Each watch reports a change at once.
            true => Reply::Stall(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{{\"type\":\"ADDED\",\"object\":{}}}\n",
                    table(&["x"])
                )
                .into_bytes(),
            ),
            false => {
                let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                json(&table(&[&format!("pod-{number}")]))
            }
        })
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    user.fails("get pods --live", "--live needs a terminal");
    let (mut script, pid) = on_terminal(&user, "get pods --live");
    let stdin = script.stdin.take();
    let mut out = script.stdout.take().expect("it is piped");
    let shown = read_until(&mut out, "pod-2");
    assert!(shown.contains("pod-0") && shown.matches("\u{1b}[H\u{1b}[J").count() >= 3, "{shown:?}");
    signal("-INT", std::fs::read_to_string(pid).expect("a file").trim().parse().expect("a number"));
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("code=0"), "{rest:?}");
    drop(stdin);
    ended(&mut script);
}
