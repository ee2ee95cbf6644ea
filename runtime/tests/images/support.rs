//! Shared by the tests: stores, layers, and checks for leftovers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runtime::images::layer::tar::{Entry, Kind, Writer};
use runtime::images::progress::Event;
use runtime::images::{Config, Images, NoProgress, Options, Progress, Proxies, Timeouts};
use stdx::sync::Mutex;

pub struct Store {
    pub images: Images,
    /// Dropped last, when nothing uses the store any more.
    directory: Directory,
}

/// A directory that is deleted on drop, even if a cancelled pull still writes to it.
struct Directory(tempfile::TempDir);

impl Drop for Directory {
    fn drop(&mut self) {
        let give_up = Instant::now() + Duration::from_secs(5);
        while self.0.path().exists() && Instant::now() < give_up {
            let _ = std::fs::remove_dir_all(self.0.path());
        }
    }
}

impl Store {
    pub fn new() -> Store {
        Store::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Store {
        assert!(rustix::process::geteuid().is_root(), "these tests need root");
        let directory = Directory(tempfile::tempdir().unwrap());
        let mut options = options();
        change(&mut options);
        let images = Images::open(&directory.0.path().join("store"), options).unwrap();
        Store { images, directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.0.path()
    }

    pub fn root(&self) -> PathBuf {
        self.directory.0.path().join("store")
    }

    /// The names in a directory of the store.
    pub fn names(&self, directory: &str) -> Vec<String> {
        names(&self.root().join(directory))
    }

    /// The number of files of work in progress.
    pub fn unfinished(&self) -> usize {
        self.names("ingest").iter().map(|owner| self.names(&format!("ingest/{owner}")).len()).sum()
    }
}

pub fn options() -> Options {
    let timeouts =
        Timeouts { connect: Duration::from_secs(5), idle: Duration::from_secs(2), retry: Duration::from_millis(1) };
    Options { hosts: Vec::new(), timeouts, proxies: Proxies::default(), ..Options::default() }
}

pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A layer of files; a name with a trailing slash is a directory.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (name, data) in files {
        let kind = if name.ends_with('/') { Kind::Directory } else { Kind::File };
        let mut entry = Entry::new(name, kind, 0o755);
        entry.size = data.len() as u64;
        writer.entry(&entry).unwrap();
        writer.data().write_all(data).unwrap();
    }
    writer.finish().unwrap()
}

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An image with one layer per compression format, one of which is busybox.
pub async fn busybox(images: &Images, name: &str) -> String {
    let program = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let layers = vec![
        gzip(&tar(&[("bin/", b""), ("bin/busybox", &program), ("etc/old", b"1"), ("etc/kept", b"1")])),
        zstd(&tar(&[("etc/.wh.old", b""), ("etc/kept", b"2")])),
        tar(&[("srv/data", &noise(3_000_000)), ("etc/new", b"3")]),
    ];
    let config = Config { cmd: vec!["/bin/busybox".into(), "true".into()], ..Config::default() };
    images.build(name, layers, config, &NoProgress).await.unwrap()
}

/// Incompressible bytes, the same each time.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Records progress events.
#[derive(Default)]
pub struct ProgressRecorder {
    pub lines: Mutex<Vec<String>>,
    pub bytes: Mutex<BTreeMap<String, u64>>,
    /// The bytes of an archive: read, and in total.
    pub read: Mutex<Vec<(u64, u64)>>,
}

impl Progress for ProgressRecorder {
    fn report(&self, event: Event<'_>) {
        let line = match event {
            Event::Resolved { layers, .. } => format!("resolved {layers}"),
            Event::Present { .. } => "present".to_owned(),
            Event::Downloaded { .. } => "downloaded".to_owned(),
            Event::Unpacked { .. } => "unpacked".to_owned(),
            Event::Read { done, all } => {
                self.read.lock().push((done, all));
                return;
            }
            Event::Bytes { layer, done, .. } => {
                self.bytes.lock().insert(layer.to_string(), done);
                return;
            }
        };
        self.lines.lock().push(line);
    }
}

impl ProgressRecorder {
    pub fn count(&self, line: &str) -> usize {
        self.lines.lock().iter().filter(|other| *other == line).count()
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, holds: impl FnMut() -> bool) {
    stdx::wait::until_async(what, Duration::from_secs(20), holds).await;
}
