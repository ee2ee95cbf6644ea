//! The shapes of responses: objects as they are, as a Table, or as their metadata alone.

use crate::storage::kind::{Column, Kind};
use api::status::Status;
use api::{Tree, list, tree};

use crate::request::negotiate::Representation;

/// The object in each row of a Table.
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
pub(crate) struct RepresentationOptions {
    pub shape: Representation,
    pub include: IncludeObject,
    pub now: i64,
}

/// `meta.k8s.io/v1`
fn meta_version(version: &str) -> String {
    format!("meta.k8s.io/{version}")
}

/// One object.
pub(crate) fn object(kind: &Kind, object: Tree, shaping: RepresentationOptions) -> Result<Tree, Status> {
    match shaping.shape {
        Representation::Plain => Ok(object),
        Representation::Table(version) => {
            let metadata = tree! { "resourceVersion" => object.str("metadata.resourceVersion") };
            Ok(table(kind, version, metadata, vec![row(kind, object, version, shaping)], true))
        }
        Representation::PartialObjectMetadata(version) => Ok(partial(object, version)),
        Representation::PartialObjectMetadataList(_) => Err(Status::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            internal_package(kind),
            kind.kind()
        ))),
    }
}

/// The package of upstream's internal type, which its messages name.
fn internal_package(kind: &Kind) -> &str {
    if kind.group().is_empty() { "core" } else { kind.group().split('.').next().unwrap_or(kind.group()) }
}

/// The metadata of an object that is not a list.
fn partial(mut object: Tree, version: &str) -> Tree {
    let metadata = object.get_mut("metadata").map(Tree::take).unwrap_or_default();
    tree! { "kind" => "PartialObjectMetadata", "apiVersion" => meta_version(version), "metadata" => metadata }
}

/// An empty list that is built for the response is null, like a nil slice in Go.
fn list_or_null(items: Vec<Tree>) -> Tree {
    if items.is_empty() { Tree::Null } else { Tree::List(items) }
}

/// Builds a list from its metadata and objects.
pub(crate) fn list_of(
    kind: &Kind,
    metadata: Tree,
    objects: Vec<Tree>,
    shaping: RepresentationOptions,
) -> Result<Tree, Status> {
    match shaping.shape {
        Representation::Plain => {
            let mut list = list_without_items(kind, metadata);
            list.set("items", Tree::List(objects.into_iter().map(|object| list_item(kind, object)).collect()));
            Ok(list)
        }
        Representation::Table(version) => {
            let rows = objects.into_iter().map(|object| row(kind, object, version, shaping)).collect();
            Ok(table(kind, version, metadata, rows, true))
        }
        Representation::PartialObjectMetadataList(version) => Ok(tree! {
            "kind" => "PartialObjectMetadataList",
            "apiVersion" => meta_version(version),
            "metadata" => metadata,
            "items" => list_or_null(objects.into_iter().map(|object| partial(object, version)).collect()),
        }),
        Representation::PartialObjectMetadata(_) => Err(Status::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            internal_package(kind),
            kind.kind()
        ))),
    }
}

/// A plain list, empty.
pub(crate) fn list_without_items(kind: &Kind, mut metadata: Tree) -> Tree {
    // Lists of custom resources have no type that would omit an empty token.
    if kind.definition().is_some() {
        metadata.set_default("continue", "");
    }
    tree! {
        "kind" => kind.list_kind(), "apiVersion" => kind.api_version(), "metadata" => metadata,
        "items" => Tree::List(Vec::new()),
    }
}

/// Items of a typed list do not repeat their kind; custom resources have no type.
fn list_item(kind: &Kind, mut object: Tree) -> Tree {
    if kind.table_type().is_some() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    object
}

/// A Table; a watch sends the columns with its first event only.
pub(crate) fn table(kind: &Kind, version: &str, metadata: Tree, rows: Vec<Tree>, columns: bool) -> Tree {
    let shown = if columns { kind.columns() } else { Vec::new() };
    let definitions = match shown.is_empty() && kind.definition().is_some() {
        true => Tree::Null,
        false => Tree::List(shown.iter().map(column).collect()),
    };
    tree! {
        "kind" => "Table",
        "apiVersion" => meta_version(version),
        "metadata" => metadata,
        "columnDefinitions" => definitions,
        "rows" => Tree::List(rows),
    }
}

fn column(column: &Column<'_>) -> Tree {
    tree! {
        "name" => column.name, "type" => column.ty, "format" => column.format,
        "description" => column.description, "priority" => column.priority,
    }
}

/// A row with its cells.
pub(crate) fn row(kind: &Kind, object: Tree, version: &str, shaping: RepresentationOptions) -> Tree {
    let cells = kind.cells(&object, shaping.now);
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
    let (reason, message) = match (kind.kind(), object.str("status.phase")) {
        ("Pod", "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        ("Pod", "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(list![tree! { "type" => "Completed", "status" => "True", "reason" => reason, "message" => message }])
}
