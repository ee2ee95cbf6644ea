//! Joins two connections, for a proxy that need not understand the content.

use std::io::Result;
use std::time::Duration;

use crate::Connection;
use crate::idle::IdleTimeout;

/// Copies in both directions until both have ended, or the connection is idle for too long. Returns the number of
/// bytes in each direction.
pub async fn tunnel<A: Connection, B: Connection>(near: A, mut far: B, idle: Duration) -> Result<(u64, u64)> {
    // All bytes pass through this end.
    let mut near = IdleTimeout::new(near, idle);
    tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, crate::BUFFER, crate::BUFFER).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn supports_half_close() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let tunnel = tokio::spawn(tunnel(near, far, Duration::from_secs(60)));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = String::new();
        server.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        assert_eq!(tunnel.await.unwrap().unwrap(), (8, 6));
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_idle() {
        let (_client, near) = tokio::io::duplex(64);
        let (far, _server) = tokio::io::duplex(64);
        let error = tunnel(near, far, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
