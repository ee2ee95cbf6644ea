//! Both ends of the wire against each other, and messages against bytes written by hand.

use std::sync::Arc;

use cri::{Code, ImageService, RuntimeService};
use prost::Message;
use tokio_stream::StreamExt;

/// A server whose runtime is a client again, of a socket without a listener.
async fn relay(directory: &std::path::Path) -> std::path::PathBuf {
    let (runtime, images) = cri::connect(&directory.join("missing.sock"));
    let socket = directory.join("relay.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(cri::serve(listener, Arc::new(runtime), Arc::new(images)));
    socket
}

#[tokio::test]
async fn an_error_keeps_its_code_over_the_wire() {
    let directory = tempfile::tempdir().expect("a directory");
    let (runtime, images) = cri::connect(&relay(directory.path()).await);
    let version = runtime.version(cri::VersionRequest::default()).await.expect_err("no listener");
    assert_eq!(version.code(), Code::Unavailable, "{version}");
    let list = images.list_images(cri::ListImagesRequest::default()).await.expect_err("no listener");
    assert_eq!(list.code(), Code::Unavailable, "{list}");
    let mut events = match runtime.get_container_events(cri::GetEventsRequest {}).await {
        Ok(events) => events,
        Err(error) => return assert_eq!(error.code(), Code::Unavailable, "{error}"),
    };
    let first = events.next().await.expect("an answer").expect_err("no listener");
    assert_eq!(first.code(), Code::Unavailable, "{first}");
}

#[tokio::test]
async fn an_unknown_call_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = relay(directory.path()).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display()))
        .expect("an address")
        .connect()
        .await
        .expect("a connection");
    for (path, says) in [
        ("/runtime.v1.RuntimeService/Fly", "unknown method Fly for service runtime.v1.RuntimeService"),
        ("/runtime.v1alpha2.RuntimeService/Version", "unknown service runtime.v1alpha2.RuntimeService"),
    ] {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.expect("ready");
        let codec = tonic_prost::ProstCodec::<cri::VersionRequest, cri::VersionResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path);
        let error = grpc
            .unary(tonic::Request::new(cri::VersionRequest::default()), path, codec)
            .await
            .expect_err("no such call");
        assert_eq!((error.code(), error.message()), (Code::Unimplemented, says));
    }
}

#[test]
fn messages_have_the_published_numbers() {
    let config = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: "a".to_owned(),
            uid: "b".to_owned(),
            namespace: "c".to_owned(),
            attempt: 3,
        }),
        labels: [("k".to_owned(), "v".to_owned())].into(),
        ..cri::PodSandboxConfig::default()
    };
    // Field 1: the metadata, 11 bytes; field 6: an entry of a map.
    let bytes = b"\x0a\x0b\x0a\x01a\x12\x01b\x1a\x01c\x20\x03\x32\x06\x0a\x01k\x12\x01v";
    assert_eq!(config.encode_to_vec(), bytes);
    assert_eq!(cri::PodSandboxConfig::decode(&bytes[..]).expect("a message"), config);
}
