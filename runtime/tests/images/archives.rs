//! Archives: export and import, verified with skopeo.

use std::path::Path;
use std::process::Command;

use runtime::images::archive::Output;
use runtime::images::{Config, Error, NoProgress};

use crate::debian::{Registry, user};
use crate::support::{ProgressRecorder, Store, busybox, gzip, tar};

fn skopeo(args: &[&str]) -> String {
    let output = Command::new("skopeo").args(args).output().expect("skopeo is installed");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imports_what_was_exported() {
    let store = Store::new();
    let id = busybox(&store.images, "x.local/busybox:1").await;
    let tar_file = store.path().join("image.tar");
    let directory = store.path().join("layout");
    store.images.export(&["x.local/busybox:1".into()], Output::File(tar_file.clone())).await.unwrap();
    store.images.export(std::slice::from_ref(&id), Output::Directory(directory.clone())).await.unwrap();
    let zipped = store.path().join("image.tar.gz");
    std::fs::write(&zipped, gzip(&std::fs::read(&tar_file).unwrap())).unwrap();
    for path in [tar_file, directory.clone(), zipped] {
        let other = Store::new();
        assert_eq!(other.images.import(&path, None, &NoProgress).await.unwrap(), std::slice::from_ref(&id), "{path:?}");
        let image = other.images.get("x.local/busybox:1").expect("the name comes along");
        assert_eq!((&image.id, image.config.cmd.len()), (&id, 2));
        other.images.prepare("c", &id).unwrap();
        assert_eq!(other.unfinished(), 0);
    }
    let error = store.images.export(&[id], Output::Directory(directory)).await.unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_compatible_with_skopeo() {
    let registry = Registry::start().await;
    let store = Store::new();
    let id = busybox(&store.images, "x.local/busybox:1").await;
    let file = store.path().join("image.tar");
    store.images.export(std::slice::from_ref(&id), Output::File(file.clone())).await.unwrap();
    let remote = format!("docker://{}", registry.name("skopeo:1"));
    let plain = ["--dest-tls-verify=false", "--dest-creds=user:secret"];
    // Skopeo can read the file in both formats.
    for source in ["oci-archive", "docker-archive"] {
        let from = format!("{source}:{}:x.local/busybox:1", file.display());
        let from = if source == "oci-archive" { format!("{source}:{}", file.display()) } else { from };
        skopeo(&[&["--insecure-policy", "copy"], &plain[..], &[&from, &remote]].concat());
        let other = Store::new();
        let pulled = other.images.pull(&registry.name("skopeo:1"), user(), &NoProgress).await.unwrap();
        assert_eq!(pulled, id, "{source}");
    }
    for kind in ["docker-archive", "oci-archive", "oci"] {
        let path = store.path().join(format!("from-{kind}"));
        let to = format!("{kind}:{}:x.local/back:2", path.display());
        let source = ["--src-tls-verify=false", "--src-creds=user:secret"];
        skopeo(&[&["--insecure-policy", "copy"], &source[..], &[&remote, &to]].concat());
        let other = Store::new();
        other.images.import(&path, None, &NoProgress).await.unwrap();
        let image = other.images.get("x.local/back:2").unwrap_or_else(|| panic!("{kind}: {:?}", other.images.list()));
        assert_eq!(image.config.cmd, ["/bin/busybox", "true"], "{kind}");
        let rootfs = other.images.prepare("c", &image.id).unwrap();
        assert!(rootfs.lower.iter().any(|lower| lower.join("bin/busybox").is_file()), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_reports_progress() {
    let maker = Store::new();
    let id =
        maker.images.build("x.local/a", vec![tar(&[("a", &[b'x'; 100_000])])], Config::default(), &NoProgress).await;
    let (id, directory, file) = (id.unwrap(), maker.path().join("layout"), maker.path().join("archive.tar"));
    maker.images.export(std::slice::from_ref(&id), Output::Directory(directory.clone())).await.unwrap();
    maker.images.export(&[id], Output::File(file.clone())).await.unwrap();
    for path in [directory, file] {
        let (store, recorder) = (Store::new(), ProgressRecorder::default());
        store.images.import(&path, None, &recorder).await.unwrap();
        let read = recorder.read.lock().last().copied().unwrap();
        assert!(read.0 > 0 && read.0 <= read.1, "{}: {read:?}", path.display());
        assert_eq!((recorder.count("resolved 1"), recorder.count("unpacked")), (1, 1), "{}", path.display());
        assert!(recorder.bytes.lock().values().all(|bytes| *bytes > 0), "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_invalid_archives() {
    let store = Store::new();
    let layer = tar(&[("a", b"1")]);
    let id = store.images.build("x.local/a", vec![layer], Config::default(), &NoProgress).await.unwrap();
    let directory = store.path().join("layout");
    store.images.export(&[id], Output::Directory(directory.clone())).await.unwrap();
    let blobs = directory.join("blobs/sha256");
    let largest = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path());
    let layer = largest.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    std::fs::write(&layer, "something else").unwrap();
    let error = Store::new().images.import(&directory, None, &NoProgress).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");

    let write = |name: &str, files: &[(&str, &[u8])]| {
        let path = store.path().join(name);
        std::fs::write(&path, tar(files)).unwrap();
        path
    };
    let manifest = br#"[{"Config":"../../etc/passwd","RepoTags":["x:1"],"Layers":[]}]"#;
    let missing = br#"[{"Config":"config.json","RepoTags":["x:1"],"Layers":["layer.tar"]}]"#;
    let named = br#"[{"Config":"config.json","RepoTags":["Not A Name"],"Layers":[]}]"#;
    let config = br#"{"rootfs":{"type":"layers","diff_ids":[]}}"#;
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let cases: &[(&str, Files<'_>, &str)] = &[
        ("climbing", &[("manifest.json", manifest)], "`..`"),
        ("missing", &[("manifest.json", missing), ("config.json", config)], "layer.tar: not in the archive"),
        ("a bad name", &[("manifest.json", named), ("config.json", config)], "invalid image reference"),
        ("empty", &[("manifest.json", b"[]")], "the archive has no image"),
        ("nothing", &[("readme", b"")], "no manifest.json"),
        ("no JSON", &[("manifest.json", b"x")], "manifest.json"),
    ];
    for (name, files, why) in cases {
        let error = Store::new().images.import(&write(name, files), None, &NoProgress).await.unwrap_err();
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
    let error = Store::new().images.import(Path::new("/nonexistent"), None, &NoProgress).await.unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_needs_blobs() {
    let registry = Registry::start().await;
    let maker = Store::new();
    let id = busybox(&maker.images, "x.local/busybox").await;
    maker.images.push(&id, &registry.name("a"), user()).await.unwrap();
    let store = Store::with(|options| options.keep_blobs = false);
    store.images.pull(&registry.name("a"), user(), &NoProgress).await.unwrap();
    assert_eq!(store.names("blobs/sha256").len(), 2, "manifest and configuration");
    let again = store.images.pull(&registry.name("a"), user(), &NoProgress).await.unwrap();
    let error = store.images.export(&[again], Output::File(store.path().join("x"))).await.unwrap_err();
    assert!(error.to_string().contains("was not kept"), "{error}");
}
