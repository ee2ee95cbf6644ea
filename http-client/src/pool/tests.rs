//! Which connections are reused.

use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::{dial, handshake_http1};

/// Serves this many requests per connection, then closes it.
async fn serve(per_connection: usize) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, peer)) = listener.accept().await {
            let body = peer.port().to_string();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            tokio::spawn(async move {
                for _ in 0..per_connection {
                    let mut buffer = vec![0; 4096];
                    if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                        break;
                    }
                    let _ = stream.write_all(response.as_bytes()).await;
                }
            });
        }
    });
    Address::new(false, "127.0.0.1", port)
}

async fn connect(pool: &Pool<Full<Bytes>>, address: &Address) -> Lease<Full<Bytes>> {
    let stream = dial(&address.host, address.port).await.expect("a connection");
    pool.add_http1(address, handshake_http1(stream).await.expect("HTTP"))
}

async fn send(lease: Lease<Full<Bytes>>) -> Response<PooledBody<Full<Bytes>>> {
    let request = Request::get("/").header("host", "x").body(Full::default()).expect("a request");
    lease.send(request).await.expect("a response")
}

#[tokio::test]
async fn a_connection_returns_at_the_end_of_the_body() {
    let (pool, address) = (Pool::new(1), serve(9).await);
    let first = send(connect(&pool, &address).await).await;
    assert!(pool.take(&address).is_none(), "the body has not been read");
    let port = first.collect().await.expect("a body").to_bytes();
    assert!(pool.take(&Address::new(true, "127.0.0.1", address.port)).is_none(), "another address");
    let second = send(pool.take(&address).expect("an idle connection")).await;
    assert_eq!(second.collect().await.expect("a body").to_bytes(), port);
}

#[tokio::test]
async fn a_dropped_body_closes_its_connection() {
    let (pool, address) = (Pool::new(1), serve(9).await);
    drop(send(connect(&pool, &address).await).await);
    assert!(pool.take(&address).is_none());
}

#[tokio::test]
async fn idle_connections_are_limited() {
    let (pool, address) = (Pool::new(1), serve(9).await);
    let both = [send(connect(&pool, &address).await).await, send(connect(&pool, &address).await).await];
    for response in both {
        response.collect().await.expect("a body");
    }
    assert!(pool.take(&address).is_some());
    assert!(pool.take(&address).is_none());
    pool.clear();
    assert!(pool.take(&address).is_none());
}

#[tokio::test]
async fn a_closed_connection_has_not_sent_the_request() {
    let (pool, address) = (Pool::new(1), serve(1).await);
    send(connect(&pool, &address).await).await.collect().await.expect("a body");
    // The pool may have noticed that the server closed the connection.
    let Some(lease) = pool.take(&address) else { return };
    let request = Request::get("/").header("host", "x").body(Full::default()).expect("a request");
    let error = lease.send(request).await.err().expect("a closed connection");
    assert!(matches!(error, SendError::NotSent(_)) || error.into_inner().is_incomplete_message());
}

#[tokio::test]
async fn a_request_that_was_not_sent_is_returned() {
    let (pool, address) = (Pool::new(1), serve(0).await);
    let mut lease = connect(&pool, &address).await;
    // The server closes the connection at once.
    while lease.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    let request = Request::post("/").header("host", "x").body(Full::from("body")).expect("a request");
    let failed = lease.try_send(request).await.err().expect("the connection is closed");
    assert!(matches!(failed.error, SendError::NotSent(_)), "{}", failed.error);
    let request = failed.request.expect("the request");
    assert_eq!(request.into_body().collect().await.expect("a body").to_bytes(), "body");
}
