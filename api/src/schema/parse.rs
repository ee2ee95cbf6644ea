//! Parses the rows of `tables/` into the schema. The rows are part of the binary, so an invalid row is a build defect
//! and fails the first test.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{Body, Field, FieldIndex, Gvk, Presence, Schema, Strategy, Topology, Ty, Type, Union, Wire};

macro_rules! tables {
    ($($name:literal),* $(,)?) => { &[$(include_str!(concat!("tables/", $name, ".txt"))),*] };
}

static TABLES: &[&str] = tables![
    "meta-v1",
    "version",
    "core-v1",
    "admission-v1",
    "admissionregistration-v1",
    "admissionregistration-v1alpha1",
    "admissionregistration-v1beta1",
    "apidiscovery-v2",
    "apiextensions-v1",
    "apiregistration-v1",
    "apiserverinternal-v1alpha1",
    "apps-v1",
    "authentication-v1",
    "authorization-v1",
    "autoscaling-v1",
    "autoscaling-v2",
    "batch-v1",
    "certificates-v1",
    "certificates-v1beta1",
    "coordination-v1",
    "coordination-v1alpha2",
    "coordination-v1beta1",
    "discovery-v1",
    "events-v1",
    "flowcontrol-v1",
    "lifecycle-v1alpha1",
    "networking-v1",
    "node-v1",
    "policy-v1",
    "rbac-v1",
    "resource-v1",
    "resource-v1alpha3",
    "resource-v1beta1",
    "resource-v1beta2",
    "scheduling-v1",
    "scheduling-v1alpha3",
    "scheduling-v1beta1",
    "storage-v1",
    "storagemigration-v1",
    "storagemigration-v1beta1",
];

/// Types of old Kubernetes that the current one lacks; only parsed if enabled.
static INITIALIZERS: &str = include_str!("tables/initializers.txt");

/// A type's rows before its references are resolved.
struct Draft {
    ty: &'static Type,
    rows: Vec<&'static str>,
}

pub(super) fn builtin() -> Schema {
    let mut drafts = Vec::new();
    for table in TABLES {
        read_table(table, &mut drafts);
    }
    if super::initializers::read() {
        read_table(INITIALIZERS, &mut drafts);
    }
    let by_name: HashMap<_, _> = drafts.iter().map(|d| ((d.ty.package, d.ty.name), d.ty)).collect();
    let mut by_row = HashMap::new();
    for draft in &drafts {
        fill(draft, &by_name, &mut by_row);
    }
    // Inlined types first get their own bodies; then their fields are added to the outer type.
    for draft in &drafts {
        let body = body_of(draft.ty, &by_row);
        draft.ty.body.set(body).expect("each type is drafted once");
    }
    let types: Vec<_> = drafts.iter().map(|d| d.ty).collect();
    let by_gvk = types.iter().filter_map(|ty| ty.gvk.as_ref().map(|g| ((g.group, g.version, g.kind), *ty))).collect();
    Schema { types, by_name, by_gvk }
}

fn read_table(table: &'static str, drafts: &mut Vec<Draft>) {
    let (mut package, mut openapi_package) = ("", "");
    for line in table.lines() {
        if let Some(rest) = line.strip_prefix("package ") {
            (package, openapi_package) = rest.split_once(' ').expect("package ALIAS NAME");
        } else if let Some(rest) = line.strip_prefix("type ") {
            drafts.push(Draft { ty: read_type(rest, package, openapi_package), rows: Vec::new() });
        } else if let Some(name) = line.strip_prefix("extend ") {
            // The type becomes the last one; its rows keep the order of their numbers.
            let at = drafts.iter().position(|draft| draft.ty.package == package && draft.ty.name == name);
            let draft = drafts.remove(at.expect("only a type of the same package is extended"));
            drafts.push(draft);
        } else if !line.trim().is_empty() {
            drafts.last_mut().expect("a row stands under its type").rows.push(line.trim());
        }
    }
}

fn read_type(head: &'static str, package: &'static str, openapi_package: &'static str) -> &'static Type {
    let mut words = head.split(' ');
    let name = words.next().expect("a type has a name");
    let (mut gvk, mut topology, mut inline) = (None, Topology::Unset, false);
    for word in words {
        match word {
            "atomic" => topology = Topology::Atomic,
            "granular" => topology = Topology::Granular,
            "inline" => inline = true,
            "kinds=many" => {}
            _ => gvk = Some(read_gvk(word.strip_prefix("kind=").expect("kind=GROUP/VERSION/KIND"))),
        }
    }
    Box::leak(Box::new(Type { name, package, openapi_package, gvk, topology, inline, body: OnceLock::new() }))
}

fn read_gvk(text: &'static str) -> Gvk {
    let (gv, kind) = text.rsplit_once('/').expect("GROUP/VERSION/KIND");
    let (group, version) = gv.rsplit_once('/').unwrap_or(("", gv));
    Gvk { group, version, kind }
}

type Names = HashMap<(&'static str, &'static str), &'static Type>;

/// One row: its number and either a field or an inlined type.
enum Row {
    Field(u32, &'static Field, bool),
    Inline(u32, &'static Type),
    Union(Union),
}

type Rows = HashMap<*const Type, Vec<Row>>;

fn fill(draft: &Draft, names: &Names, rows: &mut Rows) {
    let mut lines = draft.rows.clone();
    if draft.ty.name == "ObjectMeta" {
        lines.sort_by_key(|row| row.split(' ').next().and_then(|number| number.parse::<u32>().ok()));
    }
    let read = lines.into_iter().map(|row| read_row(row, draft.ty.package, names)).collect();
    rows.insert(draft.ty, read);
}

fn read_row(row: &'static str, package: &'static str, names: &Names) -> Row {
    let mut words = row.split(' ');
    let first = words.next().expect("a row has words");
    let name = words.next().expect("a row has a name");
    let ty = words.next().expect("a row has a type");
    if first == "union" {
        let discriminator = (name != "-").then_some(name);
        let fields = ty.split(',').filter_map(|pair| pair.split_once('=')).collect();
        return Row::Union(Union { discriminator, fields });
    }
    let number = first.parse().expect("a row starts with its number");
    if name.starts_with('@') {
        return Row::Inline(number, lookup(ty, package, names));
    }
    let mut field = Field {
        name,
        ty: read_ty(ty, package, names),
        presence: Presence::OmitEmpty,
        required: false,
        topology: Topology::Unset,
        strategy: Strategy::default(),
        default: None,
        go: None,
        values: &[],
    };
    let wrapped = row.ends_with(" wrapped");
    words.filter(|word| *word != "wrapped").for_each(|word| read_flag(word, &mut field));
    Row::Field(number, Box::leak(Box::new(field)), wrapped)
}

fn read_flag(word: &'static str, field: &mut Field) {
    match word.split_once('=') {
        Some(("map", keys)) => field.topology = Topology::Map(keys.split(',').collect::<Vec<_>>().leak()),
        Some(("merge", key)) => (field.strategy.merge, field.strategy.merge_key) = (true, Some(key)),
        Some(("default", json)) => field.default = Some(json),
        Some(("go", name)) => field.go = Some(name),
        // A plus represents a blank, which would end the word.
        Some(("enum", values)) => field.values = values.replace('+', " ").leak().split(',').collect::<Vec<_>>().leak(),
        _ => match word {
            "ptr" => field.presence = Presence::Pointer,
            "always" => field.presence = Presence::Always,
            "nullable" => field.presence = Presence::Nullable,
            "req" => field.required = true,
            "atomic" => field.topology = Topology::Atomic,
            "granular" => field.topology = Topology::Granular,
            "set" => field.topology = Topology::Set,
            "merge" => field.strategy.merge = true,
            "retainKeys" => field.strategy.retain_keys = true,
            "replace" => field.strategy.replace = true,
            other => panic!("unknown flag {other} of field {}", field.name),
        },
    }
}

fn read_ty(text: &'static str, package: &'static str, names: &Names) -> Ty {
    if let Some(item) = text.strip_prefix('[') {
        return Ty::List(Box::leak(Box::new(read_ty(item, package, names))));
    }
    if let Some(item) = text.strip_prefix('{') {
        return Ty::Map(Box::leak(Box::new(read_ty(item, package, names))));
    }
    match text {
        "string" => Ty::String,
        "bool" => Ty::Bool,
        "int32" => Ty::Int32,
        "int64" => Ty::Int64,
        "double" => Ty::Double,
        "bytes" => Ty::Bytes,
        "time" => Ty::Time,
        "microtime" => Ty::MicroTime,
        "quantity" => Ty::Quantity,
        "intorstring" => Ty::IntOrString,
        "raw" => Ty::Raw,
        "fields" => Ty::Fields,
        "json" => Ty::Json,
        "schemaorarray" => Ty::SchemaOrArray,
        "schemaorbool" => Ty::SchemaOrBool,
        "schemaorstrings" => Ty::SchemaOrStrings,
        name => Ty::Struct(lookup(name, package, names)),
    }
}

fn lookup(name: &'static str, package: &'static str, names: &Names) -> &'static Type {
    let key = name.split_once(':').unwrap_or((package, name));
    names.get(&key).unwrap_or_else(|| panic!("type {name} of {package} is not in the table"))
}

fn body_of(ty: &Type, rows: &Rows) -> Body {
    let mut body = Body::default();
    for row in &rows[&(ty as *const Type)] {
        match row {
            Row::Field(0, field, _) => {
                body.fields.push(field);
                body.embedded.push(if matches!(field.name, "kind" | "apiVersion") { &["TypeMeta"] } else { &[] });
            }
            Row::Field(number, field, wrapped) => {
                body.fields.push(field);
                body.embedded.push(&[]);
                body.wire.push(Wire::Field { number: *number, field, wrapped: *wrapped });
            }
            Row::Inline(number, inner) => {
                join_fields(inner, &[], rows, &mut body);
                body.wire.push(Wire::Inline { number: *number, ty: inner });
            }
            Row::Union(union) => {
                body.unions.push(Union { discriminator: union.discriminator, fields: union.fields.clone() })
            }
        }
    }
    body.wire.sort_by_key(Wire::number);
    body.by_name = FieldIndex::of(&body.fields);
    body
}

/// An inlined type is embedded in Go, under its own name.
fn join_fields(ty: &'static Type, outer: &[&'static str], rows: &Rows, body: &mut Body) {
    let path: &'static [&'static str] = [outer, &[ty.name]].concat().leak();
    for row in &rows[&(ty as *const Type)] {
        match row {
            Row::Field(_, field, _) => {
                body.fields.push(field);
                body.embedded.push(path);
            }
            Row::Inline(_, inner) => join_fields(inner, path, rows, body),
            Row::Union(_) => {}
        }
    }
}
