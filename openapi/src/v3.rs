//! OpenAPI v3: an index and one document per group version.

use api::{Map, Tree, tree};

use crate::document::{self, Source};
use crate::operation::{Body, Content, Operation, Path, status_text};
use crate::parameters::Parameter;
use crate::schemas::{Schemas, reference};
use crate::writer::{Writer, writer};
use crate::{Api, Encoding, NoDescriptions, etag, proto};

/// Media types that request the protobuf form, the older name first. Some clients request nothing else.
pub const PROTOBUF_NAMES: &[&str] = &["application/com.github.proto-openapi.spec.v3@v1.0+protobuf", PROTOBUF];

/// The Content-Type of the protobuf form for both names: the `@` of the older one is not allowed in a header, and
/// Go's parser rejects it.
pub const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// The response of GET /openapi/v3: each document with a URL that changes with its content.
pub fn index(api: &Api<'_>) -> Tree {
    let api = without_texts(api);
    let schemas = Schemas::new(&api);
    let hashes = document::sources(&api).into_iter().map(|(name, source)| {
        let hash = etag(&write(&schemas, &source, Encoding::Json));
        (name, hash)
    });
    index_of(hashes)
}

/// The index from known hashes. Extras do not change the hashes of other documents, so a server that caches those
/// only computes the new ones.
pub fn index_of(hashes: impl IntoIterator<Item = (String, String)>) -> Tree {
    let mut paths = Map::new();
    for (name, hash) in hashes {
        let url = format!("/openapi/v3/{name}?hash={hash}");
        paths.insert(name, tree! { "serverRelativeURL" => url });
    }
    tree! { "paths" => paths }
}

/// The names of all documents, sorted.
pub fn names(api: &Api<'_>) -> Vec<String> {
    document::sources(api).into_keys().collect()
}

/// The hash in a document's URL, which is also its ETag.
pub fn hash(api: &Api<'_>, name: &str) -> Option<String> {
    document(&without_texts(api), name, Encoding::Json).map(|bytes| etag(&bytes))
}

/// Descriptions are fixed with the binary version, so hashes need not include them.
fn without_texts<'a>(api: &Api<'a>) -> Api<'a> {
    Api { texts: &NoDescriptions, ..*api }
}

/// A document by its name in the index: `api/v1`, `apis/apps/v1`, `apis/apps`, `version`.
pub fn document(api: &Api<'_>, name: &str, encoding: Encoding) -> Option<Vec<u8>> {
    document::sources(api).get(name).map(|source| write(&Schemas::new(api), source, encoding))
}

/// A document that an extension API server has built.
pub fn encode(document: &Tree, encoding: Encoding) -> Vec<u8> {
    let mut out = writer(encoding, &proto::v3::DOCUMENT);
    document.as_map().into_iter().flat_map(Map::iter).for_each(|(key, value)| out.put(key, value));
    out.finish()
}

fn write(schemas: &Schemas<'_>, source: &Source, encoding: Encoding) -> Vec<u8> {
    let mut out = writer(encoding, &proto::v3::DOCUMENT);
    let paths = document::paths(schemas.api, source);
    write_components(schemas, &paths, &mut *out);
    out.put("info", &document::info(schemas.api.version));
    out.put("openapi", &Tree::from("3.0.0"));
    out.open("paths");
    for path in &paths {
        out.put(&path.path, &path_item(path));
    }
    out.close();
    out.put("security", &document::security());
    out.finish()
}

fn write_components(schemas: &Schemas<'_>, paths: &[Path], out: &mut dyn Writer) {
    out.open("components");
    out.open("schemas");
    for (name, definition) in schemas.collect_reachable(document::roots(paths)) {
        out.put(&name, &schemas.render(&name, definition));
    }
    out.close();
    out.put("securitySchemes", &document::security_scheme());
    out.close();
}

fn path_item(path: &Path) -> Tree {
    let common = path.common_parameters();
    let mut out = Map::new();
    for operation in &path.operations {
        out.insert(operation.method, operation_of(operation, &common));
    }
    if !common.is_empty() {
        out.insert("parameters", common.iter().map(|parameter| parameter_of(parameter)).collect::<Vec<_>>());
    }
    Tree::Map(out)
}

fn operation_of(operation: &Operation, common: &[&Parameter]) -> Tree {
    let mut out = document::operation_head(operation);
    let own = operation.parameters.iter().filter(|parameter| !common.contains(parameter));
    let own: Vec<Tree> = own.map(parameter_of).collect();
    if !own.is_empty() {
        out.set("parameters", own);
    }
    if let Some(body) = &operation.body {
        out.set("requestBody", request_body(body));
    }
    out.set("responses", responses(operation));
    out
}

fn parameter_of(parameter: &Parameter) -> Tree {
    let mut out = document::parameter_head(parameter);
    out.set("schema", tree! { "type" => parameter.ty, "uniqueItems" => true });
    out
}

fn request_body(body: &Body) -> Tree {
    let mut out = tree! { "content" => media(body.media, &reference(&body.schema)) };
    if body.required {
        out.set("required", true);
    }
    out
}

fn responses(operation: &Operation) -> Tree {
    let mut out = tree! { "401" => tree! { "description" => status_text("401") } };
    for (code, content) in &operation.responses {
        let schema = match content {
            Content::Object(name) => reference(name),
            Content::Text => tree! { "type" => "string" },
        };
        out.set(code, tree! { "content" => media(operation.produces, &schema), "description" => status_text(code) });
    }
    out
}

fn media(types: &[&str], schema: &Tree) -> Tree {
    let entries = types.iter().map(|ty| ((*ty).into(), tree! { "schema" => schema.clone() })).collect();
    Tree::Map(Map::from_entries(entries, |_| ()))
}
