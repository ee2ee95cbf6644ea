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
    let tars = (0..layers).map(|layer| gzip(&tar(layer, megabytes * 1_000_000 / layers)));
    let tars = tars.collect::<std::io::Result<_>>().map_err(Error::at(root))?;
    publish_layers(root, reference, auth, tars, Config::default()).await
}

/// The same of layers that are at hand.
pub async fn publish_layers(
    root: &Path,
    reference: &str,
    auth: Option<Credentials>,
    tars: Vec<Vec<u8>>,
    config: Config,
) -> Result<()> {
    let images = Images::open(root, Options::default())?;
    let id = images.make(reference, tars, config, &Silent).await?;
    images.push(&id, reference, auth).await
}

/// A layer of files, each with its mode.
pub fn layer_of(files: impl IntoIterator<Item = (String, u32, Vec<u8>)>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (name, mode, data) in files {
        let mut entry = Entry::new(&name, Kind::File, mode);
        entry.size = data.len() as u64;
        // Writing to memory cannot fail.
        let _ = writer.entry(&entry).and_then(|()| std::io::Write::write_all(writer.data(), &data));
    }
    writer.finish().unwrap_or_default()
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
    let mut state = layer as u64 + 1;
    layer_of((0..bytes.div_ceil(FILE)).map(|number| {
        // Half noise and half repetition: gzip makes about half of it.
        let data = (0..FILE).map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if at % 64 < 32 { (state >> 56) as u8 } else { (at % 64) as u8 }
        });
        (format!("data/{layer}/{}/{number}", number % 16), 0o644, data.collect())
    }))
}

fn gzip(data: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, data)?;
    encoder.finish()
}
