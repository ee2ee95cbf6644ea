//! Objects from and to the wire, in any media type.

use api::json::{self, Strict};
use api::schema::{Type, type_of};
use api::status::Status;
use api::{Tree, typed};
use bytes::Bytes;
use kinds::custom::MetadataError;

use crate::request::negotiate::Media;
use crate::storage::kind::{CustomVersion, Kind};

/// A decoded body: the tree, not yet shaped, and the errors of strict decoding.
pub(crate) struct Decoded {
    pub tree: Tree,
    pub strict: Strict,
}

/// The expected type of a body.
#[derive(Clone, Copy)]
pub(crate) struct ExpectedType<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub rules: TypeRules<'a>,
}

/// The rules for the shape of a body.
#[derive(Clone, Copy)]
pub(crate) enum TypeRules<'a> {
    Table(&'static Type),
    Custom(&'a CustomVersion),
}

impl<'a> ExpectedType<'a> {
    pub(crate) fn of(kind: &'a Kind) -> ExpectedType<'a> {
        let rules = match (kind.definition(), kind.table_type()) {
            (None, Some(ty)) => TypeRules::Table(ty),
            (Some(custom), _) => TypeRules::Custom(custom),
            (None, None) => unreachable!("a kind is built in or custom"),
        };
        ExpectedType { group: kind.group(), version: kind.version(), kind: kind.kind(), rules }
    }

    pub(crate) fn for_kind(row: &'static kinds::Kind) -> ExpectedType<'static> {
        ExpectedType::new(row.group, row.version, row.kind, row.schema())
    }

    pub(crate) fn new(group: &'a str, version: &'a str, kind: &'a str, ty: &'static Type) -> ExpectedType<'a> {
        ExpectedType { group, version, kind, rules: TypeRules::Table(ty) }
    }

    /// The kind of a subresource, such as `autoscaling/v1 Scale`.
    pub(crate) fn named(group: &'a str, version: &'a str, kind: &'a str) -> Option<ExpectedType<'a>> {
        Some(ExpectedType::new(group, version, kind, type_of(group, version, kind)?))
    }

    /// Its type in the schema table; None for a custom resource.
    pub(crate) fn table_type(&self) -> Option<&'static Type> {
        match self.rules {
            TypeRules::Table(ty) => Some(ty),
            TypeRules::Custom(_) => None,
        }
    }

    /// Gives a tree the shape of its kind; unknown fields are reported.
    pub(crate) fn shape(&self, tree: &mut Tree, strict: &mut Strict) -> Result<(), ShapeError> {
        match self.rules {
            TypeRules::Table(ty) => Ok(typed::conform(tree, ty, strict)?),
            TypeRules::Custom(custom) => {
                for path in custom.kind().conform(tree)? {
                    strict.unknown(&path);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// A body that does not have the types of its kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShapeError {
    #[error(transparent)]
    Table(#[from] typed::Error),
    #[error(transparent)]
    Custom(#[from] MetadataError),
}

/// Reads a body whose apiVersion may be that of any group, as options may be.
pub(crate) fn decode_any_version(media: Media, body: &Bytes, expected: &ExpectedType<'_>) -> Result<Decoded, Status> {
    let mut strict = Strict::default();
    let tree = match media {
        Media::Json => decode_json(body, expected, &mut strict)?,
        Media::Yaml => api::yaml::decode_as(body, expected.table_type(), &mut strict)
            .map_err(|error| unrecognized(expected, body, &error.to_string()))?,
        Media::Protobuf => decode_protobuf(body, expected)?,
    };
    Ok(Decoded { tree, strict })
}

/// Warnings for a custom resource that is written in another version than that of the path, before it is rejected: the
/// fields that its own version does not have.
pub(crate) fn warn_of_other_version(tree: &Tree, expected: &ExpectedType<'_>, warnings: &mut Vec<String>) {
    let TypeRules::Custom(custom) = expected.rules else { return };
    let api_version = tree.str("apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if group != expected.group || tree.str("kind") != expected.kind || api_version == expected.api_version() {
        return;
    }
    let unknown = match custom.schemas.find(api_version) {
        Some(kind) => kind.conform(&mut tree.clone()).unwrap_or_default(),
        None => tree
            .as_map()
            .into_iter()
            .flat_map(|map| map.keys())
            .filter(|key| !is_typed_field(key))
            .map(str::to_string)
            .collect(),
    };
    let mut strict = Strict::default();
    unknown.iter().for_each(|path| strict.unknown(path));
    warnings.append(&mut strict.problems);
}

/// The fields that every object has.
fn is_typed_field(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// Checks that what was read is of the expected kind; kind and apiVersion are filled in.
pub(crate) fn expect(decoded: Decoded, expected: &ExpectedType<'_>) -> Result<Decoded, Status> {
    let Decoded { mut tree, strict } = decoded;
    if tree.is_null() {
        tree = Tree::map_new();
    }
    check_kind(&mut tree, expected)?;
    api::apply::keep_reset(&mut tree);
    Ok(Decoded { tree, strict })
}

fn decode_json(body: &[u8], expected: &ExpectedType<'_>, strict: &mut Strict) -> Result<Tree, Status> {
    let parse_error =
        |what: String| unrecognized(expected, body, &format!("couldn't get version/kind; json parse error: {what}"));
    let tree = json::decode_as(body, expected.table_type(), strict).map_err(|error| parse_error(error.to_string()))?;
    let what = match &tree {
        Tree::Map(_) | Tree::Null => return Ok(tree),
        Tree::List(_) => "array",
        Tree::Str(_) => "string",
        Tree::Bool(_) => "bool",
        Tree::Int(_) | Tree::Float(_) => "number",
    };
    let go = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    Err(parse_error(format!("json: cannot unmarshal {what} into Go value of type {go}")))
}

fn decode_protobuf(body: &[u8], expected: &ExpectedType<'_>) -> Result<Tree, Status> {
    api::protobuf::decode(body, expected.table_type()).map_err(|error| unrecognized(expected, body, &error.to_string()))
}

fn unrecognized(expected: &ExpectedType<'_>, body: &[u8], why: &str) -> Status {
    let (kind, shown) = (expected.kind, shown_body(body));
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
}

/// The start of a body in upstream's format: text if it resembles JSON, else hexadecimal.
fn shown_body(body: &[u8]) -> String {
    const LIMIT: usize = 30;
    let cut = &body[..body.len().min(LIMIT)];
    let dots = if body.len() > LIMIT { " ..." } else { "" };
    if body.is_empty() {
        return "<empty>".to_string();
    }
    if body[0] == b'{' {
        return format!("{}{dots}", String::from_utf8_lossy(cut));
    }
    let hex = stdx::hex::encode(cut);
    format!("{hex}{dots}")
}

fn check_kind(tree: &mut Tree, expected: &ExpectedType<'_>) -> Result<(), Status> {
    let api_version = expected.api_version();
    for (key, want) in [("apiVersion", api_version.as_str()), ("kind", expected.kind)] {
        if tree.str(key).is_empty() {
            tree.set(key, want);
        }
    }
    let (given_version, given_kind) = (tree.str("apiVersion"), tree.str("kind"));
    // The kind of a custom resource is a matter of its validation.
    let is_kind = given_kind == expected.kind || expected.table_type().is_none();
    if given_version == api_version && is_kind {
        return Ok(());
    }
    if expected.table_type().is_none() {
        return Err(wrong_version(given_version, &api_version));
    }
    Err(wrong_kind(given_version, given_kind, expected))
}

/// Versions that upstream still reads and no longer serves, with their kinds.
const OLD_VERSIONS: &[(&str, &[&str])] = &[
    ("apps/v1beta1", &["ControllerRevision", "Deployment", "Scale", "StatefulSet"]),
    ("apps/v1beta2", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "Scale", "StatefulSet"]),
    ("extensions/v1beta1", &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet", "Scale"]),
];

fn is_old_version(given_version: &str, kind: &str) -> bool {
    OLD_VERSIONS.iter().any(|(version, kinds)| *version == given_version && kinds.contains(&kind))
}

fn wrong_version(given: &str, wanted: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({wanted})"
    ))
}

fn wrong_kind(given_version: &str, given_kind: &str, expected: &ExpectedType<'_>) -> Status {
    if given_kind == expected.kind && is_old_version(given_version, given_kind) {
        return wrong_version(given_version, &expected.api_version());
    }
    let (_, version) = given_version.rsplit_once('/').unwrap_or(("", given_version));
    let why = kind_error(given_version, given_kind, expected);
    Status::bad_request(format!("{given_kind} in version {version:?} cannot be handled as a {}: {why}", expected.kind))
}

/// An object of another kind than the resource has.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KindError {
    /// `package` is the Go package of the expected kind.
    #[error("converting ({version}.{kind}) to ({package}.{expected}): unknown conversion")]
    Conversion { version: String, kind: String, package: String, expected: String },
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )]
    Unknown { kind: String, api_version: String },
}

/// Whether a tree is of the expected kind.
pub(crate) fn require_kind(tree: &Tree, expected: &ExpectedType<'_>) -> Result<(), KindError> {
    let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
    if version == expected.api_version() && kind == expected.kind {
        return Ok(());
    }
    Err(kind_error(version, kind, expected))
}

fn kind_error(api_version: &str, kind: &str, expected: &ExpectedType<'_>) -> KindError {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    // The kinds of `meta.k8s.io` are responses, never objects.
    if group == "meta.k8s.io" || type_of(group, version, kind).is_none() {
        return KindError::Unknown { kind: kind.to_string(), api_version: api_version.to_string() };
    }
    let package = expected.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
    KindError::Conversion {
        version: version.to_string(),
        kind: kind.to_string(),
        package: package.to_string(),
        expected: expected.kind.to_string(),
    }
}

/// Gives a decoded tree the shape of its kind; strict problems become an error or warnings.
pub(crate) fn conform(
    decoded: Decoded,
    expected: &ExpectedType<'_>,
    validation: Validation,
    warnings: &mut Vec<String>,
) -> Result<Tree, Status> {
    let Decoded { mut tree, mut strict } = decoded;
    let handled = |why: String| {
        Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {why}",
            expected.kind, expected.version, expected.kind
        ))
    };
    expected.shape(&mut tree, &mut strict).map_err(|error| handled(error.to_string()))?;
    match validation {
        Validation::Strict if !strict.problems.is_empty() => {
            return Err(handled(format!("strict decoding error: {}", strict.problems.join(", "))));
        }
        Validation::Warn => warnings.extend(strict.problems.iter().map(|problem| short_problem(problem))),
        _ => {}
    }
    Ok(tree)
}

/// A YAML problem's header is for errors only.
fn short_problem(problem: &str) -> String {
    problem.strip_prefix("yaml: unmarshal errors:\n  ").unwrap_or(problem).to_string()
}

/// The fieldValidation option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Strict,
    Warn,
    Ignore,
}

pub(crate) fn protobuf(tree: &Tree, group: &str, version: &str, kind: &str) -> Vec<u8> {
    match type_of(group, version, kind) {
        Some(ty) => api::protobuf::encode(tree, ty),
        None => Vec::new(),
    }
}
