//! Crashes, full disks and cancelled pulls leave only complete images behind.

use std::fs;
use std::os::fd::AsRawFd;
use std::time::Duration;

use runtime::images::{Config, Error, Images, NoProgress};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};

use crate::server::{Content, Response, Server};
use crate::support::{Store, gzip, names, noise, options, tar, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleans_up_after_a_crashed_process() {
    let store = Store::new();
    let id = store.images.build("x.local/a", vec![tar(&[("a", b"1")])], Config::default(), &NoProgress).await.unwrap();
    let root = store.root();
    // Work in progress, a blob and a layer that no image references, and a snapshot that was never returned.
    fs::create_dir_all(root.join("ingest/999999.0/3/fs/etc")).unwrap();
    fs::write(root.join("ingest/999999.0/4"), "half a blob").unwrap();
    fs::write(root.join("blobs/sha256").join("ab".repeat(32)), "whole, but of a pull that did not end").unwrap();
    let stray = root.join("layers").join("cd".repeat(32));
    fs::create_dir_all(stray.join("fs")).unwrap();
    let info = fs::read_dir(root.join("layers")).unwrap().map(|entry| entry.unwrap().path().join("info"));
    let info = info.into_iter().find(|path| path.exists()).unwrap();
    fs::copy(info, stray.join("info")).unwrap();
    let other = Images::open(&root, options()).unwrap();
    assert_eq!(store.names("ingest").len(), 2, "those of the two that live");
    assert_eq!((store.names("layers").len(), store.names("blobs/sha256").len()), (2, 3));
    assert_eq!(other.get(&id).unwrap().id, id);
    drop(other);
    assert_eq!(store.names("ingest").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn does_not_trust_unsynced_layers_of_an_earlier_boot() {
    let store = Store::new();
    let id = store.images.build("x.local/a", vec![tar(&[("a", b"1")])], Config::default(), &NoProgress).await.unwrap();
    let layer = store.names("layers").into_iter().find(|name| name != "empty").unwrap();
    let info = store.root().join("layers").join(&layer).join("info");
    let text = fs::read_to_string(&info).unwrap();
    assert!(!text.contains("boot"), "it has reached the disk: {text}");
    fs::write(&info, text.replacen('{', "{\"boot\":\"another\",", 1)).unwrap();
    let again = Images::open(&store.root(), options()).unwrap();
    assert!(again.get(&id).is_none() && again.list().is_empty());
    assert_eq!((store.names("layers").len(), store.names("blobs/sha256").len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_a_full_disk_and_cleans_up() {
    // A small detached file system.
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    fsconfig_set_string(&context, "size", "4m").unwrap();
    fsconfig_create(&context).unwrap();
    let disk = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    let root = std::path::PathBuf::from(format!("/proc/self/fd/{}/store", disk.as_raw_fd()));
    let zeros = tar(&[("zeros", &vec![0; 8 << 20])]);
    let contents = [
        ("while it comes", Content::plain(&[tar(&[("a", &noise(6_000_000))])])),
        ("while it is unpacked", Content::of(&[(gzip(&zeros), zeros.clone())])),
        ("by the second layer", Content::plain(&[tar(&[("a", b"1")]), tar(&[("b", &noise(3_000_000))])])),
    ];
    for (name, content) in contents {
        let own = content.clone();
        let server = Server::start(move |request| own.answer(request)).await;
        let images = Images::open(&root, options()).unwrap();
        let error = images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{name}: {error}");
        assert!(images.list().is_empty());
        until(name, || {
            let _ = Images::open(&root, options());
            names(&root.join("blobs/sha256")).is_empty() && names(&root.join("layers")) == ["empty"]
        })
        .await;
        // There is space again.
        let small = vec![tar(&[("a", &noise(1_000_000))])];
        let id = images.build("x.local/small", small, Config::default(), &NoProgress).await.unwrap();
        images.remove(&id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleans_up_after_a_cancelled_pull() {
    let content = Content::plain(&[tar(&[("a", &noise(500_000))])]);
    let own = content.clone();
    // The transfer of the layer never ends.
    let server = Server::start(move |request| match request.path.contains(&own.layers[0]) {
        true => Response::of(200, &own.blobs[&own.layers[0]][..1000])
            .with("Content-Length", &own.blobs[&own.layers[0]].len().to_string())
            .cut(1000),
        false => own.answer(request),
    })
    .await;
    let store = Store::with(|options| options.timeouts.retry = Duration::from_secs(3600));
    let (images, name) = (store.images.clone(), server.name("a:1"));
    let pull = tokio::spawn(async move { images.pull(&name, None, &NoProgress).await });
    until("the layer is on its way", || server.count(&content.layers[0]) > 0).await;
    pull.abort();
    assert!(pull.await.unwrap_err().is_cancelled());
    until("nothing is left", || store.unfinished() == 0).await;
    assert!(store.images.list().is_empty());
    assert!(store.images.prune(true).await.unwrap().is_empty());
    assert!(store.names("blobs/sha256").is_empty(), "no process uses the store any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_a_damaged_blob_again() {
    let content = Content::plain(&[tar(&[("a", &noise(10_000))])]);
    let own = content.clone();
    let server = Server::start(move |request| own.answer(request)).await;
    let store = Store::new();
    // Of the right size, as after a power failure.
    let hex = content.layers[0].trim_start_matches("sha256:");
    let length = content.blobs[&content.layers[0]].len();
    fs::write(store.root().join("blobs/sha256").join(hex), vec![0; length]).unwrap();
    assert_eq!(store.images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap(), content.id);
    assert_eq!(server.count(&content.layers[0]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_a_store() {
    let store = Store::new();
    let other = Images::open(&store.root(), options()).unwrap();
    let id = other.build("x.local/a", vec![tar(&[("a", b"1")])], Config::default(), &NoProgress).await.unwrap();
    assert_eq!(store.images.get("x.local/a").unwrap().id, id);
    store.images.prepare("c", &id).unwrap();
    other.remove("x.local/a").await.unwrap();
    assert!(store.images.get("x.local/a").is_none());
    assert_eq!(store.names("layers").len(), 2, "the layers of the other process's container are kept");
}
