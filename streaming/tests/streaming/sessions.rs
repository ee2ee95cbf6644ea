//! Two sessions against each other, without Kubernetes protocols.

use std::io::ErrorKind;
use std::time::Duration;

use streaming::spdy::{Limits, Role, Session, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::within;

fn pair(limits: Limits) -> (Session, Session) {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let server = Session::new(near, Role::Server, limits, |_| Ok(()));
    (Session::new(far, Role::Client, limits, |_| Ok(())), server)
}

async fn open(from: &Session, to: &Session) -> (Stream, Stream) {
    let opened = within(from.open(vec![("name".to_string(), "value".to_string())])).await.unwrap();
    (opened, within(to.accept()).await.unwrap())
}

/// More data than a stream's window; half of it is never sent while it is not read.
fn more_than_a_window() -> Vec<u8> {
    vec![0; Limits::default().buffer * 3 / 2]
}

#[tokio::test]
async fn unread_streams_do_not_block_others() {
    let (client, server) = pair(Limits::default());
    let (mut stuck, _unread) = open(&client, &server).await;
    let (mut moving, mut read) = open(&client, &server).await;
    within(stuck.write_all(&more_than_a_window())).await.unwrap();
    let message = vec![7; 3_000_000];
    let sending = async {
        moving.write_all(&message).await.unwrap();
        moving.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let (_, count) = within(async { tokio::join!(sending, read.read_to_end(&mut got)) }).await;
    assert_eq!(count.unwrap(), message.len());
}

#[tokio::test]
async fn either_end_opens_and_headers_arrive() {
    let (client, server) = pair(Limits::default());
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut opened, mut taken) = open(from, to).await;
        assert_eq!(taken.header("Name"), Some("value"));
        taken.write_all(b"back").await.unwrap();
        taken.shutdown().await.unwrap();
        let mut text = String::new();
        within(opened.read_to_string(&mut text)).await.unwrap();
        assert_eq!(text, "back");
    }
}

#[tokio::test]
async fn a_reset_is_an_error_at_the_other_end_and_an_end_is_not() {
    let (client, server) = pair(Limits::default());
    let (cut, mut reader) = open(&client, &server).await;
    cut.reset();
    assert_eq!(within(reader.read_u8()).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (dropped, mut reader) = open(&client, &server).await;
    drop(dropped);
    assert_eq!(within(reader.read_u8()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn streams_past_the_limit_are_refused() {
    let limits = Limits { streams: 2, ..Limits::default() };
    let (near, far) = tokio::io::duplex(16 * 1024);
    let server = Session::new(near, Role::Server, limits, |_| Ok(()));
    let client = Session::new(far, Role::Client, Limits::default(), |_| Ok(()));
    let _first = open(&client, &server).await;
    let second = open(&client, &server).await;
    assert!(within(client.open(Vec::new())).await.is_err());
    drop(second);
    let _third = open(&client, &server).await;
}

#[tokio::test]
async fn a_lost_connection_ends_every_stream() {
    let (client, server) = pair(Limits::default());
    let (_opened, mut taken) = open(&client, &server).await;
    drop(client);
    assert_eq!(within(taken.read_u8()).await.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert!(within(server.accept()).await.is_none());
    within(server.over().wait_for(|over| *over)).await.unwrap();
}

#[tokio::test]
async fn a_close_sends_what_was_written_first() {
    let (client, server) = pair(Limits::default());
    let (opened, mut taken) = open(&client, &server).await;
    let message = vec![1; 200_000];
    let mut writer = opened;
    writer.write_all(&message).await.unwrap();
    drop(writer);
    let closing = tokio::spawn(client.close(Duration::from_secs(30)));
    let mut got = Vec::new();
    within(taken.read_to_end(&mut got)).await.unwrap();
    assert!(got == message);
    drop((taken, server));
    within(closing).await.unwrap();
}

#[tokio::test]
async fn waiting_for_a_flush_ends_when_the_reader_disconnects() {
    let (client, server) = pair(Limits::default());
    let (mut writer, taken) = open(&client, &server).await;
    within(writer.write_all(&more_than_a_window())).await.unwrap();
    drop(writer);
    let flushed = client.flushed();
    tokio::pin!(flushed);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut flushed).await.is_err(),
        "the other end does not read"
    );
    taken.reset();
    within(flushed).await;
}
