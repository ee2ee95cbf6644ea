//! The shapes of responses: objects as they are, as a Table, or as their metadata alone.

use api::status::Status;
use api::{Tree, list, tree};
use kinds::Kind;

use crate::request::negotiate::Shape;

/// What a Table's rows carry besides their cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(value: &str) -> Result<IncludeObject, Status> {
        match value {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            _ => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {value:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// How objects are to be shaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shaping {
    pub shape: Shape,
    pub include: IncludeObject,
    pub now: i64,
}

/// `meta.k8s.io/v1`
fn meta_version(version: &str) -> String {
    format!("meta.k8s.io/{version}")
}

/// One object.
pub(crate) fn object(kind: &Kind, object: Tree, shaping: Shaping) -> Result<Tree, Status> {
    match shaping.shape {
        Shape::Plain => Ok(object),
        Shape::Table(version) => {
            let metadata = tree! { "resourceVersion" => object.str("metadata.resourceVersion") };
            Ok(table(kind, version, metadata, vec![row(kind, object, version, shaping)], true))
        }
        Shape::PartialObjectMetadata(version) => Ok(partial(object, version)),
        Shape::PartialObjectMetadataList(_) => Err(Status::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            internal_package(kind),
            kind.kind
        ))),
    }
}

/// The package of upstream's internal type, which its messages name.
fn internal_package(kind: &Kind) -> &str {
    if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or(kind.group) }
}

/// The metadata of an object that is not a list.
fn partial(mut object: Tree, version: &str) -> Tree {
    let metadata = object.get_mut("metadata").map(Tree::take).unwrap_or_default();
    tree! { "kind" => "PartialObjectMetadata", "apiVersion" => meta_version(version), "metadata" => metadata }
}

/// A list that is made on the way out is null when it is empty, as Go writes a nil slice.
fn list_or_null(items: Vec<Tree>) -> Tree {
    if items.is_empty() { Tree::Null } else { Tree::List(items) }
}

/// A list, given its metadata and objects.
pub(crate) fn list_of(kind: &Kind, metadata: Tree, objects: Vec<Tree>, shaping: Shaping) -> Result<Tree, Status> {
    match shaping.shape {
        Shape::Plain => Ok(tree! {
            "kind" => format!("{}List", kind.kind),
            "apiVersion" => kind.api_version(),
            "metadata" => metadata,
            "items" => Tree::List(objects.into_iter().map(without_type_meta).collect()),
        }),
        Shape::Table(version) => {
            let rows = objects.into_iter().map(|object| row(kind, object, version, shaping)).collect();
            Ok(table(kind, version, metadata, rows, true))
        }
        Shape::PartialObjectMetadataList(version) => Ok(tree! {
            "kind" => "PartialObjectMetadataList",
            "apiVersion" => meta_version(version),
            "metadata" => metadata,
            "items" => list_or_null(objects.into_iter().map(|object| partial(object, version)).collect()),
        }),
        Shape::PartialObjectMetadata(_) => Err(Status::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            internal_package(kind),
            kind.kind
        ))),
    }
}

fn without_type_meta(mut object: Tree) -> Tree {
    object.remove("kind");
    object.remove("apiVersion");
    object
}

/// A Table; a watch sends the columns with its first event only.
pub(crate) fn table(kind: &Kind, version: &str, metadata: Tree, rows: Vec<Tree>, columns: bool) -> Tree {
    let shown = if columns { kind.columns } else { &[] };
    let definitions = Tree::List(shown.iter().map(column).collect());
    tree! {
        "kind" => "Table",
        "apiVersion" => meta_version(version),
        "metadata" => metadata,
        "columnDefinitions" => definitions,
        "rows" => Tree::List(rows),
    }
}

fn column(column: &kinds::Column) -> Tree {
    tree! {
        "name" => column.name, "type" => column.ty, "format" => column.format,
        "description" => column.name, "priority" => i64::from(column.priority),
    }
}

/// A row with its cells.
pub(crate) fn row(kind: &Kind, object: Tree, version: &str, shaping: Shaping) -> Tree {
    let cells = (kind.cells)(&object, shaping.now);
    let mut row = tree! { "cells" => Tree::List(cells) };
    if let Some(conditions) = conditions(kind, &object) {
        row.set("conditions", conditions);
    }
    row.set(
        "object",
        match shaping.include {
            IncludeObject::None => Tree::Null,
            IncludeObject::Metadata => partial(object, version),
            IncludeObject::Object => object,
        },
    );
    row
}

/// Pods and jobs that are done are marked as completed.
fn conditions(kind: &Kind, object: &Tree) -> Option<Tree> {
    let (reason, message) = match (kind.kind, object.str("status.phase")) {
        ("Pod", "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        ("Pod", "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(list![tree! { "type" => "Completed", "status" => "True", "reason" => reason, "message" => message }])
}
