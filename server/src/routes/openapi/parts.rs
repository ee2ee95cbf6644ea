//! OpenAPI v2, one document for everything: joined from compressed parts. A change rebuilds the part of the changed
//! definition.

use std::sync::Arc;

use ::openapi::{Api, Encoding, Extra, Part, PartIndex, Skeleton, skeleton};
use api::Tree;
use api::status::Status;
use api::version::git_version;

use super::documents::{Descriptions, Document, extra};
use crate::request::compress;
use crate::routes::Routes;
use crate::storage::custom::{Entry, is_served};
use crate::storage::resource::Resource;

/// A part with its entries compressed, in the form of the document.
pub(super) struct Packed {
    definitions: compress::Piece,
    paths: compress::Piece,
    /// The part without these entries.
    part: Part,
    /// The hash of its content: the ETag of the document is computed from the hashes of its parts, without reading all
    /// of it.
    hash: String,
}

impl Packed {
    fn new(part: Part) -> Packed {
        let (definitions, paths) = (compress::Piece::new(&part.definitions), compress::Piece::new(&part.paths));
        let hash = hash(&part);
        let part = Part { definitions: Vec::new(), paths: Vec::new(), ..part };
        Packed { definitions, paths, part, hash }
    }
}

/// The inputs of a part.
enum Source {
    BuiltIn,
    /// A definition and its served versions.
    Definition(Arc<Entry>, Vec<Arc<Resource>>),
    Extension(Arc<Tree>),
}

/// A part, which may not be built yet.
struct Piece {
    key: String,
    source: Source,
    packed: Option<Arc<Packed>>,
}

/// The v2 document.
pub(super) async fn find(routes: &Routes, encoding: Encoding) -> Result<Arc<Document>, Status> {
    let mut pieces = pieces(routes);
    let keys: Vec<&str> = pieces.iter().map(|piece| piece.key.as_str()).collect();
    let basis = ::openapi::etag(keys.join("\n").as_bytes());
    if let Some(document) = routes.openapi.get("", encoding, &basis) {
        return Ok(document);
    }
    let is_protobuf = encoding == Encoding::Protobuf;
    let known = routes.openapi.parts.lock().clone();
    pieces.iter_mut().for_each(|piece| piece.packed = known.get(&(piece.key.clone(), is_protobuf)).cloned());
    let build = move || {
        build_missing(&mut pieces, encoding);
        (join_pieces(&pieces, encoding, basis), pieces)
    };
    let (document, pieces) = tokio::task::spawn_blocking(build).await.map_err(Status::internal)?;
    let mut parts = routes.openapi.parts.lock();
    parts.retain(|(_, is_other), _| *is_other != is_protobuf);
    parts.extend(pieces.into_iter().filter_map(|piece| Some(((piece.key, is_protobuf), piece.packed?))));
    drop(parts);
    Ok(routes.openapi.keep("", encoding, document))
}

/// All parts: built-in kinds, then definitions, then extension API servers.
fn pieces(routes: &Routes) -> Vec<Piece> {
    let piece = |key: String, source: Source| Piece { key, source, packed: None };
    let mut out = vec![piece(String::new(), Source::BuiltIn)];
    let custom = &routes.registry.storage.resources.custom;
    for entry in custom.groups().iter().flat_map(|group| custom.group_entries(group)) {
        let definition = &entry.definition;
        let is_own = |resource: &&Arc<Resource>| {
            is_served(resource) && routes.aggregator.find(resource.kind.group(), resource.kind.version()).is_none()
        };
        let versions: Vec<Arc<Resource>> = custom.resources(&entry).iter().filter(is_own).cloned().collect();
        let names: Vec<&str> = versions.iter().map(|resource| resource.kind.version()).collect();
        let (uid, generation, is_terminating) = (&definition.uid, definition.generation, definition.is_terminating);
        let key = format!("{} {uid} {generation} {is_terminating} {}", definition.name, names.join(","));
        out.push(piece(key, Source::Definition(entry, versions)));
    }
    for service in routes.aggregator.all() {
        if let Some((hash, document)) = routes.aggregator.documents(&service).v2 {
            out.push(piece(format!("{} {hash}", service.name), Source::Extension(document)));
        }
    }
    out
}

/// Builds the parts of kinds and definitions. The parts of extension API servers depend on the others, and are few.
fn build_missing(pieces: &mut [Piece], encoding: Encoding) {
    let texts = Descriptions(descriptions::descriptions());
    let api = Api { version: git_version(), kinds: kinds::served(), texts: &texts, extras: &[] };
    for piece in pieces.iter_mut().filter(|piece| piece.packed.is_none()) {
        let part = match &piece.source {
            Source::BuiltIn => Part::built_in(&api, encoding),
            Source::Definition(entry, versions) => Part::of_extra(&api, &all_versions(entry, versions), encoding),
            Source::Extension(_) => continue,
        };
        piece.packed = Some(Arc::new(Packed::new(part)));
    }
}

fn all_versions(entry: &Entry, versions: &[Arc<Resource>]) -> Extra {
    let mut all = Extra::default();
    for one in versions.iter().map(|resource| extra(entry, resource)) {
        all.resources.extend(one.resources);
        one.schemas.into_entries().into_iter().for_each(|(name, schema)| drop(all.schemas.insert(name, schema)));
    }
    all
}

/// Joins the parts; unchanged parts are neither rebuilt nor recompressed.
fn join_pieces(pieces: &[Piece], encoding: Encoding, basis: String) -> Document {
    let mut parts: Vec<Arc<Packed>> = pieces.iter().filter_map(|piece| piece.packed.clone()).collect();
    let mut known = PartIndex::default();
    parts.iter().for_each(|packed| known.add(&packed.part));
    for piece in pieces {
        let Source::Extension(document) = &piece.source else { continue };
        let packed = Packed::new(Part::of_document(document, encoding, &known));
        known.add(&packed.part);
        parts.push(Arc::new(packed));
    }
    let hashes: Vec<&str> = parts.iter().map(|packed| packed.hash.as_str()).collect();
    let etag = ::openapi::etag(format!("{}\n{}", git_version(), hashes.join("\n")).as_bytes());
    Document { gzip: compress_parts(&parts, encoding).into(), etag, basis }
}

fn compress_parts(parts: &[Arc<Packed>], encoding: Encoding) -> Vec<u8> {
    let of = |entries: fn(&Packed) -> &compress::Piece| -> Vec<&compress::Piece> {
        parts.iter().map(|packed| entries(packed)).filter(|entries| entries.len() > 0).collect()
    };
    let entries = [of(|packed| &packed.definitions), of(|packed| &packed.paths)];
    let parameters = parts.iter().flat_map(|packed| packed.part.parameters.clone()).collect();
    let separator_length = usize::from(encoding == Encoding::Json);
    let lengths = entries.each_ref().map(|all| {
        all.iter().map(|entries| entries.len()).sum::<usize>() + all.len().saturating_sub(1) * separator_length
    });
    let Skeleton { around, separator } = skeleton(git_version(), parameters, lengths, encoding);
    let (around, separator) = (around.map(|bytes| compress::Piece::new(&bytes)), compress::Piece::new(separator));
    let mut all = vec![&around[0]];
    for (entries, after) in entries.iter().zip(&around[1..]) {
        for (at, piece) in entries.iter().enumerate() {
            all.extend((at > 0).then_some(&separator));
            all.push(*piece);
        }
        all.push(after);
    }
    compress::concat(all)
}

/// The hash of what a part adds to the document.
fn hash(part: &Part) -> String {
    let parameters = part.parameters.values().map(|parameter| ::openapi::etag(parameter));
    let entries = [&part.definitions, &part.paths].map(|entries| ::openapi::etag(entries));
    let all: Vec<String> = entries.into_iter().chain(parameters).collect();
    ::openapi::etag(all.join("\n").as_bytes())
}
