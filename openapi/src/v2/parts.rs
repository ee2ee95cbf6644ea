//! The v2 document in parts: the built-in kinds, each version of a definition, each extension API server. A server
//! keeps the encoded parts and joins them, so that a change costs as much as the part that changed.

use std::collections::{BTreeMap, BTreeSet};

use api::{Map, Str, Tree, json};

use super::{SharedParameters, convert_schema, path_item};
use crate::document::{self, roots, sources};
use crate::operation::Path;
use crate::paths::paths_of;
use crate::schemas::{Definition, Schemas};
use crate::writer::{Writer, entries, writer};
use crate::{Api, Encoding, Extra, etag, proto};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// How many names are tried for a definition that conflicts with others of its name.
const MAX_NAMES: usize = 100;

/// A part of the v2 document. Its entries are encoded.
#[derive(Clone, Default)]
pub struct Part {
    pub definitions: Vec<u8>,
    pub paths: Vec<u8>,
    /// Several parts may have the same parameters.
    pub parameters: BTreeMap<String, Vec<u8>>,
    /// The definitions by name, with a hash of their content.
    pub names: BTreeMap<String, String>,
}

impl Part {
    /// The built-in kinds, and the paths that are no resources.
    pub fn built_in(api: &Api<'_>, encoding: Encoding) -> Part {
        let api = Api { extras: &[], ..*api };
        let mut paths: Vec<Path> = sources(&api).values().flat_map(|source| document::paths(&api, source)).collect();
        paths.sort_by(|a, b| a.path.cmp(&b.path));
        Part::of_paths(&api, &paths, encoding, |_| true)
    }

    /// A version of a definition. What it shares with built-in kinds is in their part.
    pub fn of_extra(api: &Api<'_>, extra: &Extra, encoding: Encoding) -> Part {
        let api = Api { kinds: api.kinds, version: api.version, texts: api.texts, extras: std::slice::from_ref(extra) };
        let paths: Vec<Path> = extra.resources.iter().flat_map(paths_of).collect();
        Part::of_paths(&api, &paths, encoding, |definition| matches!(definition, Definition::Extra(_)))
    }

    fn of_paths(api: &Api<'_>, paths: &[Path], encoding: Encoding, is_own: impl Fn(&Definition<'_>) -> bool) -> Part {
        let schemas = Schemas::new(api);
        let definitions: Vec<(String, Tree)> = schemas
            .collect_reachable(roots(paths))
            .into_iter()
            .filter(|(_, definition)| is_own(definition))
            .map(|(name, definition)| (name.clone(), convert_schema(schemas.render(&name, definition))))
            .collect();
        let mut shared = SharedParameters::default();
        let items: Vec<(&str, Tree)> =
            paths.iter().map(|path| (path.path.as_str(), path_item(path, &mut shared))).collect();
        Part::encode(&definitions, &items, &shared.parameters, encoding)
    }

    /// The restricted document of an extension API server. Definitions and parameters that `known` has are shared if
    /// they are the same; others of the same name are renamed. No server can change the definitions of another one.
    pub fn of_document(document: &Tree, encoding: Encoding, known: &PartIndex) -> Part {
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        let mut own: Vec<(String, Tree)> = Vec::new();
        for (name, definition) in document.map("definitions").iter() {
            let hash = hash(definition);
            let Some(chosen) = choose_name(name, &hash, |name| known.definitions.get(name)) else { continue };
            if !known.definitions.contains_key(&chosen) {
                own.push((chosen.clone(), definition.clone()));
            }
            renamed.insert(format!("{DEFINITIONS}{name}"), format!("{DEFINITIONS}{chosen}"));
        }
        let mut parameters: BTreeMap<String, Tree> = BTreeMap::new();
        for (name, parameter) in document.map("parameters").iter() {
            let encoded = encode_entries("parameters", &[(name, parameter)], encoding);
            let Some(chosen) = choose_name(name, &encoded, |name| known.parameters.get(name)) else { continue };
            renamed.insert(format!("{PARAMETERS}{name}"), format!("{PARAMETERS}{chosen}"));
            parameters.insert(chosen, parameter.clone());
        }
        renamed.retain(|from, to| from != to);
        own.iter_mut().for_each(|(_, definition)| rename_references(definition, &renamed));
        let mut paths: Vec<(&str, Tree)> =
            document.map("paths").iter().map(|(path, item)| (path, item.clone())).collect();
        paths.iter_mut().for_each(|(_, item)| rename_references(item, &renamed));
        Part::encode(&own, &paths, &parameters, encoding)
    }

    fn encode(
        definitions: &[(String, Tree)],
        paths: &[(&str, Tree)],
        parameters: &BTreeMap<String, Tree>,
        encoding: Encoding,
    ) -> Part {
        let definition = |(name, tree): &'_ (String, Tree)| (name.clone(), hash(tree));
        let named: Vec<(&str, &Tree)> = definitions.iter().map(|(name, tree)| (name.as_str(), tree)).collect();
        let items: Vec<(&str, &Tree)> = paths.iter().map(|(path, tree)| (*path, tree)).collect();
        let parameter = |(name, tree): (&String, &Tree)| {
            (name.clone(), encode_entries("parameters", &[(name.as_str(), tree)], encoding))
        };
        Part {
            definitions: encode_entries("definitions", &named, encoding),
            paths: encode_entries("paths", &items, encoding),
            parameters: parameters.iter().map(parameter).collect(),
            names: definitions.iter().map(definition).collect(),
        }
    }
}

fn encode_entries(key: &str, items: &[(&str, &Tree)], encoding: Encoding) -> Vec<u8> {
    let put = |out: &mut dyn Writer, (name, tree): &(&str, &Tree)| out.put(name, tree);
    entries(encoding, &proto::v2::DOCUMENT, key, |out| items.iter().for_each(|item| put(out, item)))
}

/// The definitions and parameters of other parts.
#[derive(Default)]
pub struct PartIndex {
    /// The hashes of definitions.
    definitions: BTreeMap<String, String>,
    /// Parameters as they are encoded.
    parameters: BTreeMap<String, Vec<u8>>,
}

impl PartIndex {
    /// Adds a part to the document.
    pub fn add(&mut self, part: &Part) {
        self.definitions.extend(part.names.clone());
        self.parameters.extend(part.parameters.clone());
    }
}

/// The first free name, or the name of an equal entry; None if too many are used.
fn choose_name<'k, T: PartialEq + 'k>(
    name: &str,
    content: &T,
    known: impl Fn(&str) -> Option<&'k T>,
) -> Option<String> {
    let names = (1..MAX_NAMES).map(|at| if at == 1 { name.to_string() } else { format!("{name}_v{at}") });
    names.into_iter().find(|candidate| known(candidate).is_none_or(|known| known == content))
}

/// The document of these parts.
pub fn join(version: &str, parts: &[Part], encoding: Encoding) -> Vec<u8> {
    let mut out = writer(encoding, &proto::v2::DOCUMENT);
    out.open("definitions");
    parts.iter().for_each(|part| out.put_entries(&part.definitions));
    out.close();
    out.put("info", &document::info(version));
    out.open("paths");
    parts.iter().for_each(|part| out.put_entries(&part.paths));
    out.close();
    out.open("parameters");
    let parameters: BTreeMap<&String, &Vec<u8>> = parts.iter().flat_map(|part| &part.parameters).collect();
    parameters.values().for_each(|parameter| out.put_entries(parameter));
    out.close();
    out.put("security", &document::security());
    out.put("securityDefinitions", &document::security_scheme());
    out.put("swagger", &Tree::from("2.0"));
    out.finish()
}

/// A document without the definitions and paths of its parts, which are filled in by the caller: it may have them in a
/// form that it does not have to build again.
pub struct Skeleton {
    /// The bytes before the definitions, between them and the paths, and after those.
    pub around: [Vec<u8>; 3],
    /// The separator of the entries of two parts, unless they have none.
    pub separator: &'static [u8],
}

/// Stands for entries: no document has it before them.
const GAP: &[u8] = b"\0\x01definitions or paths\x01\0";

/// The skeleton of a document whose parts have so many bytes of definitions and of paths.
pub fn skeleton(
    version: &str,
    parameters: BTreeMap<String, Vec<u8>>,
    lengths: [usize; 2],
    encoding: Encoding,
) -> Skeleton {
    let gaps = Part { definitions: GAP.to_vec(), paths: GAP.to_vec(), parameters, names: BTreeMap::new() };
    let (mut around, mut rest) = ([Vec::new(), Vec::new(), Vec::new()], join(version, &[gaps], encoding));
    for (at, length) in lengths.into_iter().enumerate() {
        let start = rest.windows(GAP.len()).position(|bytes| bytes == GAP).unwrap_or(rest.len());
        let after = rest.split_off((start + GAP.len()).min(rest.len()));
        rest.truncate(start);
        if encoding == Encoding::Protobuf {
            // The length of the gap is one byte.
            rest.pop();
            proto::write_varint(&mut rest, length as u64);
        }
        around[at] = std::mem::replace(&mut rest, after);
    }
    around[2] = rest;
    Skeleton { around, separator: if encoding == Encoding::Json { b"," } else { b"" } }
}

/// The part of a document for one group version: its paths, and the definitions that they refer to.
pub fn restrict(document: &Tree, group: &str, version: &str) -> Tree {
    let own = format!("/apis/{group}/{version}");
    let is_own = |path: &str| path.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let paths = document.map("paths").iter().filter(|(path, _)| is_own(path));
    let paths: Vec<(Str, Tree)> = paths.map(|(path, item)| (Str::new(path), item.clone())).collect();
    let mut open: Vec<String> = paths.iter().flat_map(|(_, item)| references(item)).collect();
    let mut seen = BTreeSet::new();
    let (mut definitions, mut parameters) = (Map::new(), Map::new());
    while let Some(reference) = open.pop().filter(|_| seen.len() < MAX_REFERENCES) {
        if !seen.insert(reference.clone()) {
            continue;
        }
        let (from, to, name) = match (reference.strip_prefix(DEFINITIONS), reference.strip_prefix(PARAMETERS)) {
            (Some(name), _) => ("definitions", &mut definitions, name),
            (_, Some(name)) => ("parameters", &mut parameters, name),
            _ => continue,
        };
        if let Some(found) = document.map(from).get(name) {
            open.extend(references(found));
            to.insert(name, found.clone());
        }
    }
    let paths = Map::from_entries(paths, |_| ());
    api::tree! { "definitions" => definitions, "parameters" => parameters, "paths" => paths }
}

/// A document that refers to more is cut.
const MAX_REFERENCES: usize = 20_000;

fn hash(definition: &Tree) -> String {
    etag(&json::encode(definition, None))
}

/// All references in a part of a document.
fn references(tree: &Tree) -> Vec<String> {
    match tree {
        Tree::Map(map) => {
            let own = map.get("$ref").and_then(Tree::as_str).map(str::to_string);
            own.into_iter().chain(map.iter().flat_map(|(_, value)| references(value))).collect()
        }
        Tree::List(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn rename_references(tree: &mut Tree, renamed: &BTreeMap<String, String>) {
    if renamed.is_empty() {
        return;
    }
    match tree {
        Tree::Map(map) => {
            let new = map.get("$ref").and_then(Tree::as_str).and_then(|name| renamed.get(name)).cloned();
            if let Some(new) = new {
                map.insert("$ref", new);
            }
            map.iter_mut().for_each(|(_, value)| rename_references(value, renamed));
        }
        Tree::List(items) => items.iter_mut().for_each(|item| rename_references(item, renamed)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Tree {
        let text = r##"{"definitions":{"A":{"type":"object","properties":{"b":{"$ref":"#/definitions/B"}}},"B":{"type":"string"},"C":{}},
            "parameters":{"p":{"name":"p"}},
            "paths":{"/apis/x/v1/things":{"get":{"parameters":[{"$ref":"#/parameters/p"}],"schema":{"$ref":"#/definitions/A"}}},
                "/apis/x/v10/others":{},"/apis/apps/v1/deployments":{"get":{"schema":{"$ref":"#/definitions/C"}}}}}"##;
        json::decode(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn documents_are_restricted_to_their_group_version() {
        let restricted = restrict(&document(), "x", "v1");
        let keys = |key: &str| restricted.map(key).iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        assert_eq!(keys("paths"), ["/apis/x/v1/things"]);
        assert_eq!(keys("definitions"), ["A", "B"]);
        assert_eq!(keys("parameters"), ["p"]);
    }

    #[test]
    fn definitions_of_the_same_name_are_shared_or_renamed() {
        let restricted = restrict(&document(), "x", "v1");
        let mut known = PartIndex::default();
        known.definitions.insert("A".to_string(), "another".to_string());
        known.definitions.insert("B".to_string(), hash(&api::tree! { "type" => "string" }));
        let part = Part::of_document(&restricted, Encoding::Json, &known);
        let joined = json::decode(&join("v1", &[part], Encoding::Json)).expect("JSON");
        let names: Vec<&str> = joined.map("definitions").iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A_v2"]);
        let item = joined.map("paths").get("/apis/x/v1/things").expect("a path");
        assert_eq!(item.at("get").at("schema").str("$ref"), "#/definitions/A_v2");
    }

    #[test]
    fn parameters_of_others_are_not_replaced() {
        let restricted = restrict(&document(), "x", "v1");
        let other = api::tree! { "name" => "other" };
        let first = Part::encode(&[], &[], &BTreeMap::from([("p".to_string(), other.clone())]), Encoding::Json);
        let mut known = PartIndex::default();
        known.add(&first);
        let second = Part::of_document(&restricted, Encoding::Json, &known);
        let joined = json::decode(&join("v1", &[first, second], Encoding::Json)).expect("JSON");
        assert_eq!(joined.map("parameters").get("p"), Some(&other));
        assert_eq!(joined.map("parameters").get("p_v2").map(|parameter| parameter.str("name")), Some("p"));
        let item = joined.map("paths").get("/apis/x/v1/things").expect("a path");
        assert_eq!(item.at("get").list("parameters")[0].str("$ref"), "#/parameters/p_v2");
    }

    #[test]
    fn a_skeleton_is_the_document_without_its_entries() {
        let definition = api::tree! { "type" => "object", "description" => "x".repeat(300) };
        let item = api::tree! { "get" => api::tree! { "operationId" => "o" } };
        let part = |name: &str, encoding| {
            let parameters = BTreeMap::from([(format!("p{name}"), api::tree! { "name" => "p", "in" => "query" })]);
            Part::encode(&[(name.to_string(), definition.clone())], &[(name, item.clone())], &parameters, encoding)
        };
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let parts = [part("a", encoding), part("b", encoding)];
            let separators = if encoding == Encoding::Json { 1 } else { 0 };
            let length = |entries: fn(&Part) -> &Vec<u8>| parts.iter().map(|part| entries(part).len()).sum::<usize>();
            let lengths = [length(|part| &part.definitions) + separators, length(|part| &part.paths) + separators];
            let parameters = parts.iter().flat_map(|part| part.parameters.clone()).collect();
            let Skeleton { around: [before, between, after], separator } =
                skeleton("v1", parameters, lengths, encoding);
            let definitions = [&parts[0].definitions[..], separator, &parts[1].definitions].concat();
            let paths = [&parts[0].paths[..], separator, &parts[1].paths].concat();
            let filled = [before, definitions, between, paths, after].concat();
            assert_eq!(filled, join("v1", &parts, encoding));
        }
    }
}
