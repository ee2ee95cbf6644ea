//! Invalid input: sessions end with an error or continue, but neither panic nor hang.

use streaming::spdy::{Limits, Role, Session};
use streaming::websocket::{self, Opcode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::server::{DEADLINE, within};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// The bytes of a client: streams with headers, data, ends and GOAWAY.
async fn recorded() -> Vec<u8> {
    let (near, middle) = tokio::io::duplex(1 << 16);
    let (far, server_end) = tokio::io::duplex(1 << 16);
    let recording = tokio::spawn(record(middle, far));
    let client = Session::new(near, Role::Client, Limits::default(), |_| Ok(()));
    let server = Session::new(server_end, Role::Server, Limits::default(), |_| Ok(()));
    for kind in ["error", "data", "stdin"] {
        let headers = vec![("streamtype".to_string(), kind.to_string()), ("port".to_string(), "80".to_string())];
        let mut stream = within(client.open(headers)).await.unwrap();
        let mut taken = within(server.accept()).await.unwrap();
        stream.write_all(&[b'x'; 100]).await.unwrap();
        stream.shutdown().await.unwrap();
        within(taken.read_to_end(&mut Vec::new())).await.unwrap();
    }
    let closing = tokio::spawn(client.close(DEADLINE));
    within(async { while server.accept().await.is_some() {} }).await;
    drop(server);
    within(closing).await.unwrap();
    let wire = within(recording).await.unwrap();
    assert!(wire.len() > 400, "{}", wire.len());
    wire
}

/// Forwards bytes in both directions and records those of the client.
async fn record(client: DuplexStream, server: DuplexStream) -> Vec<u8> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut wire = Vec::new();
    let mut piece = vec![0; 4096];
    while let Ok(count) = from_client.read(&mut piece).await {
        wire.extend_from_slice(&piece[..count]);
        if count == 0 || to_server.write_all(&piece[..count]).await.is_err() {
            break;
        }
    }
    let _ = to_server.shutdown().await;
    wire
}

fn mutated(random: &mut Random, wire: &[u8]) -> Vec<u8> {
    let mut out = wire.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(out.len());
        match random.below(4) {
            0 => out[at] = random.next() as u8,
            1 => out[at] ^= 1 << random.below(8),
            2 => out.truncate(at.max(1)),
            _ => {
                let count = random.below(16);
                let extra = random.bytes(count);
                out.splice(at..at, extra);
            }
        }
    }
    out
}

/// Feeds a server and checks that it ends with its connection.
async fn feed_spdy(wire: &[u8]) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let session = Session::new(near, Role::Server, Limits::default(), |_| Ok(()));
    let (mut reader, mut writer) = tokio::io::split(far);
    let feeding = async {
        let _ = writer.write_all(wire).await;
        let _ = writer.shutdown().await;
    };
    let draining = async {
        let mut answers = Vec::new();
        let _ = reader.read_to_end(&mut answers).await;
    };
    let taking = async {
        while let Some(mut stream) = session.accept().await {
            let mut data = Vec::new();
            let _ = (&mut stream).take(1 << 20).read_to_end(&mut data).await;
        }
    };
    within(async { tokio::join!(feeding, draining, taking) }).await;
}

#[tokio::test]
async fn spdy_survives_invalid_input() {
    let wire = recorded().await;
    let mut random = Random(0x5eed_0001);
    for _ in 0..1500 {
        feed_spdy(&mutated(&mut random, &wire)).await;
    }
    for _ in 0..500 {
        let count = 1 + random.below(300);
        let mut noise = random.bytes(count);
        if random.below(2) == 0 && noise.len() > 4 {
            noise[..4].copy_from_slice(&[0x80, 3, 0, (random.below(12)) as u8]);
        }
        feed_spdy(&noise).await;
    }
}

#[tokio::test]
async fn websocket_survives_invalid_input() {
    let mut random = Random(0x5eed_0002);
    let mut wire = bytes::BytesMut::new();
    for (opcode, payload) in [
        (Opcode::Binary, &b"\x00hello"[..]),
        (Opcode::Ping, b"p"),
        (Opcode::Text, b"0aGk="),
        (Opcode::Close, b"\x03\xe8"),
    ] {
        websocket::encode(opcode, &[payload], Some([1, 2, 3, 4]), &mut wire);
    }
    for _ in 0..3000 {
        let mutant = mutated(&mut random, &wire);
        let mut decoder = websocket::Decoder::new(websocket::Role::Server);
        let mut buffer = bytes::BytesMut::from(&mutant[..]);
        let mut events = 0;
        while let Ok(Some(_)) = decoder.decode(&mut buffer) {
            events += 1;
            assert!(events <= mutant.len(), "each event takes bytes");
        }
    }
}
