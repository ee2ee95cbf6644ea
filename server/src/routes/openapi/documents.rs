//! The cached documents, and those of OpenAPI v3: one of each group version, built from its own kinds only.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use ::openapi::{Api, DescriptionSource, Encoding, Extra, v3};
use api::json;
use api::status::Status;
use api::version::git_version;
use bytes::Bytes;
use stdx::sync::Mutex;

use super::parts::Packed;
use crate::request::compress::gzip;
use crate::routes::Routes;
use crate::storage::custom::{Entry, is_served};
use crate::storage::resource::{Resource, Resources};

/// The cached documents. Two concurrent requests may build a document twice; the second is dropped.
#[derive(Default)]
pub(crate) struct Documents {
    /// The documents by name and encoding; v2 has no name.
    pub(super) kept: Mutex<BTreeMap<(String, bool), Arc<Document>>>,
    /// The parts of v2, by source and encoding.
    pub(super) parts: Mutex<BTreeMap<(String, bool), Arc<Packed>>>,
    /// The hashes of the documents of built-in kinds.
    hashes: Mutex<Option<Arc<BTreeMap<String, String>>>>,
}

pub(super) struct Document {
    pub(super) gzip: Bytes,
    pub(super) etag: String,
    /// The inputs of the document: it is built again when they have changed.
    pub(super) basis: String,
}

impl Document {
    pub(super) fn new(bytes: &[u8], basis: String) -> Document {
        Document { etag: ::openapi::etag(bytes), gzip: Bytes::from(gzip(bytes)), basis }
    }
}

/// The maximum number of cached documents. Others are built again.
const MAX_KEPT: usize = 256;

impl Documents {
    /// A cached document, if it was built from the same inputs.
    pub(super) fn get(&self, name: &str, encoding: Encoding, basis: &str) -> Option<Arc<Document>> {
        let key = (name.to_string(), encoding == Encoding::Protobuf);
        self.kept.lock().get(&key).filter(|kept| kept.basis == basis).cloned()
    }

    pub(super) fn keep(&self, name: &str, encoding: Encoding, document: Document) -> Arc<Document> {
        let (key, document) = ((name.to_string(), encoding == Encoding::Protobuf), Arc::new(document));
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(key, document.clone());
        document
    }
}

/// Descriptions of types and fields, from the only crate with upstream's texts.
pub(super) struct Descriptions(pub(super) descriptions::Descriptions);

impl DescriptionSource for Descriptions {
    fn type_description(&self, ty: &str) -> Option<&str> {
        self.0.of_type(ty)
    }

    fn field_description(&self, ty: &str, field: &str) -> Option<&str> {
        self.0.of_field(ty, field)
    }
}

pub(super) fn unpack(gzip: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The bytes are our own gzip; a failure would truncate the body, and the client would report it.
    let _ = flate2::read::GzDecoder::new(gzip).read_to_end(&mut out);
    out
}

/// The v3 document of a name, whose hash is known.
pub(super) async fn find(
    routes: &Routes,
    name: &str,
    hash: String,
    encoding: Encoding,
) -> Result<Option<Arc<Document>>, Status> {
    if let Some(document) = routes.openapi.get(name, encoding, &hash) {
        return Ok(Some(document));
    }
    let source = Source::of(routes, name);
    let owned = name.to_string();
    let build = move || source.build(&owned, encoding).map(|bytes| Document::new(&bytes, hash));
    let built = tokio::task::spawn_blocking(build).await.map_err(Status::internal)?;
    Ok(built.map(|document| routes.openapi.keep(name, encoding, document)))
}

/// The inputs of a v3 document.
enum Source {
    /// Built-in kinds, or definitions.
    Kinds(Vec<Extra>),
    Extension(Bytes),
}

impl Source {
    fn of(routes: &Routes, name: &str) -> Source {
        match group_version(name).and_then(|(group, version)| extension(routes, group, version)) {
            Some(document) => Source::Extension(document.map(|(_, bytes)| bytes).unwrap_or_default()),
            None => Source::Kinds(extras(&routes.registry.storage.resources, name)),
        }
    }

    fn build(&self, name: &str, encoding: Encoding) -> Option<Vec<u8>> {
        match self {
            Source::Kinds(extras) => {
                let texts = Descriptions(descriptions::descriptions());
                v3::document(
                    &Api { version: git_version(), kinds: kinds::served(), texts: &texts, extras },
                    name,
                    encoding,
                )
            }
            Source::Extension(bytes) => json::decode(bytes).ok().map(|document| v3::encode(&document, encoding)),
        }
    }
}

/// `apis/GROUP/VERSION`
fn group_version(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("apis/")?.split_once('/')
}

/// The v3 document of an extension API server and its hash; the outer None if there is no such server.
#[expect(clippy::option_option, reason = "an extension API server without documents hides those of this server")]
fn extension(routes: &Routes, group: &str, version: &str) -> Option<Option<(String, Bytes)>> {
    let service = routes.aggregator.find(group, version)?;
    Some(routes.aggregator.documents(&service).v3)
}

/// The served versions of definitions that a document describes.
fn extras(resources: &Resources, name: &str) -> Vec<Extra> {
    let Some((group, version)) = group_version(name) else { return Vec::new() };
    let entries = resources.custom.group_entries(group);
    let of_version = |resource: &&Arc<Resource>| resource.kind.version() == version && is_served(resource);
    let all = entries.iter().flat_map(|entry| {
        let found = resources.custom.resources(entry).iter().filter(of_version);
        found.map(|resource| extra(entry, resource))
    });
    all.collect()
}

/// A version of a definition as the documents describe it.
pub(super) fn extra(entry: &Entry, resource: &Resource) -> Extra {
    let kind = &resource.kind;
    Extra::of_definition(&entry.source.tree(), kind.version(), kind.verbs(), kind.subresources())
}

/// The hash of the v3 document of a name.
pub(super) async fn hash(routes: &Routes, name: &str) -> Result<Option<String>, Status> {
    if let Some((group, version)) = group_version(name) {
        if let Some(document) = extension(routes, group, version) {
            return Ok(document.map(|(hash, _)| hash));
        }
        let mut bases = BTreeMap::new();
        routes
            .registry
            .storage
            .resources
            .custom
            .group_entries(group)
            .iter()
            .for_each(|entry| add_bases(entry, &mut bases));
        if let Some(basis) = bases.get(name) {
            return Ok(Some(::openapi::etag(basis.as_bytes())));
        }
    }
    Ok(built_in_hashes(routes).await?.get(name).cloned())
}

/// The inputs of the documents of a definition's versions, by name: no document is built for a hash.
fn add_bases(entry: &Entry, bases: &mut BTreeMap<String, String>) {
    let definition = &entry.definition;
    for version in definition.versions.iter().filter(|version| version.served) {
        let basis = bases.entry(format!("apis/{}/{}", definition.group, version.name)).or_default();
        basis.push_str(&format!("{} {} {};", definition.name, definition.uid, definition.generation));
    }
}

/// The hash of every v3 document, by name.
pub(super) async fn hashes(routes: &Routes) -> Result<BTreeMap<String, String>, Status> {
    let mut all = (*built_in_hashes(routes).await?).clone();
    let custom = &routes.registry.storage.resources.custom;
    let mut bases = BTreeMap::new();
    for group in custom.groups() {
        custom.group_entries(&group).iter().for_each(|entry| add_bases(entry, &mut bases));
    }
    all.extend(bases.into_iter().map(|(name, basis)| (name, ::openapi::etag(basis.as_bytes()))));
    for service in routes.aggregator.all() {
        let name = format!("apis/{}/{}", service.group, service.version);
        match routes.aggregator.documents(&service).v3 {
            Some((hash, _)) => drop(all.insert(name, hash)),
            None => drop(all.remove(&name)),
        }
    }
    Ok(all)
}

async fn built_in_hashes(routes: &Routes) -> Result<Arc<BTreeMap<String, String>>, Status> {
    if let Some(hashes) = &*routes.openapi.hashes.lock() {
        return Ok(hashes.clone());
    }
    let hashes = Arc::new(tokio::task::spawn_blocking(compute_hashes).await.map_err(Status::internal)?);
    *routes.openapi.hashes.lock() = Some(hashes.clone());
    Ok(hashes)
}

fn compute_hashes() -> BTreeMap<String, String> {
    let api = Api { version: git_version(), kinds: kinds::served(), texts: &::openapi::NoDescriptions, extras: &[] };
    let index = v3::index(&api);
    let hash = |url: &str| url.split_once("?hash=").map(|(_, hash)| hash.to_string()).unwrap_or_default();
    index.map("paths").iter().map(|(name, path)| (name.to_string(), hash(path.str("serverRelativeURL")))).collect()
}
