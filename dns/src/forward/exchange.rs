//! One query to one upstream. Each has a random ID and a source port of its own, and a response counts only if it
//! repeats the question.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use crate::message::{Edns, Message, Question, ReadError};

/// The UDP payload that is requested from upstreams; larger answers come by TCP.
const PAYLOAD: u16 = 1232;

/// Why an upstream has not answered a query.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No response arrived in time.
    #[error("no response in time")]
    Timeout,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The response is not a DNS message.
    #[error("invalid response: {0}")]
    Read(#[from] ReadError),
    /// The response is for another question.
    #[error("the response is for another question")]
    Mismatch,
    /// The system has no random numbers for the ID.
    #[error("no random number: {0}")]
    Random(getrandom::Error),
}

/// Sends a question by UDP, and again by TCP if the response is truncated.
pub(super) async fn exchange(
    to: SocketAddr,
    question: &Question,
    client: &Message,
    force_tcp: bool,
    wait: Duration,
    deadline: Instant,
) -> Result<Message, ExchangeError> {
    let until = || deadline.min(Instant::now() + wait);
    let query = query(question, client)?;
    if !force_tcp {
        let response = timeout_at(until(), exchange_udp(to, &query)).await.map_err(|_| ExchangeError::Timeout)??;
        if !response.header.truncated {
            return Ok(response);
        }
    }
    timeout_at(until(), exchange_tcp(to, &query)).await.map_err(|_| ExchangeError::Timeout)?
}

/// The query as this server sends it: flags and EDNS options are those of the client, as far as they concern upstreams.
fn query(question: &Question, client: &Message) -> Result<Message, ExchangeError> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(ExchangeError::Random)?;
    let mut query = Message::query(u16::from_ne_bytes(id), question.clone());
    query.header.recursion_desired = client.header.recursion_desired;
    query.header.checking_disabled = client.header.checking_disabled;
    query.header.authentic_data = client.header.authentic_data;
    query.edns = client.edns.map(|edns| Edns { payload: PAYLOAD, version: 0, dnssec_ok: edns.dnssec_ok });
    Ok(query)
}

async fn exchange_udp(to: SocketAddr, query: &Message) -> Result<Message, ExchangeError> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // The kernel chooses a random port, and a connected socket receives from the upstream only.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    socket.send(&query.write(usize::from(u16::MAX))).await?;
    let mut bytes = vec![0; 4096];
    loop {
        let length = socket.recv(&mut bytes).await?;
        // A packet that does not match is ignored: it may be forged, and the real response may follow.
        if let Ok(response) = accept(query, &bytes[..length]) {
            return Ok(response);
        }
    }
}

async fn exchange_tcp(to: SocketAddr, query: &Message) -> Result<Message, ExchangeError> {
    let mut stream = TcpStream::connect(to).await?;
    let bytes = query.write(usize::from(u16::MAX));
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    stream.write_all(&[&length[..], &bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    accept(query, &bytes)
}

/// The response, if it is one to the query.
fn accept(query: &Message, bytes: &[u8]) -> Result<Message, ExchangeError> {
    let response = Message::read(bytes)?;
    let is_same = |a: &Question, b: &Question| a.name.matches(&b.name) && (a.qtype, a.class) == (b.qtype, b.class);
    let matches = response.header.is_response
        && response.header.id == query.header.id
        && response.header.opcode == query.header.opcode
        && matches!((&response.question, &query.question), (Some(a), Some(b)) if is_same(a, b));
    if matches { Ok(response) } else { Err(ExchangeError::Mismatch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Name, Rcode, Type};

    #[test]
    fn accepts_only_responses_to_the_query() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let query = Message::query(7, Question::new(name("a.org"), Type::A));
        let check = |change: fn(&mut Message), want: bool| {
            let mut response = query.reply(Rcode::NO_ERROR);
            change(&mut response);
            assert_eq!(accept(&query, &response.write(512)).is_ok(), want, "{response:?}");
        };
        check(|_| {}, true);
        check(|response| response.question = Some(Question::new(Name::parse("A.ORG").expect("a name"), Type::A)), true);
        check(|response| response.header.id = 8, false);
        check(|response| response.header.is_response = false, false);
        check(|response| response.header.opcode = 4, false);
        check(|response| response.question = None, false);
        check(|response| response.question = Some(Question::new(Name::root(), Type::A)), false);
        assert!(accept(&query, b"nonsense").is_err());
    }

    #[test]
    fn queries_have_random_ids() {
        let question = Question::new(Name::root(), Type::NS);
        let client = Message::query(1, question.clone());
        let ids: std::collections::BTreeSet<u16> =
            (0..50).map(|_| query(&question, &client).expect("a query").header.id).collect();
        assert!(ids.len() > 40, "{ids:?}");
    }
}
