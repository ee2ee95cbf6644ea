//! Debian's docker-registry, with basic authentication.

use std::time::Instant;

use runtime::images::{Config, Credentials, Error, NoProgress};

use crate::debian::{Registry, user};
use crate::support::{ProgressRecorder, Store, busybox, gzip, tar};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_what_was_pushed() {
    let registry = Registry::start().await;
    let name = registry.name("test/busybox:1");
    let maker = Store::new();
    let id = busybox(&maker.images, "maker.local/busybox").await;
    maker.images.push(&id, &name, user()).await.unwrap();

    let store = Store::new();
    let recorder = ProgressRecorder::default();
    let pulled = store.images.pull(&name, user(), &recorder).await.unwrap();
    assert_eq!(pulled, id, "the id is the configuration's digest, in every store");
    assert_eq!((recorder.count("resolved 3"), recorder.count("downloaded"), recorder.count("unpacked")), (1, 3, 3));
    let image = store.images.get(&name).unwrap();
    assert_eq!(image.repo_tags, std::slice::from_ref(&name));
    assert!(image.repo_digests[0].starts_with(&registry.name("test/busybox@sha256:")), "{image:?}");
    assert_eq!(image.config.cmd, ["/bin/busybox", "true"]);
    assert_eq!(recorder.bytes.lock().len(), 3);
    assert!(image.size > 3_000_000 && image.size < 6_000_000, "{}", image.size);
    assert_eq!(store.unfinished(), 0);

    let by_digest = store.images.pull(&image.repo_digests[0], user(), &ProgressRecorder::default()).await.unwrap();
    assert_eq!(by_digest, id);
    let again = ProgressRecorder::default();
    store.images.pull(&name, user(), &again).await.unwrap();
    assert_eq!((again.count("present"), again.count("downloaded")), (3, 0));
    assert_eq!(store.images.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pull_needs_credentials() {
    let registry = Registry::start().await;
    let name = registry.name("private:1");
    let store = Store::new();
    let id = store.images.build("x.local/a", vec![tar(&[("a", b"1")])], Config::default(), &NoProgress).await.unwrap();
    store.images.push(&id, &name, user()).await.unwrap();
    store.images.remove(&id).await.unwrap();
    store.images.pull(&name, user(), &NoProgress).await.unwrap();
    // A successful pull does not authorize another one.
    let wrong = Credentials::basic("user", "wrong");
    let elsewhere = Credentials { server_address: "other.example".into(), ..Credentials::basic("user", "secret") };
    for auth in [None, Some(wrong), Some(elsewhere)] {
        let error = store.images.pull(&name, auth.clone(), &NoProgress).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{auth:?}: {error}");
    }
    let missing = store.images.pull(&registry.name("private:2"), user(), &NoProgress).await.unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_that_moves() {
    let registry = Registry::start().await;
    let name = registry.name("moving:latest");
    let maker = Store::new();
    let store = Store::new();
    let mut ids = Vec::new();
    for content in [&b"1"[..], b"2"] {
        let layers = vec![tar(&[("shared", b"same")]), tar(&[("own", content)])];
        let id = maker.images.build("x.local/a", layers, Config::default(), &NoProgress).await.unwrap();
        maker.images.push(&id, &name, user()).await.unwrap();
        ids.push(store.images.pull(&name, user(), &NoProgress).await.unwrap());
    }
    assert_eq!(store.images.get(&name).unwrap().id, ids[1]);
    let old = store.images.get(&ids[0]).unwrap();
    assert!(old.repo_tags.is_empty() && old.repo_digests.len() == 1, "{old:?}");
    assert_eq!(store.names("layers").len(), 1 + 3, "the layer that both have is there once, beside the empty one");

    // A container still uses the old image.
    store.images.prepare("running", &ids[0]).unwrap();
    assert!(store.images.prune(false).await.unwrap().is_empty());
    store.images.remove(&ids[0]).await.unwrap();
    assert!(store.images.get(&ids[0]).is_none());
    assert_eq!(store.names("layers").len(), 1 + 3, "layers of a container are kept");
    store.images.release("running").unwrap();
    assert_eq!(store.names("layers").len(), 1 + 2, "until the container is removed");
    store.images.release("running").unwrap();

    store.images.pin(&name, true).unwrap();
    assert!(store.images.prune(true).await.unwrap().is_empty());
    store.images.pin(&name, false).unwrap();
    assert_eq!(store.images.prune(true).await.unwrap(), [ids[1].clone()]);
    assert_eq!((store.names("layers").len(), store.names("blobs/sha256").len()), (1, 0));
    store.images.remove(&ids[1]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_large_gzipped_layers() {
    let registry = Registry::start().await;
    let name = registry.name("large:1");
    let (publisher, store) = (Store::new(), Store::new());
    let layers = ["a", "b"].map(|layer| gzip(&tar(&[(layer, &compressible(layer, 2_000_000))])));
    let id = publisher.images.build("x.local/large", layers.to_vec(), Config::default(), &NoProgress).await.unwrap();
    publisher.images.push(&id, &name, user()).await.unwrap();
    let started = Instant::now();
    store.images.pull(&name, user(), &NoProgress).await.unwrap();
    assert!(started.elapsed().as_secs() < 60);
    assert_eq!(store.names("layers").len(), 1 + 2);
}

/// Half noise and half repetition, so that gzip saves about half of it.
fn compressible(seed: &str, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(seed.as_bytes()[0]);
    let next = |at: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if at % 64 < 32 { (state >> 56) as u8 } else { (at % 64) as u8 }
    };
    (0..bytes).map(next).collect()
}
