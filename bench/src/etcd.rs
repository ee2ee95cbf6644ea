//! A bare client of etcd: puts over gRPC, one after the other on each of many streams. Its rate is the limit of any API
//! server on the same members.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;

use crate::Result;
use crate::client::{Identity, Tls, open_http2};

const PUT: &str = "https://etcd/etcdserverpb.KV/Put";
const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;

/// Connections to the members, and the number of the next key.
pub(crate) struct Puts {
    members: Vec<SendRequest<Full<Bytes>>>,
    next: Arc<AtomicU64>,
    value: Bytes,
}

impl Puts {
    /// Connects with the client certificate of a directory.
    pub(crate) async fn open(members: &[SocketAddr], pki: &Path, bytes: usize) -> Result<Puts> {
        let read = |name: &str| std::fs::read(pki.join(name));
        let tls = Tls::with_client(&Identity { certificate: read("client.crt")?, key: read("client.key")? })?;
        let mut connections = Vec::new();
        for member in members {
            connections.push(open_http2(*member, &tls).await?);
        }
        Ok(Puts { members: connections, next: Arc::default(), value: vec![b'x'; bytes].into() })
    }

    /// Puts a second over a round, with this many writers.
    pub(crate) async fn rate(&self, writers: usize, round: Duration) -> Result<f64> {
        let started = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let member = self.members[writer % self.members.len()].clone();
                tokio::spawn(write(member, self.next.clone(), self.value.clone(), started + round))
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await??;
        }
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }
}

async fn write(
    mut member: SendRequest<Full<Bytes>>,
    next: Arc<AtomicU64>,
    value: Bytes,
    until: Instant,
) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < until {
        let key = format!("/bench/{}", next.fetch_add(1, Ordering::Relaxed));
        let request = Request::post(PUT).header("content-type", "application/grpc").header("te", "trailers");
        member.ready().await?;
        let response = member.send_request(request.body(Full::new(message(key.as_bytes(), &value)))?).await?;
        let head = response.headers().get("grpc-status").cloned();
        let body = response.into_body().collect().await?;
        let status = head.or_else(|| body.trailers()?.get("grpc-status").cloned());
        if status.as_ref().is_none_or(|status| status != "0") {
            return Err(format!("etcd has rejected a put with the status {status:?}").into());
        }
        done += 1;
    }
    Ok(done)
}

/// A PutRequest in the frame of gRPC.
fn message(key: &[u8], value: &[u8]) -> Bytes {
    let mut put = BytesMut::new();
    for (tag, bytes) in [(KEY, key), (VALUE, value)] {
        put.put_u8(tag);
        put_varint(&mut put, bytes.len());
        put.put_slice(bytes);
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(put.len() as u32);
    framed.put_slice(&put);
    framed.freeze()
}

fn put_varint(out: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        out.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_a_put() {
        assert_eq!(&message(b"k", b"vv")[..], [0, 0, 0, 0, 7, KEY, 1, b'k', VALUE, 2, b'v', b'v']);
        let long = message(b"k", &[b'v'; 300]);
        assert_eq!(long[8..11], [VALUE, 0xac, 0x02]);
    }
}
