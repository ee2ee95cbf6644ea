//! What is measured of images: a pull of an image of a given size from a registry.

use std::path::Path;
use std::time::{Duration, Instant};

use super::layer::tar::{Entry, Kind, Writer};
use super::manifest::Config;
use super::{Credentials, Error, Images, Options, Result, Silent};

/// Puts an image of about `megabytes` into the registry that the reference names: gzipped layers of files whose
/// content compresses as programs do. The store of `root` is used for making it.
pub async fn publish(
    root: &Path,
    reference: &str,
    auth: Option<Credentials>,
    megabytes: usize,
    layers: usize,
) -> Result<()> {
    let images = Images::open(root, Options::default())?;
    let tars = (0..layers).map(|layer| gzip(&tar(layer, megabytes * 1_000_000 / layers)));
    let id = images
        .make(reference, tars.collect::<std::io::Result<_>>().map_err(Error::at(root))?, Config::default(), &Silent)
        .await?;
    images.push(&id, reference, auth).await
}

/// Pulls into an empty store, and tells how long it took until a container could have been started.
pub async fn pull(root: &Path, reference: &str, auth: Option<Credentials>) -> Result<Duration> {
    let images = Images::open(root, Options::default())?;
    let started = Instant::now();
    images.pull(reference, auth, &Silent).await?;
    Ok(started.elapsed())
}

fn tar(layer: usize, bytes: usize) -> Vec<u8> {
    const FILE: usize = 256 << 10;
    let mut writer = Writer::new(Vec::with_capacity(bytes + bytes / 50));
    let mut state = layer as u64 + 1;
    for number in 0..bytes.div_ceil(FILE) {
        let mut entry = Entry::new(&format!("data/{layer}/{}/{number}", number % 16), Kind::File, 0o644);
        entry.size = FILE as u64;
        // Half noise and half repetition: gzip makes about half of it.
        let data: Vec<u8> = (0..FILE)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if at % 64 < 32 { (state >> 56) as u8 } else { (at % 64) as u8 }
            })
            .collect();
        // Writing to memory cannot fail.
        let _ = writer.entry(&entry).and_then(|()| std::io::Write::write_all(writer.data(), &data));
    }
    writer.finish().unwrap_or_default()
}

fn gzip(data: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, data)?;
    encoder.finish()
}
