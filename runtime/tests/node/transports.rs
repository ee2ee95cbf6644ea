//! Exec, attach and port-forward over every protocol of clients, and following a log.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use cri::{
    AttachRequest, ExecRequest, NetworkConfig, PortForwardRequest, ReopenContainerLogRequest, RuntimeConfig,
    RuntimeService, StopContainerRequest, UpdateRuntimeConfigRequest,
};
use streaming::Transport::{self, Spdy, WebSocket};
use streaming::port_forward::{Forwarder, SPDY_PREFERRED, TUNNEL_PREFERRED};
use streaming::remote_command::{CommandResult, Options, RemoteCommand, Size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Node, container, options, secured, text, wait_for};
use crate::network::{address, networked};
use crate::stream_client::{command, drain, read_until, talk, upgrade};

/// The protocols that report an exit code, and whether they support closing the input.
const ALL: [(Transport, &str, bool); 4] = [
    (WebSocket, "v5.channel.k8s.io", true),
    (WebSocket, "v4.channel.k8s.io", false),
    (WebSocket, "v4.base64.channel.k8s.io", false),
    (Spdy, "v4.channel.k8s.io", true),
];

async fn exec(
    node: &Node,
    id: &str,
    line: &str,
    carrier: Transport,
    protocol: &str,
    options: Options,
) -> RemoteCommand {
    let cmd = ["sh", "-c", line].map(String::from).to_vec();
    let Options { stdin, stdout, stderr, tty } = options;
    let request = ExecRequest { container_id: id.into(), cmd, tty, stdin, stdout, stderr };
    let url = node.runtime.exec(request).await.unwrap().url;
    command(&url, carrier, protocol, options).await
}

const STREAMS: Options = Options { stdin: true, stdout: true, stderr: true, tty: false };
const TERMINAL: Options = Options { stdin: true, stdout: true, stderr: false, tty: true };

fn ended_with(code: i32, ending: &CommandResult) -> bool {
    matches!(ending, CommandResult::ExitCode { code: found, .. } if *found == code)
}

#[tokio::test]
async fn exec_over_every_protocol() {
    let node = Node::start().await;
    let pod = node.sandbox_config("carriers");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    for (carrier, protocol, half_closes) in ALL {
        // `head` exits after a line, `cat` only at the end of its input.
        let line = if half_closes { "cat; echo err >&2; exit 6" } else { "head -n 1; echo err >&2; exit 6" };
        let (out, err, ending) = talk(exec(&node, &id, line, carrier, protocol, STREAMS).await, b"typed\n").await;
        assert_eq!((out.as_str(), err.as_str()), ("typed\n", "err\n"), "{protocol}");
        assert!(ended_with(6, ending.as_ref().unwrap()), "{protocol}: {ending:?}");

        let input = Options { stdin: false, ..STREAMS };
        let (_, _, ending) = talk(exec(&node, &id, "exit 0", carrier, protocol, input).await, b"").await;
        assert_eq!(ending, Ok(CommandResult::Success), "{protocol}");
        let (_, _, ending) = talk(exec(&node, &id, "kill -9 $$", carrier, protocol, input).await, b"").await;
        assert!(ended_with(137, ending.as_ref().unwrap()), "{protocol}: {ending:?}");
        terminal(exec(&node, &id, "exec sh", carrier, protocol, TERMINAL).await, 5).await;
    }
    node.end().await;
}

/// Resizes the terminal twice, and exits its shell with a code.
async fn terminal(mut remote: RemoteCommand, code: i32) {
    let (mut stdin, mut stdout) = (remote.stdin.take().unwrap(), remote.stdout.take().unwrap());
    let mut terminal = remote.resize.take().unwrap();
    for (width, height) in [(91, 33), (120, 40)] {
        terminal.resize(Size { width, height }).await.unwrap();
        let line = format!("until stty size | grep '{height} {width}'; do sleep 0.01; done\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
        read_until(&mut stdout, &format!("\n{height} {width}")).await;
    }
    stdin.write_all(format!("exit {code}\n").as_bytes()).await.unwrap();
    let (_, ending) = tokio::join!(drain(Some(stdout)), remote.ending);
    assert!(ended_with(code, &ending.unwrap()));
}

#[tokio::test]
async fn attach_over_every_protocol() {
    let node = Node::start().await;
    let pod = node.sandbox_config("attached");
    let sandbox = node.run_sandbox(&pod).await;
    for (number, (carrier, protocol, half_closes)) in ALL.into_iter().enumerate() {
        // At the end of its input the container exits.
        let line = if half_closes { "cat; exit 4" } else { "head -n 1; exit 4" };
        let mut config = container(&format!("reader-{number}"), line);
        (config.stdin, config.stdin_once) = (true, true);
        let id = node.run(&sandbox, config, &pod).await;
        let request = AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: true, tty: false };
        let url = node.runtime.attach(request).await.unwrap().url;
        let (out, _, ending) = talk(command(&url, carrier, protocol, STREAMS).await, b"typed\n").await;
        assert_eq!((out.as_str(), ending), ("typed\n", Ok(CommandResult::Success)), "{protocol}");
        assert_eq!(node.wait_exit(&id).await.exit_code, 4, "{protocol}");
    }
    node.end().await;
}

#[tokio::test]
async fn port_forward_over_both_carriers() {
    let node = Node::start().await;
    let network_config = Some(NetworkConfig { pod_cidr: "10.213.82.0/24".into() });
    let runtime_config = Some(RuntimeConfig { network_config });
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await.unwrap();
    let pod = networked(&node, "ports");
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "exec nc -ll -p 8080 -e sh -c 'cat; echo end'");
    secured(&mut config).namespace_options = Some(options(cri::NamespaceMode::Pod, cri::NamespaceMode::Container));
    node.run(&sandbox, config, &pod).await;
    let ip = address(&node, &sandbox).await;
    wait_for("the pod's port", || std::net::TcpStream::connect((ip, 8080)).is_ok());
    for (carrier, protocols) in [(Spdy, SPDY_PREFERRED), (WebSocket, TUNNEL_PREFERRED)] {
        let request = PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![8080] };
        let url = node.runtime.port_forward(request).await.unwrap().url;
        let (_, io) = upgrade(&url, carrier, protocols).await.unwrap();
        let forwarder = Forwarder::new(io, carrier);
        // Several connections at once: each closes its input, and reads the response.
        let mut connections = Vec::new();
        for number in 0..3 {
            let mut connection = forwarder.connect(8080).await.unwrap();
            connection.data.write_all(format!("ping {number}\n").as_bytes()).await.unwrap();
            connection.data.shutdown().await.unwrap();
            connections.push(connection);
        }
        for (number, connection) in connections.into_iter().enumerate() {
            let (mut data, outcome) = connection.split();
            let mut answer = String::new();
            data.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, format!("ping {number}\nend\n"), "{carrier:?}");
            assert!(outcome.await.is_ok(), "{carrier:?}");
        }
    }
    node.end().await;
}

/// When the client disconnects, the command is killed.
#[tokio::test]
async fn a_disconnected_client_ends_its_command() {
    let node = Node::start().await;
    let pod = node.sandbox_config("left");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    for (carrier, protocol, _) in ALL {
        let mut remote = exec(&node, &id, "echo up; exec sleep 600", carrier, protocol, STREAMS).await;
        read_until(remote.stdout.as_mut().unwrap(), "up").await;
        drop(remote);
        let gone = "until ! ps | grep -q '[s]leep 600'; do sleep 0.01; done";
        assert_eq!(node.exec_sync(&id, gone, 20).await.unwrap().exit_code, 0, "{protocol}");
    }
    node.end().await;
}

#[tokio::test]
async fn a_log_can_be_followed_across_its_rotation() {
    let node = Node::start().await;
    let pod = node.sandbox_config("followed");
    let sandbox = node.run_sandbox(&pod).await;
    let line = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.001; done";
    let id = node.run(&sandbox, container("main", line), &pod).await;
    let path = node.status(&id).await.log_path;
    wait_for("a line", || !text(std::path::Path::new(&path)).is_empty());
    let mut follower = LogFollower { file: fs::File::open(&path).unwrap(), seen: String::new() };
    follower.until(100);
    fs::rename(&path, format!("{path}.1")).unwrap();
    // Lines go to the old file until the log is reopened.
    let rotated = follower.count() + 20;
    follower.until(rotated);
    node.runtime.reopen_container_log(ReopenContainerLogRequest { container_id: id.clone() }).await.unwrap();
    follower.read();
    follower.file = fs::File::open(&path).unwrap();
    follower.until(rotated + 100);
    node.runtime.stop_container(StopContainerRequest { container_id: id, timeout: 0 }).await.unwrap();
    follower.read();
    let lines = follower.seen.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap());
    assert!(lines.enumerate().all(|(number, line)| line == format!("line {number}")), "{}", follower.seen);
    node.end().await;
}

struct LogFollower {
    file: fs::File,
    seen: String,
}

impl LogFollower {
    fn count(&self) -> usize {
        self.seen.matches('\n').count()
    }

    /// Reads what is available now.
    fn read(&mut self) {
        self.file.read_to_string(&mut self.seen).unwrap();
    }

    fn until(&mut self, lines: usize) {
        let give_up = Instant::now() + Duration::from_secs(30);
        while self.count() < lines {
            assert!(Instant::now() < give_up, "{lines} lines do not come");
            self.read();
        }
    }
}
