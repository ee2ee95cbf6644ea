//! Stacks of layers as the kernel shows them. The overlay is a detached mount, so nothing is left of it.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use runtime::images::{Config, Error, NoProgress, Rootfs};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};

use crate::support::{Store, busybox, names, tar};

/// Mounts a stack, and returns a path to it that is valid as long as the descriptor is open.
fn mount(rootfs: &Rootfs) -> (OwnedFd, PathBuf) {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    for lower in &rootfs.lower {
        fsconfig_set_string(&context, "lowerdir+", lower).unwrap();
    }
    fsconfig_set_string(&context, "upperdir", &rootfs.upper).unwrap();
    fsconfig_set_string(&context, "workdir", &rootfs.work).unwrap();
    fsconfig_create(&context).unwrap();
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", mounted.as_raw_fd()));
    (mounted, path)
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mounts").unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_sees_all_layers() {
    let before = mounts();
    let store = Store::new();
    let id = busybox(&store.images, "x.local/busybox").await;
    let rootfs = store.images.prepare("c1", &id).unwrap();
    assert_eq!(rootfs.lower.len(), 3);
    {
        let (_mounted, root) = mount(&rootfs);
        assert_eq!(names(&root.join("etc")), ["kept", "new"], "what a layer hides is hidden");
        assert_eq!(fs::read_to_string(root.join("etc/kept")).unwrap(), "2");
        fs::write(root.join("etc/kept"), "written").unwrap();
        fs::write(root.join("made"), vec![1; 100_000]).unwrap();
    }
    let usage = store.images.usage("c1");
    assert!(usage.bytes >= 100_000 && usage.inodes >= 3, "{usage:?}");
    let other = store.images.prepare("c2", &id).unwrap();
    let (_mounted, root) = mount(&other);
    assert_eq!(fs::read_to_string(root.join("etc/kept")).unwrap(), "2", "containers do not see each other");
    assert_eq!(store.images.keys(), ["c1", "c2"]);
    assert_eq!(mounts(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_are_removed_and_added_again() {
    let store = Store::new();
    let layers = vec![
        tar(&[("data/", b""), ("data/old", b"1"), ("other/", b""), ("other/old", b"1"), ("gone/x", b"1")]),
        tar(&[
            ("data/.wh..wh..opq", b""),
            ("data/new", b"2"),
            (".wh.other", b""),
            ("other/new", b"2"),
            (".wh.gone", b""),
        ]),
    ];
    let id = store.images.build("x.local/a", layers, Config::default(), &NoProgress).await.unwrap();
    let (_mounted, root) = mount(&store.images.prepare("c", &id).unwrap());
    assert_eq!(names(&root), ["data", "other"]);
    assert_eq!(
        (names(&root.join("data")), names(&root.join("other"))),
        (vec!["new".to_owned()], vec!["new".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_and_views() {
    let store = Store::new();
    let id = store.images.build("x.local/a", vec![tar(&[("a", b"1")])], Config::default(), &NoProgress).await.unwrap();
    let lower = store.images.view("volume", "x.local/a").unwrap();
    assert_eq!(fs::read_to_string(lower[0].join("a")).unwrap(), "1");
    assert_eq!(names(&store.root().join("snapshots/volume")), ["image"], "nothing to write to");
    assert!(matches!(store.images.prepare("volume", &id), Err(Error::Exists(_))));
    assert!(matches!(store.images.prepare("new", "x.local/none"), Err(Error::NotFound(_))));
    assert!(matches!(store.images.prepare("../new", &id), Err(Error::Key { .. })));
    store.images.release("volume").unwrap();
    store.images.release("volume").unwrap();
    assert!(store.images.keys().is_empty());
    let usage = store.images.fs_usage();
    assert!(usage.bytes > 0 && usage.inodes >= 4, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_without_layers() {
    let store = Store::new();
    let id = store.images.build("x.local/scratch", Vec::new(), Config::default(), &NoProgress).await.unwrap();
    let rootfs = store.images.prepare("c", &id).unwrap();
    let (_mounted, root) = mount(&rootfs);
    assert!(names(&root).is_empty());
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o7777;
    assert_eq!(mode(&root), 0o755);
}
