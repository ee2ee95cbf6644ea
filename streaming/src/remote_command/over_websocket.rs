//! The remote command server over WebSocket: one channel per stream.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{
    CommandResult, ConnectionParameters, DisconnectSignal, ERROR, RESIZE, Resize, STDERR, STDIN, STDOUT, Streams,
};
use crate::channels::{Demux, pipe, pump, send};
use crate::idle::IdleTimeout;
use crate::websocket::{CLOSE_NORMAL, Role, split};
use crate::{Connection, Reader, Writer};

pub(super) async fn serve<IO, F, Fut>(io: IO, serving: ConnectionParameters, run: F)
where
    IO: Connection,
    F: FnOnce(Streams) -> Fut,
    Fut: Future<Output = CommandResult>,
{
    let ConnectionParameters { protocol, options, timeouts, .. } = serving;
    let (read, write) = tokio::io::split(IdleTimeout::new(io, timeouts.idle));
    let (mut receiver, sender) = split(read, write, Role::Server);

    let lowest = if options.stdout {
        STDOUT
    } else if options.stderr {
        STDERR
    } else {
        ERROR
    };
    // Clients wait for this message to know that the connection is established.
    if send(&sender, protocol.codec, lowest, &[]).await.is_err() {
        return;
    }

    let mut sinks = vec![None, None, None, None, None];
    let mut open = |channel: u8| {
        let (near, far) = pipe();
        sinks[usize::from(channel)] = Some(far);
        near
    };
    let stdin = options.stdin.then(|| Box::new(open(STDIN)) as Reader);
    let resize = Resize::read(open(RESIZE));

    let mut pumps = JoinSet::new();
    let mut output = |channel: u8| -> Writer {
        let (near, far) = pipe();
        let sender = sender.clone();
        pumps.spawn(async move { pump(far, &sender, protocol.codec, channel).await });
        Box::new(near)
    };
    let stdout = options.stdout.then(|| output(STDOUT));
    let stderr = options.stderr.then(|| output(STDERR));

    let (gone, is_gone) = watch::channel(false);
    let demux = Demux { codec: protocol.codec, half_close: protocol.version >= 5, sinks };
    let mut receiving = JoinSet::new();
    receiving.spawn(async move {
        if let Err(error) = demux.run(&mut receiver).await {
            tracing::debug!(%error, "remote command connection failed");
        }
        gone.send_replace(true);
    });

    let ending = run(Streams { stdin, stdout, stderr, resize, gone: DisconnectSignal(is_gone) }).await;
    while pumps.join_next().await.is_some() {}
    let report = ending.report(serving.verb, protocol.version);
    if !report.is_empty() {
        let _ = send(&sender, protocol.codec, ERROR, &report).await;
    }
    let _ = sender.close(CLOSE_NORMAL, "").await;
    // Closing the socket while the client still sends would lose data that it has not read yet.
    let _ = tokio::time::timeout(timeouts.finish, receiving.join_next()).await;
}
