//! Remote commands with the crate's own client, for every protocol.

use std::sync::atomic::Ordering;

use streaming::Transport::{self, Spdy, WebSocket};
use streaming::remote_command::{CommandResult, Size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{LEFT, exec, start, within};

const ALL: &[(Transport, &str)] = &[
    (WebSocket, "v5.channel.k8s.io"),
    (WebSocket, "v4.channel.k8s.io"),
    (WebSocket, "v4.base64.channel.k8s.io"),
    (WebSocket, "channel.k8s.io"),
    (WebSocket, "base64.channel.k8s.io"),
    (Spdy, "v4.channel.k8s.io"),
    (Spdy, "v3.channel.k8s.io"),
    (Spdy, "v2.channel.k8s.io"),
    (Spdy, "channel.k8s.io"),
];

async fn read(stream: Option<streaming::Reader>) -> Vec<u8> {
    let mut out = Vec::new();
    stream.unwrap().read_to_end(&mut out).await.unwrap();
    out
}

#[tokio::test]
async fn every_protocol_carries_output_and_status() {
    let port = start().await;
    for (transport, protocol) in ALL {
        let query = "stdout=true&stderr=true&command=sh&command=-c&command=echo+out;echo+err%3E%262;exit+7";
        let remote = exec(port, *transport, protocol, query).await;
        let (out, err, ending) =
            within(async { tokio::join!(read(remote.stdout), read(remote.stderr), remote.ending) }).await;
        assert_eq!((out.as_slice(), err.as_slice()), (&b"out\n"[..], &b"err\n"[..]), "{protocol}");
        let message = "command terminated with non-zero exit code: exit status 7".to_string();
        let expected = match protocol.starts_with("v4") || protocol.starts_with("v5") {
            true => CommandResult::ExitCode { code: 7, message },
            false => CommandResult::Failed(message),
        };
        assert_eq!(ending.unwrap(), expected, "{protocol}");
    }
}

#[tokio::test]
async fn carries_megabytes_and_end_of_input() {
    let port = start().await;
    for (transport, protocol) in [(WebSocket, "v5.channel.k8s.io"), (Spdy, "v4.channel.k8s.io")] {
        let remote = exec(port, transport, protocol, "stdin=true&stdout=true&command=cat").await;
        let sent: Vec<u8> = (0..10_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut stdin = remote.stdin.unwrap();
        let feeding = async {
            stdin.write_all(&sent).await.unwrap();
            stdin.shutdown().await.unwrap();
        };
        let ((), got, ending) = within(async { tokio::join!(feeding, read(remote.stdout), remote.ending) }).await;
        assert!(got == sent, "{protocol}: {} of {}", got.len(), sent.len());
        assert_eq!(ending.unwrap(), CommandResult::Success);
    }
}

#[tokio::test]
async fn unread_input_does_not_block_the_status() {
    let port = start().await;
    for (transport, protocol) in [(WebSocket, "v5.channel.k8s.io"), (Spdy, "v4.channel.k8s.io")] {
        let remote = exec(port, transport, protocol, "stdin=true&stdout=true&command=echo&command=hi").await;
        let mut stdin = remote.stdin.unwrap();
        let feeding = tokio::spawn(async move { while stdin.write_all(&[0; 4096]).await.is_ok() {} });
        let (out, ending) = within(async { tokio::join!(read(remote.stdout), remote.ending) }).await;
        assert_eq!(out, b"hi\n", "{protocol}");
        assert_eq!(ending.unwrap(), CommandResult::Success);
        within(feeding).await.unwrap();
    }
}

#[tokio::test]
async fn carries_terminal_sizes() {
    let port = start().await;
    for (transport, protocol) in
        [(WebSocket, "v5.channel.k8s.io"), (WebSocket, "v4.base64.channel.k8s.io"), (Spdy, "v3.channel.k8s.io")]
    {
        let remote = exec(port, transport, protocol, "stdin=true&stdout=true&tty=true&command=size").await;
        remote.resize.unwrap().resize(Size { width: 132, height: 43 }).await.unwrap();
        let (out, _) = within(async { tokio::join!(read(remote.stdout), remote.ending) }).await;
        assert_eq!(out, b"132x43\r\n", "{protocol}");
    }
}

#[tokio::test]
async fn reports_commands_that_cannot_run() {
    let port = start().await;
    let remote = exec(port, WebSocket, "v5.channel.k8s.io", "stdout=true&command=/does/not/exist").await;
    let (_, ending) = within(async { tokio::join!(read(remote.stdout), remote.ending) }).await;
    let CommandResult::Failed(message) = ending.unwrap() else { panic!("it failed") };
    assert!(
        message.starts_with("Internal error occurred: error executing command in container: No such file"),
        "{message}"
    );
}

#[tokio::test]
async fn idle_commands_notice_disconnects() {
    let port = start().await;
    for (number, (transport, protocol)) in
        [(WebSocket, "v5.channel.k8s.io"), (Spdy, "v4.channel.k8s.io")].iter().enumerate()
    {
        let remote = exec(port, *transport, protocol, "stdout=true&command=wait").await;
        drop(remote);
        within(async {
            while LEFT.load(Ordering::Relaxed) <= number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
