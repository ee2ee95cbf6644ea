//! Features of the etcd engine only: other writers, an unavailable server, TLS, leases.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::{Error, Precondition, Range, Store, Write};
use support::etcd::Server;
use support::{Recorder, everything, put, until, within};

#[tokio::test]
async fn layout_matches_upstream() {
    let server = Server::start();
    let sink = Recorder::new();
    let store = server.connect(server.config("/registry"), sink.clone()).await;
    store.commit(vec![put("/pods/default/web", "1", Precondition::Absent)]).await.unwrap();
    let shown = server.etcdctl(&["get", "--prefix", "/"]);
    assert_eq!(shown, "/registry/pods/default/web\n{\"rv\":\"\",\"value\":\"1\"}\n");
    assert!(store.version().await.unwrap().starts_with("3."));
    server.etcdctl(&["put", "/registry/pods/default/other", "k8s"]);
    let event = sink.wait("the other's write", |event| &*event.key == "/pods/default/other").await;
    assert_eq!(event.entry.unwrap().value, "k8s");
}

#[tokio::test]
async fn writes_outside_the_prefix_only_move_the_revision() {
    let server = Server::start();
    let sink = Recorder::new();
    let store = server.connect(server.config("/registry"), sink.clone()).await;
    let before = store.commit(vec![put("/a", "1", Precondition::Absent)]).await.unwrap()[0].revision;
    for number in 0..5 {
        server.etcdctl(&["put", &format!("/registrz/{number}"), "x"]);
    }
    assert_eq!(within("the revision", store.revision()).await.unwrap(), before + 5);
    assert_eq!(store.range(everything()).await.unwrap().entries.len(), 1);
    assert_eq!(sink.events().len(), 1);
    let after = store.commit(vec![put("/b", "1", Precondition::Absent)]).await.unwrap()[0].revision;
    assert_eq!(after, before + 6);
}

#[tokio::test]
async fn two_servers_see_each_others_writes() {
    let server = Server::start();
    let (first_sink, second_sink) = (Recorder::new(), Recorder::new());
    let first = server.connect(server.config("/registry"), first_sink.clone()).await;
    let second = server.connect(server.config("/registry"), second_sink.clone()).await;
    for number in 0..20 {
        let revision =
            first.commit(vec![put("/a", &number.to_string(), Precondition::Anything)]).await.unwrap()[0].revision;
        assert_eq!(second.revision().await.unwrap(), revision);
        assert!(second_sink.newest() >= revision, "a read that waited for the revision sees it");
        let revision =
            second.commit(vec![put("/b", &number.to_string(), Precondition::Anything)]).await.unwrap()[0].revision;
        assert_eq!(first.get("/b").await.unwrap().unwrap().revision, revision);
    }
}

#[tokio::test]
async fn etcd_restarts_lose_no_event() {
    let mut server = Server::start();
    let sink = Recorder::new();
    let store = server.connect(server.config("/registry"), sink.clone()).await;
    let mut expected = Vec::new();
    for number in 0..4 {
        expected.push(
            store.commit(vec![put("/a", &number.to_string(), Precondition::Anything)]).await.unwrap()[0].revision,
        );
        server.kill();
        server.run();
        // A write of another client that our watch could not receive at that time.
        until("etcd's start", || std::net::TcpStream::connect(server.endpoint().trim_start_matches("http://")).is_ok());
        server.etcdctl(&["put", "/registry/b", &number.to_string()]);
        expected.push(expected.last().unwrap() + 1);
        store.revision().await.unwrap();
    }
    assert_eq!(sink.events().iter().map(|event| event.revision).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn resyncs_after_compaction() {
    let mut server = Server::start();
    let sink = Recorder::new();
    let store = server.connect(server.config("/registry"), sink.clone()).await;
    for key in ["/changed", "/deleted", "/same"] {
        store.commit(vec![put(key, "1", Precondition::Absent)]).await.unwrap();
    }
    let before = store.revision().await.unwrap();
    let mut watch = store.watch("/", before).unwrap();
    // Unreachable for the store, but not for the test.
    server.kill();
    let port = server.move_to_another_port();
    server.run();
    until("etcd's start", || std::net::TcpStream::connect(server.endpoint().trim_start_matches("http://")).is_ok());
    server.etcdctl(&["put", "/registry/changed", "2"]);
    server.etcdctl(&["del", "/registry/deleted"]);
    server.etcdctl(&["put", "/registry/new", "1"]);
    server.etcdctl(&["put", "/registry/new", "2"]);
    server.etcdctl(&["compact", &(before + 4).to_string()]);
    server.kill();
    server.move_to_port(port);
    server.run();
    let newest = within("the full read", store.revision()).await.unwrap();
    assert_eq!(newest, before + 4);
    let events: Vec<_> = sink.events().into_iter().filter(|event| event.revision > before).collect();
    let seen: Vec<_> =
        events.iter().map(|event| (event.revision - before, &*event.key, event.entry.is_some())).collect();
    assert_eq!(seen, [(1, "/changed", true), (4, "/new", true), (4, "/deleted", false)]);
    assert!(events[0].previous.is_some() && events[2].previous.is_some());
    assert_eq!(store.compacted(), newest);
    let ended = async {
        loop {
            if let Err(error) = watch.next().await {
                break error;
            }
        }
    };
    let ended = within("the end of the watch", ended).await;
    assert!(matches!(ended, Error::Lagging | Error::Compacted { .. }), "a watch with a gap ends: {ended:?}");
    store.commit(vec![put("/more", "1", Precondition::Absent)]).await.unwrap();
}

#[tokio::test]
async fn leases_are_shared() {
    let server = Server::start();
    let store = server.connect(server.config("/registry"), Recorder::new()).await;
    for number in 0..10 {
        let ttl = Some(Duration::from_secs(3600));
        let write = Write { ttl, ..put(&format!("/events/{number}"), "1", Precondition::Absent) };
        let entry = store.commit(vec![write]).await.unwrap().remove(0).entry.unwrap();
        assert_eq!(store.get(&entry.key).await.unwrap().unwrap(), entry);
    }
    assert!(server.etcdctl(&["lease", "list"]).starts_with("found 1 leases"));
}

#[tokio::test]
async fn compaction_uses_upstreams_key() {
    let server = Server::start();
    let config =
        store::etcd::Config { compact_interval: Some(Duration::from_millis(20)), ..server.config("/registry") };
    let first = Arc::new(server.connect(config.clone(), Recorder::new()).await);
    let _second = server.connect(config, Recorder::new()).await;
    let old = first.commit(vec![put("/a", "1", Precondition::Absent)]).await.unwrap()[0].revision;
    let compacted = async {
        loop {
            first.commit(vec![put("/a", "2", Precondition::Anything)]).await.unwrap();
            if let Err(Error::Compacted { .. }) = first.range(Range { revision: old, ..everything() }).await {
                break;
            }
        }
    };
    within("the compaction", compacted).await;
    assert!(server.etcdctl(&["get", "compact_rev_key"]).starts_with("compact_rev_key\n"));
}

#[tokio::test]
async fn snapshots_have_etcds_format() {
    let server = Server::start();
    let store = server.connect(server.config("/registry"), Recorder::new()).await;
    let revision = store.commit(vec![put("/a", "1", Precondition::Absent)]).await.unwrap()[0].revision;
    let path = server.dir.path().join("snapshot");
    assert_eq!(store.snapshot(&path).await.unwrap(), revision);
    let status = server.etcdctl(&["snapshot", "status", path.to_str().unwrap()]);
    assert!(status.split(", ").nth(1).is_some_and(|field| field == revision.to_string()), "{status}");
}

#[tokio::test]
async fn reports_unreachable_etcd() {
    let config = store::etcd::Config {
        timeout: Duration::from_millis(300),
        ..store::etcd::Config::new(vec!["http://127.0.0.1:1".to_owned()])
    };
    let error = within("the error", store::etcd::connect(config, Recorder::new())).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let certificates = Certificates::new();
    let server = Server::start_with("https", |dir| {
        certificates.write(dir);
        let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let arguments = [
            ("--cert-file", file("server.pem")),
            ("--key-file", file("server.key")),
            ("--trusted-ca-file", file("ca.pem")),
            ("--client-cert-auth", "true".to_owned()),
        ];
        arguments.into_iter().map(|(flag, value)| format!("{flag}={value}")).collect()
    });
    let file = |name: &str| Some(server.dir.path().join(name));
    let anonymous =
        store::etcd::Config { ca_file: file("ca.pem"), timeout: Duration::from_secs(1), ..server.config("/registry") };
    let trusted = store::etcd::Config {
        cert_file: file("client.pem"),
        key_file: file("client.key"),
        timeout: support::DEADLINE,
        ..anonymous.clone()
    };
    let store = server.connect(trusted, Recorder::new()).await;
    store.commit(vec![put("/a", "1", Precondition::Absent)]).await.unwrap();
    assert!(store.get("/a").await.unwrap().is_some());
    let refused = store::etcd::connect(anonymous, Recorder::new()).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "a client without a certificate got in");
}

/// A CA with a server and a client certificate.
struct Certificates([(&'static str, String); 5]);

impl Certificates {
    fn new() -> Self {
        let key = || rcgen::KeyPair::generate().unwrap();
        let (ca_key, server_key, client_key) = (key(), key(), key());
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let mut server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let mut client = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
        // etcd is its own client, with its server certificate.
        let usages = [rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        server.extended_key_usages = usages.to_vec();
        client.extended_key_usages = usages[1..].to_vec();
        Self([
            ("ca.pem", ca_pem),
            ("server.pem", server.signed_by(&server_key, &issuer).unwrap().pem()),
            ("server.key", server_key.serialize_pem()),
            ("client.pem", client.signed_by(&client_key, &issuer).unwrap().pem()),
            ("client.key", client_key.serialize_pem()),
        ])
    }

    fn write(&self, dir: &Path) {
        self.0.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
    }
}

#[tokio::test]
async fn causes_have_keys_of_their_own_that_expire() {
    let server = Server::start();
    let sink = Recorder::new();
    let config = |ttl: u64| {
        let causes = Some(Duration::from_secs(ttl));
        store::etcd::Config { causes, ..server.config("/registry") }
    };
    let store = server.connect(config(3600), sink.clone()).await;
    let because = |write: Write, why: &str| Write { cause: why.as_bytes().to_vec(), ..write };
    let commit = async |write: Write| store.commit(vec![write]).await.unwrap()[0].revision;
    let first = commit(because(put("/a", "1", Precondition::Absent), "created")).await;
    let second = commit(because(put("/a", "2", Precondition::Anything), "changed")).await;
    server.etcdctl(&["put", "/registry/a", "foreign"]);
    let gone = commit(because(support::delete("/a", Precondition::Anything), "deleted")).await;
    // A key whose name continues the other's, as its separator does.
    commit(because(put("/a#b", "1", Precondition::Absent), "other")).await;
    let of = |limit| store::VersionQuery { key: "/a".to_owned(), limit, ..Default::default() };
    let found = store.versions(of(0)).await.unwrap();
    let text = |version: &store::Version| {
        let value = match &version.content {
            store::Content::Value(value) => String::from_utf8_lossy(value).into_owned(),
            other => format!("{other:?}"),
        };
        (version.revision, String::from_utf8_lossy(&version.cause).into_owned(), value)
    };
    let versions: Vec<_> = found.versions.iter().map(text).collect();
    let is = |at: usize, revision, cause: &str, value: &str| {
        assert_eq!(versions[at], (revision, cause.to_owned(), value.to_owned()));
    };
    assert_eq!((versions.len(), found.is_limited), (4, false));
    is(0, first, "created", r#"{"rv":"","value":"1"}"#);
    is(1, second, "changed", r#"{"rv":"","value":"2"}"#);
    is(2, second + 1, "", "foreign");
    is(3, gone, "deleted", "Deleted");
    let limited = store.versions(of(2)).await.unwrap();
    assert_eq!((limited.versions, limited.is_limited), (found.versions[2..].to_vec(), true));
    // These keys are seen by neither ranges nor the sink.
    assert_eq!(store.range(everything()).await.unwrap().entries.len(), 1);
    assert!(sink.events().iter().all(|event| event.key.starts_with("/a")));
    let then = store.past_range(Range { revision: second, ..everything() }).await.unwrap();
    assert_eq!((then.entries.len(), then.entries[0].revision), (1, second));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(store.revision_at(now + Duration::from_secs(1)).await.unwrap() >= gone);
    assert!(matches!(store.revision_at(now - Duration::from_secs(60)).await, Err(Error::Compacted { .. })));
    let short = server.connect(config(1), Recorder::new()).await;
    short.commit(vec![because(put("/short", "1", Precondition::Absent), "brief")]).await.unwrap();
    let causes = || server.etcdctl(&["get", "--keys-only", "--prefix", "tiphys-cause/registry/short#"]);
    assert!(causes().contains("/short#"));
    until("the end of its lease", || !causes().contains("/short#"));
    assert!(short.get("/short").await.unwrap().is_some(), "the object has no lease");
}
