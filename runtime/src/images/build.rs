//! Builds images from layers: for archives, for the demo image, and for tests and benchmarks.

use std::io::Read;
use std::io::Write;

use serde_json::json;

use super::digest::{Digest, HashingReader};
use super::error::{Error, Result};
use super::layer::compress::Decoder;
use super::manifest::{Config, Descriptor, ImageConfig, MAX_BYTES, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use super::progress::Progress;
use super::pull::{Plan, layers};
use super::reference::Reference;
use super::store::{Store, check, to_json};
use super::{Images, blocking};

impl Images {
    /// Builds an image from layers, lowest first, each a tar stream that may be compressed. Returns the image's ID.
    pub async fn build(
        &self,
        name: &str,
        tars: Vec<Vec<u8>>,
        config: Config,
        progress: &dyn Progress,
    ) -> Result<String> {
        let reference = Reference::parse(name)?;
        let _busy = self.inner.store.busy()?;
        let images = self.clone();
        let plan = blocking(move || plan(&images, tars, &config)).await?;
        self.adopt(&plan, vec![reference.to_string(), reference.with_digest(&plan.target.digest)], progress).await?;
        Ok(plan.id().to_string())
    }

    /// Adds an image whose blobs are all in the store. The caller has to protect them from garbage collection.
    pub(super) async fn adopt(&self, plan: &Plan, names: Vec<String>, progress: &dyn Progress) -> Result<()> {
        layers(self, None, plan, progress).await?;
        self.add(plan.id(), plan.record(), names)?;
        let store = self.inner.store.clone();
        blocking(move || store.sync()).await
    }
}

fn plan(images: &Images, tars: Vec<Vec<u8>>, config: &Config) -> Result<Plan> {
    let store = &images.inner.store;
    let mut descriptors = Vec::new();
    let mut diff_ids = Vec::new();
    for tar in tars {
        diff_ids.push(diff_id(&tar)?);
        let digest = store.write_blob(&tar)?;
        descriptors.push(Descriptor::new(layer_type(&tar), digest, tar.len() as u64));
    }
    plan_from_layers(images, descriptors, &diff_ids, config)
}

/// Writes the configuration and the manifest of an image with these layers.
pub(super) fn plan_from_layers(
    images: &Images,
    layers: Vec<Descriptor>,
    diff_ids: &[Digest],
    config: &Config,
) -> Result<Plan> {
    let platform = &images.inner.options.platform;
    let document = json!({
        "os": platform.os, "architecture": platform.architecture, "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let bytes = to_json(&document);
    let digest = images.inner.store.write_blob(&bytes)?;
    with_config(images, Descriptor::new(OCI_CONFIG, digest, bytes.len() as u64), layers, OCI_MANIFEST)
}

/// Writes the manifest for a configuration that is in the store.
pub(super) fn with_config(
    images: &Images,
    config: Descriptor,
    layers: Vec<Descriptor>,
    media_type: &str,
) -> Result<Plan> {
    let store = &images.inner.store;
    let manifest = Manifest { schema_version: 2, media_type: media_type.to_owned(), config, layers };
    let bytes = to_json(&manifest);
    let digest = store.write_blob(&bytes)?;
    plan_from_manifest(images, Descriptor::new(media_type, digest, bytes.len() as u64), manifest)
}

/// The plan of an image whose manifest and configuration are in the store.
pub(super) fn plan_from_manifest(images: &Images, descriptor: Descriptor, manifest: Manifest) -> Result<Plan> {
    let what = descriptor.digest.to_string();
    let bytes = images.inner.store.read_blob(&manifest.config.digest, MAX_BYTES)?;
    let config = ImageConfig::read(&what, &bytes, manifest.layers.len(), &images.inner.options.platform)?;
    let chain = config.chain();
    Ok(Plan { target: descriptor.clone(), manifest_descriptor: descriptor, manifest, config, chain })
}

fn layer_type(tar: &[u8]) -> &'static str {
    match tar {
        [0x1f, 0x8b, ..] => "application/vnd.oci.image.layer.v1.tar+gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "application/vnd.oci.image.layer.v1.tar+zstd",
        _ => OCI_LAYER,
    }
}

fn diff_id(tar: &[u8]) -> Result<Digest> {
    let wrong = |error: std::io::Error| Error::Archive { what: "a layer".to_owned(), why: error.to_string() };
    let decoder = Decoder::new(tar).map_err(wrong)?;
    let mut hashed = HashingReader::new(decoder, super::digest::Hasher::sha256());
    std::io::copy(&mut hashed, &mut std::io::sink()).map_err(wrong)?;
    Ok(hashed.finish())
}

/// Copies a blob into the store, and verifies its digest if one is expected.
pub(super) fn copy_blob(
    store: &Store,
    from: &mut dyn Read,
    what: &str,
    expected: Option<&Digest>,
) -> Result<(Digest, u64)> {
    let (temp, mut file) = store.temp_file()?;
    let hasher = expected.map_or_else(super::digest::Hasher::sha256, Digest::hasher);
    let mut hashed = HashingReader::new(from, hasher);
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        let read = hashed.read(&mut buffer);
        let read = read.map_err(|error| Error::Archive { what: what.to_owned(), why: error.to_string() })?;
        if read == 0 {
            break;
        }
        file.write_all(&buffer[..read]).map_err(Error::at(temp.path()))?;
        size += read as u64;
    }
    let found = hashed.finish();
    if let Some(expected) = expected {
        check(what, expected, found.clone())?;
    }
    store.commit_blob(temp, &found)?;
    Ok((found, size))
}
