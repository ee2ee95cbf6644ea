//! Imports the images of an archive.

use std::path::Path;
use std::time::Duration;

use super::super::build::{copy_blob, plan_from_manifest, with_config};
use super::super::error::{Error, Result};
use super::super::manifest::{
    self, DOCKER_CONFIG, DOCKER_LAYER, DOCKER_MANIFEST, Descriptor, Document, Index, MAX_BYTES, MAX_LAYERS,
};
use super::super::progress::{Event, Progress};
use super::super::pull::Plan;
use super::super::reference::Reference;
use super::super::{Images, blocking};
use super::source::{Read, Source};
use super::{DockerImage, FULL_NAME, REF_NAME};

/// The maximum depth of nested indexes in a layout.
const MAX_LISTS: u32 = 4;

impl Images {
    /// Imports all images of an archive or a layout for this machine's platform, and returns their IDs. `name` is the name
    /// of images without a name in the archive, and the repository of a name that is only a tag.
    pub async fn import(&self, path: &Path, name: Option<&str>, progress: &dyn Progress) -> Result<Vec<String>> {
        let name = name.map(Reference::parse).transpose()?;
        let _busy = self.inner.store.busy()?;
        let (images, path, read) = (self.clone(), path.to_owned(), Read::default());
        let counted = read.clone();
        let reading = blocking(move || Importer { images, name, read: counted }.read(&path));
        let found = with_progress(reading, &read, progress).await?;
        let mut ids = Vec::new();
        for (plan, names) in found {
            report(&plan, progress);
            self.adopt(&plan, names, progress).await?;
            ids.push(plan.id().to_string());
        }
        Ok(ids)
    }
}

/// The interval of progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Reports how much of an archive is read, until the work is done.
async fn with_progress<T>(work: impl Future<Output = T>, read: &Read, progress: &dyn Progress) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let done = tokio::time::timeout(REPORT_INTERVAL, &mut work).await;
        progress.report(Event::Read { done: read.done(), all: read.all() });
        if let Ok(done) = done {
            return done;
        }
    }
}

/// Reports an image of an archive, whose blobs are all in the store.
fn report(plan: &Plan, progress: &dyn Progress) {
    let layers = &plan.manifest.layers;
    let bytes = layers.iter().map(|layer| layer.size).sum();
    progress.report(Event::Resolved { digest: &plan.target.digest, layers: plan.chain.len(), bytes });
    for layer in layers {
        progress.report(Event::Bytes { layer: &layer.digest, done: layer.size, size: layer.size });
    }
}

struct Importer {
    images: Images,
    name: Option<Reference>,
    read: Read,
}

type ImportPlans = Vec<(Plan, Vec<String>)>;

impl Importer {
    fn read(&self, path: &Path) -> Result<ImportPlans> {
        let source = Source::open(&self.images.inner.store, path, self.read.clone())?;
        let found = if source.has("index.json") && source.has("oci-layout") {
            self.layout(&source)?
        } else if source.has("manifest.json") {
            self.docker(&source)?
        } else {
            let why = "neither a Docker archive nor an OCI layout: it has no manifest.json and no index.json";
            return Err(Error::Archive { what: path.display().to_string(), why: why.to_owned() });
        };
        match found.is_empty() {
            true => {
                Err(Error::Archive { what: path.display().to_string(), why: "the archive has no image".to_owned() })
            }
            false => Ok(found),
        }
    }

    fn layout(&self, source: &Source) -> Result<ImportPlans> {
        let index: Index = parse("index.json", &source.read_small("index.json", MAX_BYTES)?)?;
        let mut found = Vec::new();
        let alone = index.manifests.len() == 1;
        for descriptor in &index.manifests {
            let names = self.names(descriptor);
            // Of several images, those for other platforms are skipped; a single one has to match.
            match self.plan_image(source, descriptor.clone(), 0) {
                Ok(plan) => found.push(self.named(plan, names)),
                Err(Error::Platform { .. }) if !alone => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn plan_image(&self, source: &Source, descriptor: Descriptor, depth: u32) -> Result<Plan> {
        let what = descriptor.digest.to_string();
        let store = &self.images.inner.store;
        self.copy(source, &descriptor)?;
        let bytes = store.read_blob(&descriptor.digest, MAX_BYTES)?;
        let manifest = match manifest::read(&what, &bytes)? {
            Document::Manifest(manifest) => manifest,
            Document::Index(_) if depth >= MAX_LISTS => {
                return Err(Error::Manifest { what, why: "the indexes are nested too deeply".to_owned() });
            }
            Document::Index(index) => {
                let chosen = index.choose(&what, &self.images.inner.options.platform)?.clone();
                let plan = self.plan_image(source, chosen, depth + 1)?;
                return Ok(Plan { target: descriptor, ..plan });
            }
        };
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            self.copy(source, blob)?;
        }
        plan_from_manifest(&self.images, descriptor, manifest)
    }

    fn copy(&self, source: &Source, blob: &Descriptor) -> Result<()> {
        if self.images.inner.store.has_blob(blob) {
            return Ok(());
        }
        let name = format!("blobs/{}/{}", blob.digest.algorithm(), blob.digest.hex());
        copy_blob(&self.images.inner.store, &mut source.read(&name)?, &name, Some(&blob.digest)).map(drop)
    }

    /// The name in a layout may be fully qualified, or only a tag.
    fn names(&self, descriptor: &Descriptor) -> Vec<String> {
        let whole = |text: &str| Reference::parse(text).ok().map(|reference| reference.to_string());
        let full = descriptor.annotation(FULL_NAME).and_then(whole);
        let short = descriptor.annotation(REF_NAME).and_then(|text| match &self.name {
            _ if text.contains(['/', ':']) => whole(text),
            Some(name) => whole(&format!("{}:{text}", name.name())),
            None => None,
        });
        full.or(short).into_iter().collect()
    }

    fn named(&self, plan: Plan, mut names: Vec<String>) -> (Plan, Vec<String>) {
        if names.is_empty() {
            names.extend(self.name.as_ref().map(ToString::to_string));
        }
        let references: Vec<Reference> = names.iter().filter_map(|name| Reference::parse(name).ok()).collect();
        names.extend(references.iter().map(|reference| reference.with_digest(&plan.target.digest)));
        names.retain(|name| !name.contains('@') || name.ends_with(plan.target.digest.as_str()));
        (plan, names)
    }

    fn docker(&self, source: &Source) -> Result<ImportPlans> {
        let all: Vec<DockerImage> = parse("manifest.json", &source.read_small("manifest.json", MAX_BYTES)?)?;
        all.into_iter().map(|image| self.plan_docker_image(source, image)).collect()
    }

    fn plan_docker_image(&self, source: &Source, image: DockerImage) -> Result<(Plan, Vec<String>)> {
        if image.layers.len() > MAX_LAYERS {
            return Err(Error::Archive { what: image.config, why: "too many layers".to_owned() });
        }
        let store = &self.images.inner.store;
        let bytes = source.read_small(&image.config, MAX_BYTES)?;
        let config = Descriptor::new(DOCKER_CONFIG, store.write_blob(&bytes)?, bytes.len() as u64);
        let mut layers = Vec::new();
        for name in &image.layers {
            let (digest, size) = copy_blob(store, &mut source.read(name)?, name, None)?;
            layers.push(Descriptor::new(&docker_layer(store.blob(&digest).as_path())?, digest, size));
        }
        let plan = with_config(&self.images, config, layers, DOCKER_MANIFEST)?;
        let tags = image.repo_tags.unwrap_or_default();
        let names = tags.iter().map(|tag| Reference::parse(tag).map(|reference| reference.to_string()));
        let names = names.collect::<Result<_>>()?;
        Ok(self.named(plan, names))
    }
}

/// Docker's archives have mostly uncompressed layers; those of other tools may have compressed ones.
fn docker_layer(path: &Path) -> Result<String> {
    let mut start = [0; 2];
    let mut file = std::fs::File::open(path).map_err(Error::at(path))?;
    let read = std::io::Read::read(&mut file, &mut start).map_err(Error::at(path))?;
    let gzip = read == 2 && start == [0x1f, 0x8b];
    Ok(if gzip { format!("{DOCKER_LAYER}.gzip") } else { DOCKER_LAYER.to_owned() })
}

fn parse<T: serde::de::DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::Archive { what: name.to_owned(), why: error.to_string() })
}
