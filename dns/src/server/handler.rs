//! One query, from its bytes to the bytes of its response.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use super::Shared;
use crate::chain::{Query, Resolution};
use crate::message::{Edns, Message, Rcode, class, is_response, opcode, read_id};
use crate::metrics::{Source, Transport};

/// The smallest and the largest UDP payload that a client can request, and what this server receives.
const MIN_PAYLOAD: u16 = 512;
const MAX_PAYLOAD: u16 = 4096;
const OWN_PAYLOAD: u16 = 1232;

/// Bytes that were received.
pub(super) struct Packet<'a> {
    pub bytes: &'a [u8],
    pub source: SocketAddr,
    pub local: SocketAddr,
    pub transport: Transport,
    /// The port whose server blocks answer.
    pub port: u16,
}

/// The action for a packet.
pub(super) enum PacketAction {
    /// The packet is no query.
    Ignored,
    /// The response is known without any plugin.
    Done(Vec<u8>),
    Query(Query),
}

/// Reads a packet and checks it.
pub(super) fn parse(packet: &Packet) -> PacketAction {
    let Some(id) = read_id(packet.bytes).filter(|_| !is_response(packet.bytes)) else { return PacketAction::Ignored };
    let Ok(message) = Message::read(packet.bytes) else {
        let mut header = Message::default();
        header.header.id = id;
        return PacketAction::Done(header.reply(Rcode::FORMAT_ERROR).write(usize::from(MIN_PAYLOAD)));
    };
    let refused = match &message.question {
        _ if message.header.opcode != opcode::QUERY => Some(Rcode::NOT_IMPLEMENTED),
        None => Some(Rcode::FORMAT_ERROR),
        _ if message.edns.is_some_and(|edns| edns.version > 0) => Some(Rcode::BAD_VERSION),
        Some(question) if question.class != class::IN => Some(Rcode::REFUSED),
        Some(_) => None,
    };
    // A socket of both families shows IPv4 addresses as mapped ones.
    let source = SocketAddr::new(packet.source.ip().to_canonical(), packet.source.port());
    let (local, transport, size) = (packet.local, packet.transport, packet.bytes.len());
    let query = Query { message, source, local, transport, size };
    match refused {
        Some(rcode) => PacketAction::Done(write(&query, &mut query.message.reply(rcode))),
        None => PacketAction::Query(query),
    }
}

/// The bytes of the response to a query.
pub(super) async fn respond(shared: Arc<Shared>, query: Query, port: u16) -> Vec<u8> {
    let start = Instant::now();
    let program = shared.program.load_full();
    let question = query.message.question.as_ref();
    let found = program.routes(port).zip(question).and_then(|(routes, question)| {
        let (block, _) = routes.find(&question.name)?;
        Some((routes, block, question))
    });
    let Some((routes, block, question)) = found else {
        return write(&query, &mut query.message.reply(Rcode::REFUSED));
    };
    let resolving = std::pin::pin!(block.resolve(routes, &query, question));
    let mut resolved = match stdx::panic::catch_unwind(resolving).await {
        Ok(resolved) => resolved,
        Err(panic) => {
            shared.metrics.panics.inc();
            tracing::error!(name = %question.name, %panic, "query failed");
            Resolution { message: query.message.reply(Rcode::SERVER_FAILURE), source: Source::Server }
        }
    };
    let bytes = write(&query, &mut resolved.message);
    block.record(&query, &resolved, bytes.len(), start.elapsed().as_secs_f64());
    bytes
}

/// The response as the client can receive it.
fn write(query: &Query, message: &mut Message) -> Vec<u8> {
    message.header.id = query.message.header.id;
    message.edns = query.message.edns.map(|edns| Edns { payload: OWN_PAYLOAD, version: 0, dnssec_ok: edns.dnssec_ok });
    let limit = match query.transport {
        Transport::Tcp => u16::MAX,
        Transport::Udp => query.message.edns.map_or(MIN_PAYLOAD, |edns| edns.payload.clamp(MIN_PAYLOAD, MAX_PAYLOAD)),
    };
    message.write(usize::from(limit))
}
