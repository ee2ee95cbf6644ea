//! UDP, TCP, EDNS, truncation, and queries that are none.

use std::time::Duration;

use dns::message::{Edns, Message, Question, Rcode, Type, class};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::support::{WAIT, ask, ask_by_tcp, lookup, name, query, shown, start};

/// A hosts entry with many addresses, and one with few.
fn corefile() -> String {
    let many: String = (1..=100).map(|last| format!("10.0.1.{last} many.org\n")).collect();
    format!(". {{\nhosts /nonexistent {{\n10.0.0.1 few.org\n{many}}}\n}}")
}

#[tokio::test]
async fn truncated_answers_are_complete_by_tcp() {
    let (_running, server) = start(&corefile()).await;
    let check = async |payload: Option<u16>, limit: usize| {
        let mut query = query("many.org", Type::A);
        query.edns = payload.map(|payload| Edns { payload, version: 0, dnssec_ok: true });
        let response = ask(server, &query).await;
        assert!(response.header.truncated && response.answers.len() < 100, "{payload:?}");
        assert!(response.write(65535).len() <= limit, "{payload:?}");
        assert_eq!(response.edns.map(|edns| edns.dnssec_ok), payload.map(|_| true), "EDNS is repeated");
    };
    check(None, 512).await;
    check(Some(0), 512).await;
    check(Some(1232), 1232).await;
    let mut large = query("many.org", Type::A);
    large.edns = Some(Edns { payload: 4096, ..Edns::default() });
    assert_eq!(ask(server, &large).await.answers.len(), 100);
    let responses = ask_by_tcp(server, &[query("many.org", Type::A)]).await;
    let response = &responses[&4711];
    assert_eq!((response.header.truncated, response.answers.len()), (false, 100));
}

#[tokio::test]
async fn a_connection_has_many_queries() {
    let (_running, server) = start(&corefile()).await;
    let queries: Vec<Message> =
        (0..200).map(|id| Message::query(id, Question::new(name("few.org"), Type::A))).collect();
    let responses = ask_by_tcp(server, &queries).await;
    assert_eq!(responses.len(), 200);
    assert!(responses.values().all(|response| shown(response) == "NOERROR 10.0.0.1"));
}

#[tokio::test]
async fn malformed_queries_are_refused_or_ignored() {
    let (_running, server) = start(&corefile()).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let good = query("few.org", Type::A);
    let change = |change: &dyn Fn(&mut Message)| {
        let mut message = good.clone();
        change(&mut message);
        message
    };
    let check = async |message: Message, want: Rcode| {
        assert_eq!(ask(server, &message).await.header.rcode, want, "{message:?}");
    };
    check(change(&|message| message.header.opcode = 4), Rcode::NOT_IMPLEMENTED).await;
    check(change(&|message| message.question = None), Rcode::FORMAT_ERROR).await;
    check(change(&|message| message.edns = Some(Edns { version: 1, ..Edns::default() })), Rcode::BAD_VERSION).await;
    let chaos = Question { class: class::CH, ..Question::new(name("version.bind"), Type::TXT) };
    check(change(&|message| message.question = Some(chaos.clone())), Rcode::REFUSED).await;
    // Broken after the header: the ID is known.
    let mut bytes = good.write(512);
    bytes.truncate(20);
    socket.send_to(&bytes, server).await.expect("sent");
    let mut buffer = [0; 512];
    let received = tokio::time::timeout(WAIT, socket.recv(&mut buffer)).await.expect("in time").expect("a response");
    let response = Message::read(&buffer[..received]).expect("a message");
    assert_eq!((response.header.id, response.header.rcode), (4711, Rcode::FORMAT_ERROR));
    // Neither a response nor a short packet is answered: the next answer is to the good query.
    socket.send_to(&good.reply(Rcode::NO_ERROR).write(512), server).await.expect("sent");
    socket.send_to(&[1, 2, 3], server).await.expect("sent");
    socket.send_to(&[], server).await.expect("sent");
    assert_eq!(shown(&crate::support::ask_from(&socket, server, &good).await), "NOERROR 10.0.0.1");
}

#[tokio::test]
async fn connections_that_send_nothing_do_not_block_others() {
    let (_running, server) = start(&corefile()).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server).await.expect("a connection");
        stream.write_all(&[0]).await.expect("sent");
        idle.push(stream);
    }
    assert_eq!(shown(&ask_by_tcp(server, &[query("few.org", Type::A)]).await[&4711]), "NOERROR 10.0.0.1");
    // A response instead of a query closes the connection.
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    let bytes = query("few.org", Type::A).reply(Rcode::NO_ERROR).write(512);
    stream.write_u16(u16::try_from(bytes.len()).expect("short")).await.expect("sent");
    stream.write_all(&bytes).await.expect("sent");
    let closed = tokio::time::timeout(WAIT, stream.read_u8()).await.expect("in time");
    assert!(closed.is_err(), "it is closed");
}

#[tokio::test]
async fn stopping_closes_the_port() {
    let (running, server) = start(&corefile()).await;
    assert_eq!(lookup(server, "few.org", Type::A).await, "NOERROR 10.0.0.1");
    running.stop().await;
    let (_again, _) = crate::support::start_with(
        dns::Config {
            listen: dns::Listen::At(vec![server]),
            ..crate::support::config(dns::CorefileSource::Text(corefile()))
        },
        None,
    )
    .await;
    assert_eq!(lookup(server, "few.org", Type::A).await, "NOERROR 10.0.0.1");
    let taken = dns::Server::start(
        dns::Config {
            listen: dns::Listen::At(vec![server]),
            ..crate::support::config(dns::CorefileSource::Text(corefile()))
        },
        None,
    )
    .await;
    assert!(matches!(taken, Err(dns::StartError::Listen { .. })), "two servers do not share an address");
    tokio::time::sleep(Duration::ZERO).await;
}
