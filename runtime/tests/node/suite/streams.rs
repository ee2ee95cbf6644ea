//! Exec, attach and port-forward, with the streams behind their URLs.

use std::path::Path;
use std::sync::Arc;

use cri::{
    AttachRequest, ExecRequest, ExecSyncRequest, NamespaceMode, PodSandboxStatusRequest, PortForwardRequest,
    RuntimeService, StopPodSandboxRequest,
};
use streaming::Transport;
use streaming::port_forward::{Forwarder, SPDY_PREFERRED};
use streaming::remote_command::{CommandResult, Options, RemoteCommand, Size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::sandboxes::networked;
use super::{Pod, Suite, cases, code, until};
use crate::harness::{options, secured, text};
use crate::stream_client::{command, drain, read_until, talk, upgrade};

const UNKNOWN: &str = "0123456789abcdef";
const SPDY: &str = "v4.channel.k8s.io";

cases! {
    "ExecSync: exit code and both outputs" => sync_outputs, "3 out err";
    "ExecSync: as the container's user and in its directory" => sync_user, "33 /tmp yes";
    "ExecSync: timeout" => sync_timeout, "DeadlineExceeded, left 0";
    "ExecSync: a program that does not exist" => sync_no_program, "Unknown";
    "ExecSync: without a command" => sync_empty, "Unknown";
    "ExecSync: much output" => sync_large, "0 1000000";
    "ExecSync: killed by a signal" => sync_killed, "137";
    "ExecSync: not running" => sync_not_running, "created Unknown, exited Unknown";
    "ExecSync: unknown ID" => sync_unknown, "NotFound";
    "Exec: streams and an exit code over SPDY" => exec_spdy, "typed, err, code 6";
    "Exec: streams and an exit code over WebSocket" => exec_websocket, "out, err, code 6";
    "Exec: input that ends" => exec_half_closed, "5 bytes, Success";
    "Exec: a terminal and its size" => exec_terminal, "33 91, Success";
    "Exec: a URL can be used once" => exec_once, "404";
    "Exec: a terminal has one output" => exec_both, "InvalidArgument";
    "Exec: without any stream" => exec_no_streams, "InvalidArgument";
    "Exec: not running" => exec_exited, "Unknown";
    "Exec: unknown ID" => exec_unknown, "NotFound";
    "Attach: input and output" => attach_streams, "said one, Success, exit 0";
    "Attach: a terminal and its size" => attach_terminal, "33 91, exit 3";
    "Attach: stdin_once closes with the client" => attach_once, "exit 4, last words";
    "Attach: not running" => attach_exited, "Unknown";
    "Attach: unknown ID" => attach_unknown, "NotFound";
    "PortForward: both directions" => forward, "ping";
    "PortForward: a closed port" => forward_refused, "connection refused";
    "PortForward: to a pod that was stopped" => forward_stopped, "Unknown";
    "PortForward: unknown ID" => forward_unknown, "NotFound";
}

async fn sync_outputs(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync", "sleep 1000").await;
    let answer = suite.node.exec_sync(&id, "echo out; echo err >&2; exit 3", 0).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_string();
    format!("{} {} {}", answer.exit_code, text(answer.stdout), text(answer.stderr))
}

async fn sync_user(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-user", "sleep 1000").await;
    suite.node.exec(&id, "echo $(id -u) $(pwd) $FROM_IMAGE").await.1.trim().into()
}

async fn sync_timeout(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-timeout", "sleep 1000").await;
    let answer = code(&suite.node.exec_sync(&id, "sleep 500", 1).await);
    format!("{answer}, left {}", suite.node.exec(&id, "ps | grep -c '[s]leep 500'").await.1.trim())
}

async fn sync(suite: &Suite, id: &str, cmd: &[&str]) -> String {
    let cmd = cmd.iter().map(|word| word.to_string()).collect();
    code(&suite.node.runtime.exec_sync(ExecSyncRequest { container_id: id.into(), cmd, timeout: 0 }).await)
}

async fn sync_no_program(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-none", "sleep 1000").await;
    sync(&suite, &id, &["/none"]).await
}

async fn sync_empty(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-empty", "sleep 1000").await;
    sync(&suite, &id, &[]).await
}

async fn sync_large(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-large", "sleep 1000").await;
    let answer = suite.node.exec_sync(&id, "head -c 1000000 /dev/zero", 0).await.unwrap();
    format!("{} {}", answer.exit_code, answer.stdout.len())
}

async fn sync_killed(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("sync-killed", "sleep 1000").await;
    suite.node.exec_sync(&id, "kill -KILL $$", 0).await.unwrap().exit_code.to_string()
}

async fn ended(suite: &Suite, name: &str) -> String {
    let (_, id) = suite.running(name, "true").await;
    suite.node.wait_exit(&id).await;
    id
}

async fn sync_not_running(suite: Arc<Suite>) -> String {
    let pod = suite.pod("sync-created").await;
    let created = suite.create(&pod, suite.container("main", "sleep 1000")).await;
    let exited = ended(&suite, "sync-exited").await;
    format!("created {}, exited {}", sync(&suite, &created, &["true"]).await, sync(&suite, &exited, &["true"]).await)
}

async fn sync_unknown(suite: Arc<Suite>) -> String {
    sync(&suite, UNKNOWN, &["true"]).await
}

fn exec_request(id: &str, command: &str) -> ExecRequest {
    let cmd = ["sh", "-c", command].map(String::from).to_vec();
    ExecRequest { container_id: id.into(), cmd, tty: false, stdin: true, stdout: true, stderr: true }
}

/// An exec in a container, over its URL.
async fn exec(suite: &Suite, request: ExecRequest, carrier: Transport) -> RemoteCommand {
    let options = Options { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr, tty: request.tty };
    let url = suite.node.runtime.exec(request).await.unwrap().url;
    command(&url, carrier, SPDY, options).await
}

fn describe(ending: Result<CommandResult, std::io::ErrorKind>) -> String {
    match ending {
        Ok(CommandResult::Success) => "Success".into(),
        Ok(CommandResult::ExitCode { code, .. }) => format!("code {code}"),
        Ok(CommandResult::Failed(why) | CommandResult::Internal(why)) => format!("failed: {why}"),
        Err(kind) => format!("{kind:?}"),
    }
}

async fn exec_spdy(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-spdy", "sleep 1000").await;
    let remote = exec(&suite, exec_request(&id, "cat; echo err >&2; exit 6"), Transport::Spdy).await;
    let (out, err, ending) = talk(remote, b"typed").await;
    format!("{out}, {}, {}", err.trim(), describe(ending))
}

async fn exec_websocket(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-websocket", "sleep 1000").await;
    let request = ExecRequest { stdin: false, ..exec_request(&id, "echo out; echo err >&2; exit 6") };
    let (out, err, ending) = talk(exec(&suite, request, Transport::WebSocket).await, b"").await;
    format!("{}, {}, {}", out.trim(), err.trim(), describe(ending))
}

async fn exec_half_closed(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-input", "sleep 1000").await;
    let remote = exec(&suite, exec_request(&id, "wc -c"), Transport::Spdy).await;
    let (out, _, ending) = talk(remote, b"12345").await;
    format!("{} bytes, {}", out.trim(), describe(ending))
}

/// Sends a terminal's size until a shell in it has seen it, then exits the shell.
async fn resized(mut remote: RemoteCommand, end: &[u8]) -> String {
    let (mut stdin, mut stdout) = (remote.stdin.take().unwrap(), remote.stdout.take().unwrap());
    let mut terminal = remote.resize.take().unwrap();
    terminal.resize(Size { width: 91, height: 33 }).await.unwrap();
    stdin.write_all(b"until stty size | grep '33 91'; do sleep 0.01; done\n").await.unwrap();
    read_until(&mut stdout, "\n33 91").await;
    stdin.write_all(end).await.unwrap();
    let (_, ending) = tokio::join!(drain(Some(stdout)), remote.ending);
    describe(ending.map_err(|error| error.kind()))
}

async fn exec_terminal(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-terminal", "sleep 1000").await;
    let request = ExecRequest { tty: true, stderr: false, ..exec_request(&id, "exec sh") };
    format!("33 91, {}", resized(exec(&suite, request, Transport::Spdy).await, b"exit\n").await)
}

async fn exec_once(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-once", "sleep 1000").await;
    let request = ExecRequest { stdin: false, ..exec_request(&id, "true") };
    let url = suite.node.runtime.exec(request).await.unwrap().url;
    let options = Options { stdin: false, stdout: true, stderr: true, tty: false };
    let (_, _, first) = talk(command(&url, Transport::Spdy, SPDY, options).await, b"").await;
    assert_eq!(first, Ok(CommandResult::Success));
    let again = upgrade(&url, Transport::Spdy, &[SPDY]).await.map(drop).unwrap_err();
    again.split(':').next().unwrap().into()
}

async fn asked(suite: &Suite, request: ExecRequest) -> String {
    code(&suite.node.runtime.exec(request).await)
}

async fn exec_both(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-both", "sleep 1000").await;
    asked(&suite, ExecRequest { tty: true, ..exec_request(&id, "true") }).await
}

async fn exec_no_streams(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("exec-mute", "sleep 1000").await;
    let mute = ExecRequest { stdin: false, stdout: false, stderr: false, ..exec_request(&id, "true") };
    asked(&suite, mute).await
}

async fn exec_exited(suite: Arc<Suite>) -> String {
    let id = ended(&suite, "exec-exited").await;
    asked(&suite, exec_request(&id, "true")).await
}

async fn exec_unknown(suite: Arc<Suite>) -> String {
    asked(&suite, exec_request(UNKNOWN, "true")).await
}

fn attach_request(id: &str, tty: bool) -> AttachRequest {
    AttachRequest { container_id: id.into(), stdin: true, tty, stdout: true, stderr: !tty }
}

async fn attach(suite: &Suite, id: &str, tty: bool) -> RemoteCommand {
    let url = suite.node.runtime.attach(attach_request(id, tty)).await.unwrap().url;
    command(&url, Transport::Spdy, SPDY, Options { stdin: true, stdout: true, stderr: !tty, tty }).await
}

/// A container that reads its input.
async fn reader(suite: &Suite, name: &str, script: &str, once: bool, tty: bool) -> (Pod, String) {
    let pod = suite.pod(name).await;
    let mut config = suite.container("main", script);
    (config.stdin, config.stdin_once, config.tty) = (true, once, tty);
    let id = suite.run(&pod, config).await;
    (pod, id)
}

async fn attach_streams(suite: Arc<Suite>) -> String {
    // containerd loses output right before the exit, so the exit has its own input.
    let script = "while read line; do [ $line = bye ] && exit 0; echo said $line; done; exit 1";
    let (_, id) = reader(&suite, "attach", script, false, false).await;
    let remote = attach(&suite, &id, false).await;
    let RemoteCommand { stdin, stdout, stderr, resize, ending } = remote;
    let (mut stdin, mut stdout) = (stdin.unwrap(), stdout.expect("an output"));
    let mut reply = [0; 9];
    stdin.write_all(b"one\n").await.unwrap();
    stdout.read_exact(&mut reply).await.unwrap();
    stdin.write_all(b"bye\n").await.unwrap();
    let (out, _, ending) = tokio::join!(drain(Some(stdout)), drain(stderr), ending);
    drop((stdin, resize));
    let exit = suite.node.wait_exit(&id).await.exit_code;
    let reply = format!("{}{out}", String::from_utf8_lossy(&reply));
    format!("{}, {}, exit {exit}", reply.trim(), describe(ending.map_err(|error| error.kind())))
}

async fn attach_terminal(suite: Arc<Suite>) -> String {
    let (_, id) = reader(&suite, "attach-tty", "exec sh", false, true).await;
    resized(attach(&suite, &id, true).await, b"exit 3\n").await;
    format!("33 91, exit {}", suite.node.wait_exit(&id).await.exit_code)
}

async fn attach_once(suite: Arc<Suite>) -> String {
    let (_, id) = reader(&suite, "attach-once", "cat; exit 4", true, false).await;
    let (out, _, _) = talk(attach(&suite, &id, false).await, b"last words\n").await;
    assert_eq!(out, "last words\n");
    let status = suite.node.wait_exit(&id).await;
    format!("exit {}, {}", status.exit_code, text(Path::new(&status.log_path)).trim())
}

async fn attach_exited(suite: Arc<Suite>) -> String {
    let id = ended(&suite, "attach-exited").await;
    code(&suite.node.runtime.attach(attach_request(&id, false)).await)
}

async fn attach_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.attach(attach_request(UNKNOWN, false)).await)
}

/// A pod with an echo server on its port 8080.
async fn echo(suite: &Suite, name: &str) -> (Pod, String) {
    let pod = networked(suite, name, |_| {}).await;
    let mut config = suite.container("main", "exec nc -ll -p 8080 -e cat");
    secured(&mut config).namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
    suite.run(&pod, config).await;
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.id.clone(), verbose: false };
    let status = suite.node.runtime.pod_sandbox_status(request).await.unwrap().status.unwrap();
    let ip = status.network.unwrap().ip;
    until("the pod's port", || std::net::TcpStream::connect((ip.as_str(), 8080)).is_ok()).await;
    (pod, ip)
}

async fn forwarder(suite: &Suite, pod: &Pod, port: i32) -> Forwarder {
    let request = PortForwardRequest { pod_sandbox_id: pod.id.clone(), port: vec![port] };
    let url = suite.node.runtime.port_forward(request).await.unwrap().url;
    let (_, io) = upgrade(&url, Transport::Spdy, SPDY_PREFERRED).await.unwrap();
    Forwarder::new(io, Transport::Spdy)
}

async fn forward(suite: Arc<Suite>) -> String {
    let (pod, _) = echo(&suite, "forward").await;
    let forwarder = forwarder(&suite, &pod, 8080).await;
    let mut data = forwarder.connect(8080).await.unwrap().data;
    data.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    data.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer.to_vec()).unwrap()
}

async fn forward_refused(suite: Arc<Suite>) -> String {
    let pod = networked(&suite, "forward-refused", |_| {}).await;
    let forwarder = forwarder(&suite, &pod, 9).await;
    let (data, outcome) = forwarder.connect(9).await.unwrap().split();
    let why = outcome.await.unwrap_err().to_string().to_lowercase();
    drop(data);
    if why.contains("connection refused") { "connection refused".into() } else { why }
}

async fn forward_stopped(suite: Arc<Suite>) -> String {
    let pod = suite.pod("forward-stopped").await;
    let stop = StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
    suite.node.runtime.stop_pod_sandbox(stop).await.unwrap();
    let request = PortForwardRequest { pod_sandbox_id: pod.id, port: vec![80] };
    code(&suite.node.runtime.port_forward(request).await)
}

async fn forward_unknown(suite: Arc<Suite>) -> String {
    let request = PortForwardRequest { pod_sandbox_id: UNKNOWN.into(), port: vec![80] };
    code(&suite.node.runtime.port_forward(request).await)
}
