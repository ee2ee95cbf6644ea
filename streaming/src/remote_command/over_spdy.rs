//! The remote command server over SPDY: the client opens a stream for each requested one, with its type in a header.

use std::collections::BTreeMap;

use tokio::io::AsyncWriteExt;

use super::{CommandResult, ConnectionParameters, DisconnectSignal, Options, Resize, Streams};
use crate::idle::IdleTimeout;
use crate::spdy::{Limits, Role, Session, Stream};
use crate::{Connection, Reader, Writer};

/// More than the five possible, so that a client's error does not end the session.
const MAX_STREAMS: usize = 16;

pub(super) async fn serve<IO, F, Fut>(io: IO, serving: ConnectionParameters, run: F)
where
    IO: Connection,
    F: FnOnce(Streams) -> Fut,
    Fut: Future<Output = CommandResult>,
{
    let ConnectionParameters { protocol, verb, options, timeouts } = serving;
    let limits = Limits { streams: MAX_STREAMS, ..Limits::default() };
    let session = Session::new(IdleTimeout::new(io, timeouts.idle), Role::Server, limits, |_| Ok(()));
    let expected = expected(options, protocol.version);
    let streams = tokio::time::timeout(timeouts.creation, collect(&session, &expected)).await;
    let Ok(Some(mut streams)) = streams else {
        return tracing::debug!("timed out waiting for client to create streams");
    };
    let resize = match streams.remove("resize") {
        Some(stream) => Resize::read(stream),
        None => Resize::never(),
    };
    let error = streams.remove("error");
    let given = Streams {
        stdin: streams.remove("stdin").map(|stream| Box::new(stream) as Reader),
        stdout: streams.remove("stdout").map(|stream| Box::new(stream) as Writer),
        stderr: streams.remove("stderr").map(|stream| Box::new(stream) as Writer),
        resize,
        gone: DisconnectSignal(session.over()),
    };
    let ending = run(given).await;
    // Some clients disconnect as soon as they know the result.
    session.flushed().await;
    if let Some(mut error) = error {
        let _ = error.write_all(&ending.report(verb, protocol.version)).await;
    }
    session.close(timeouts.finish).await;
}

pub(super) fn expected(options: Options, version: u8) -> Vec<&'static str> {
    let requested = [
        ("error", true),
        ("stdin", options.stdin),
        ("stdout", options.stdout),
        ("stderr", options.stderr),
        ("resize", options.tty && version >= 3),
    ];
    requested.into_iter().filter(|(_, requested)| *requested).map(|(name, _)| name).collect()
}

/// Waits for all expected streams; None if the session ends first. Unexpected and duplicate streams are dropped.
async fn collect(session: &Session, expected: &[&'static str]) -> Option<BTreeMap<&'static str, Stream>> {
    let mut streams = BTreeMap::new();
    while streams.len() < expected.len() {
        let stream = session.accept().await?;
        let kind = stream.header("streamtype").unwrap_or_default();
        match expected.iter().find(|name| **name == kind) {
            Some(name) => {
                streams.entry(*name).or_insert(stream);
            }
            None => tracing::debug!(kind, "unexpected stream type"),
        }
    }
    Some(streams)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::super::{Protocol, Verb};
    use super::*;
    use crate::Timeouts;

    #[test]
    fn expected_streams_depend_on_options_and_version() {
        let all = Options { stdin: true, stdout: true, stderr: true, tty: true };
        assert_eq!(expected(all, 4), ["error", "stdin", "stdout", "stderr", "resize"]);
        assert_eq!(expected(all, 2), ["error", "stdin", "stdout", "stderr"]);
        assert_eq!(expected(Options { stdout: true, ..Options::default() }, 4), ["error", "stdout"]);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_streams_time_out() {
        let (near, far) = tokio::io::duplex(4096);
        let options = Options { stdin: true, stdout: true, ..Options::default() };
        let protocol = Protocol::named("v4.channel.k8s.io");
        let serving = ConnectionParameters { protocol, verb: Verb::Exec, options, timeouts: Timeouts::default() };
        let begin = tokio::time::Instant::now();
        let served = tokio::spawn(serve(near, serving, |_| async { CommandResult::Success }));
        let client = Session::new(far, Role::Client, Limits::default(), |_| Ok(()));
        let headers = vec![("streamtype".to_string(), "error".to_string())];
        let mut error = client.open(headers).await.unwrap();
        assert!(error.read_u8().await.is_err(), "nothing was run");
        served.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 30);
    }
}
