//! Objects from and to the wire, in any media type.

use api::json::{self, Strict};
use api::schema::{Type, type_of};
use api::status::Status;
use api::{Tree, typed};
use bytes::Bytes;
use kinds::Kind;

use crate::request::negotiate::Media;

/// A body that was read: the tree, not yet shaped, and what strict decoding has against it.
pub(crate) struct Decoded {
    pub tree: Tree,
    pub strict: Strict,
}

/// What a body must be.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub ty: &'static Type,
}

impl Expected {
    pub(crate) fn of(kind: &Kind) -> Expected {
        Expected { group: kind.group, version: kind.version, kind: kind.kind, ty: kind.schema() }
    }

    /// The kind of a subresource, such as `autoscaling/v1 Scale`.
    pub(crate) fn named(group: &'static str, version: &'static str, kind: &'static str) -> Option<Expected> {
        Some(Expected { group, version, kind, ty: type_of(group, version, kind)? })
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Reads a body whose apiVersion may be that of any group, as options may be.
pub(crate) fn decode_any_version(media: Media, body: &Bytes, expected: &Expected) -> Result<Decoded, Status> {
    let mut strict = Strict::default();
    let tree = match media {
        Media::Json => decode_json(body, expected, &mut strict)?,
        Media::Yaml => api::yaml::decode_as(body, Some(expected.ty), &mut strict)
            .map_err(|error| unrecognized(expected, body, &error.to_string()))?,
        Media::Protobuf => decode_protobuf(body, expected)?,
    };
    Ok(Decoded { tree, strict })
}

/// Checks that what was read is of the expected kind; kind and apiVersion are filled in.
pub(crate) fn expect(decoded: Decoded, expected: &Expected) -> Result<Decoded, Status> {
    let Decoded { mut tree, strict } = decoded;
    if tree.is_null() {
        tree = Tree::map_new();
    }
    check_kind(&mut tree, expected)?;
    api::apply::keep_reset(&mut tree);
    Ok(Decoded { tree, strict })
}

fn decode_json(body: &[u8], expected: &Expected, strict: &mut Strict) -> Result<Tree, Status> {
    let parse_error =
        |what: String| unrecognized(expected, body, &format!("couldn't get version/kind; json parse error: {what}"));
    let tree = json::decode_as(body, Some(expected.ty), strict).map_err(|error| parse_error(error.to_string()))?;
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

fn decode_protobuf(body: &[u8], expected: &Expected) -> Result<Tree, Status> {
    api::protobuf::decode(body, Some(expected.ty)).map_err(|error| unrecognized(expected, body, &error.to_string()))
}

fn unrecognized(expected: &Expected, body: &[u8], why: &str) -> Status {
    let (kind, shown) = (expected.kind, shown_body(body));
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
}

/// The start of a body as upstream shows it: text where it looks like JSON, else hexadecimal.
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
    let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}{dots}")
}

fn check_kind(tree: &mut Tree, expected: &Expected) -> Result<(), Status> {
    let api_version = expected.api_version();
    for (key, want) in [("apiVersion", api_version.as_str()), ("kind", expected.kind)] {
        if tree.str(key).is_empty() {
            tree.set(key, want);
        }
    }
    let (given_version, given_kind) = (tree.str("apiVersion"), tree.str("kind"));
    if given_version == api_version && given_kind == expected.kind {
        return Ok(());
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

fn wrong_kind(given_version: &str, given_kind: &str, expected: &Expected) -> Status {
    if given_kind == expected.kind && is_old_version(given_version, given_kind) {
        let wanted = expected.api_version();
        let why =
            format!("the API version in the data ({given_version}) does not match the expected API version ({wanted})");
        return Status::bad_request(why);
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
    Conversion { version: String, kind: String, package: String, expected: &'static str },
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )]
    Unknown { kind: String, api_version: String },
}

/// Whether a tree is of the expected kind.
pub(crate) fn require_kind(tree: &Tree, expected: &Expected) -> Result<(), KindError> {
    let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
    if version == expected.api_version() && kind == expected.kind {
        return Ok(());
    }
    Err(kind_error(version, kind, expected))
}

fn kind_error(api_version: &str, kind: &str, expected: &Expected) -> KindError {
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
        expected: expected.kind,
    }
}

/// Gives a decoded tree the shape of its kind; strict problems become an error or warnings.
pub(crate) fn conform(
    decoded: Decoded,
    expected: &Expected,
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
    typed::conform(&mut tree, expected.ty, &mut strict).map_err(|error| handled(error.to_string()))?;
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
