//! Exec, attach and port-forward over their URLs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cri::{
    AttachRequest, ExecRequest, NamespaceMode, NetworkConfig, PodSandboxStatusRequest, PortForwardRequest,
    RuntimeConfig, RuntimeService, UpdateRuntimeConfigRequest,
};

use crate::harness::{Node, container, options, secured, text, wait_for};

/// A minimal WebSocket client.
struct Client(TcpStream);

impl Client {
    fn open(url: &str, protocol: &str) -> Client {
        let rest = url.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Client(stream)
    }

    fn send(&mut self, channel: u8, data: &[u8]) {
        let mask = [9, 8, 7, 6];
        let message: Vec<u8> = [&[channel], data].concat();
        assert!(message.len() < 126);
        let body = message.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
        let frame: Vec<u8> = [0x82, 0x80 | message.len() as u8].into_iter().chain(mask).chain(body).collect();
        self.0.write_all(&frame).unwrap();
    }

    /// The next message: its channel and its text; None at the end.
    fn receive(&mut self) -> Option<(u8, String)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        if head[0] & 15 == 8 {
            return None;
        }
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).unwrap();
                usize::from(u16::from_be_bytes(length))
            }
            short => usize::from(short),
        };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Some((body[0], String::from_utf8_lossy(&body[1..]).into_owned()))
    }

    /// Everything of one channel until the end, and the status.
    fn rest(&mut self) -> (String, String, String) {
        let (mut out, mut err, mut status) = (String::new(), String::new(), String::new());
        while let Some((channel, text)) = self.receive() {
            match channel {
                1 => out += &text,
                2 => err += &text,
                _ => status += &text,
            }
        }
        (out, err, status)
    }
}

async fn on_threads<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn exec_request(id: &str, command: &str, tty: bool) -> ExecRequest {
    let cmd = ["sh", "-c", command].map(String::from).to_vec();
    ExecRequest { container_id: id.into(), cmd, tty, stdin: true, stdout: true, stderr: !tty }
}

#[tokio::test]
async fn exec_with_streams_and_terminals() {
    let node = Node::start().await;
    let pod = node.sandbox_config("stream");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;

    let url = node.runtime.exec(exec_request(&id, "cat; echo err >&2; exit 6", false)).await.unwrap().url;
    let once = url.clone();
    let (out, err, status) = on_threads(move || {
        let mut client = Client::open(&url, "v5.channel.k8s.io");
        client.send(0, b"typed in");
        client.send(255, &[0]);
        client.rest()
    })
    .await;
    assert_eq!((out.as_str(), err.as_str()), ("typed in", "err\n"));
    assert!(status.contains("NonZeroExitCode") && status.contains("\"6\""), "{status}");
    let again = on_threads(move || {
        let mut stream = TcpStream::connect(once.split('/').nth(2).unwrap()).unwrap();
        let path = once.splitn(4, '/').nth(3).unwrap();
        stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
    .await;
    assert!(again.starts_with("HTTP/1.1 404"), "{again}");

    let command = "stty size; read line; echo got $line; tty";
    let url = node.runtime.exec(exec_request(&id, command, true)).await.unwrap().url;
    let (out, _, status) = on_threads(move || {
        let mut client = Client::open(&url, "v4.channel.k8s.io");
        client.send(0, b"hello\n");
        client.rest()
    })
    .await;
    assert!(out.contains("got hello") && out.contains("/dev/pts/"), "{out}");
    assert!(status.contains("Success"), "{status}");
    node.end().await;
}

#[tokio::test]
async fn attach_to_a_terminal_and_to_streams() {
    let node = Node::start().await;
    let pod = node.sandbox_config("attach");
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("plain", "while read line; do echo said $line; [ $line = end ] && exit 0; done; exit 1");
    (config.stdin, config.stdin_once) = (true, true);
    let plain = node.run(&sandbox, config, &pod).await;
    let request = AttachRequest { container_id: plain.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let url = node.runtime.attach(request).await.unwrap().url;
    let (out, _, status) = on_threads(move || {
        let mut client = Client::open(&url, "v4.channel.k8s.io");
        client.send(0, b"one\nend\n");
        client.rest()
    })
    .await;
    assert_eq!(out, "said one\nsaid end\n");
    assert!(status.contains("Success"), "{status}");
    let status = node.wait_exit(&plain).await;
    assert_eq!(status.exit_code, 0);
    assert_eq!(text(std::path::Path::new(&status.log_path)), "said one\nsaid end\n");

    let mut config = container("tty", "while :; do read line; stty size; [ \"$line\" = end ] && exit 3; done");
    (config.stdin, config.tty) = (true, true);
    let tty = node.run(&sandbox, config, &pod).await;
    let request = AttachRequest { container_id: tty.clone(), stdin: true, stdout: true, tty: true, stderr: false };
    let url = node.runtime.attach(request).await.unwrap().url;
    let out = on_threads(move || {
        let mut client = Client::open(&url, "v4.channel.k8s.io");
        client.send(4, br#"{"Width":91,"Height":33}"#);
        client.send(0, b"go\n");
        let (mut seen, mut asked) = (String::new(), 0);
        while !seen.contains("33 91") {
            seen += &client.receive().unwrap_or_else(|| panic!("no more after {seen:?}")).1;
            // The size may be set after the first query: until then the output is 0 0 or an error. The test sends one query per
            // output, since more would arrive faster than a busy machine handles them.
            let answers = seen.matches("\r\n").count() - seen.matches("go\r\n").count();
            while asked < answers {
                asked += 1;
                client.send(0, b"go\n");
            }
        }
        client.send(0, b"end\n");
        seen + &client.rest().0
    })
    .await;
    assert!(out.contains("33 91"), "{out}");
    assert_eq!(node.wait_exit(&tty).await.exit_code, 3);
    node.end().await;
}

#[tokio::test]
async fn a_pod_with_a_network_and_its_ports() {
    let node = Node::start().await;
    let network_config = Some(NetworkConfig { pod_cidr: "10.213.78.0/24".into() });
    let runtime_config = Some(RuntimeConfig { network_config });
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await.unwrap();
    let mut pod = node.sandbox_config("net");
    let shared = options(NamespaceMode::Pod, NamespaceMode::Container);
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(shared.clone());
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("web", "hostname; exec nc -ll -p 8080 -e cat");
    secured(&mut config).namespace_options = Some(shared);
    let id = node.run(&sandbox, config, &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("the hostname", || text(std::path::Path::new(&log)).starts_with("net\n"));
    let status = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = node.runtime.pod_sandbox_status(status).await.unwrap().status.unwrap();
    let ip = status.network.unwrap().ip;
    assert!(ip.starts_with("10.213.78."), "{ip}");
    let (_, address) = node.exec(&id, "ip -4 addr show eth0").await;
    assert!(address.contains(&ip), "{address}");
    let listening = "until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':1F90 .* 0A '; do sleep 0.01; done";
    assert_eq!(node.exec(&id, listening).await.0, 0);
    let request = PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![8080, 9] };
    let url = node.runtime.port_forward(request).await.unwrap().url;
    let (echoed, refused) = on_threads(move || {
        let mut client = Client::open(&url, "v4.channel.k8s.io");
        client.send(0, b"ping");
        let (mut echoed, mut refused) = (String::new(), String::new());
        let mut begun = std::collections::BTreeSet::new();
        while echoed != "ping" || refused.is_empty() {
            let (channel, text) = client.receive().unwrap();
            match channel {
                // The first message of each channel is the number of its port.
                channel if begun.insert(channel) => {}
                0 => echoed += &text,
                3 => refused = text,
                other => panic!("channel {other}"),
            }
        }
        (echoed, refused)
    })
    .await;
    assert_eq!(echoed, "ping");
    assert!(refused.contains("connecting to port 9 of the pod"), "{refused}");
    node.remove_all().await;
    // The bridge would stay for other pods of the node.
    node.end().await;
}
