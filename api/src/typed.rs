//! Conforms a tree to its type, like upstream's decoding into a Go struct and encoding it again: wrong types are
//! rejected, unknown fields dropped, zero values omitted or added by the field's presence, quantities and times made
//! canonical.

use std::borrow::Cow;

use crate::json::Strict;
use crate::schema::{self, Field, Presence, Ty, Type};
use crate::tree::{Str, Tree};
use crate::{base64, quantity, time};

/// A value that does not match its type, with the message of Go's decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `items` counts the lists and maps between the innermost field and the value; `path` has the innermost field
    /// first.
    #[error("json: cannot unmarshal {value} into Go struct field {structure}.{} of type {go_type}", joined(path))]
    Mismatch { value: String, structure: String, path: Vec<Str>, go_type: String, items: usize },
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Time(#[from] time::ParseError),
    #[error(transparent)]
    Quantity(#[from] quantity::Error),
    #[error("the object has too many values")]
    TooManyValues,
}

fn joined(path: &[Str]) -> String {
    let path: Vec<&str> = path.iter().rev().map(Str::as_str).collect();
    path.join(".")
}

impl Error {
    fn inside(mut self, structure: &Type, field: &Field) -> Error {
        if let Error::Mismatch { structure: name, path, go_type, items, .. } = &mut self {
            if name.is_empty() {
                *name = structure.name.to_string();
                if let Some(go) = field.go.and_then(|go| item_type(go, *items)) {
                    *go_type = go.to_string();
                }
            }
            path.push(Str::const_new(field.name));
            path.extend(structure.embedded(field.name).iter().rev().map(|name| Str::const_new(name)));
        }
        self
    }

    fn inside_item(mut self) -> Error {
        if let Error::Mismatch { structure, items, .. } = &mut self
            && structure.is_empty()
        {
            *items += 1;
        }
        self
    }
}

/// The Go type of the items of a list or map, `levels` down; None below a name that hides its own.
fn item_type(go: &'static str, levels: usize) -> Option<&'static str> {
    (0..levels).try_fold(go, |go, _| {
        let item = go.strip_prefix("[]").or_else(|| Some(go.strip_prefix("map[")?.split_once(']')?.1))?;
        Some(item.strip_prefix('*').unwrap_or(item))
    })
}

/// Conforms an external object. Unknown fields are reported with their paths.
pub fn conform(tree: &mut Tree, ty: &'static Type, strict: &mut Strict) -> Result<(), Error> {
    let mut path = String::new();
    conform_struct(tree, ty, &mut Walk { left: MAX_VALUES, strict, path: &mut path })
}

/// Adds fields that must always be present, for trees changed by our own code.
pub fn fill(tree: &mut Tree, ty: &'static Type) {
    let Some(map) = tree.as_map_mut() else { return };
    for (key, value) in map.iter_mut() {
        if let Some(field) = ty.field(key) {
            fill_value(value, field.ty);
            // Upstream's storage does not preserve an empty list: it becomes null.
            if field.presence == Presence::Always
                && matches!(field.ty, Ty::List(_) | Ty::Map(_))
                && is_zero(value, field.ty)
            {
                *value = Tree::Null;
            }
        }
    }
    add_missing(tree, ty);
}

fn fill_value(value: &mut Tree, ty: Ty) {
    match (ty, value) {
        (Ty::Struct(ty), value @ Tree::Map(_)) => fill(value, ty),
        (Ty::List(item @ Ty::Struct(_)), Tree::List(items)) => {
            items.iter_mut().for_each(|value| fill_value(value, *item))
        }
        (Ty::Map(item @ Ty::Struct(_)), Tree::Map(map)) => {
            map.iter_mut().for_each(|(_, value)| fill_value(value, *item))
        }
        _ => {}
    }
}

/// The maximum number of values: each may grow to hundreds of bytes when its zero values are added. A body of the
/// largest size with ordinary values has a tenth of them.
const MAX_VALUES: usize = 400_000;

struct Walk<'a> {
    /// The remaining number of values.
    left: usize,
    strict: &'a mut Strict,
    path: &'a mut String,
}

fn conform_struct(tree: &mut Tree, ty: &'static Type, walk: &mut Walk<'_>) -> Result<(), Error> {
    let Tree::Map(map) = tree else { return Err(mismatch(tree, &Ty::Struct(ty))) };
    let mut result = Ok(());
    map.retain(|key, value| {
        let length = push_key(walk.path, key);
        let keep = match ty.field(key) {
            Some(field) => match conform_field(value, field, walk) {
                Ok(keep) => keep,
                Err(error) => {
                    if result.is_ok() {
                        result = Err(error.inside(ty, field));
                    }
                    true
                }
            },
            None => {
                walk.strict.unknown(walk.path);
                false
            }
        };
        walk.path.truncate(length);
        keep
    });
    result?;
    add_missing(tree, ty);
    Ok(())
}

fn push_key(path: &mut String, key: &str) -> usize {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(key);
    length
}

/// Returns whether the field is kept.
fn conform_field(value: &mut Tree, field: &Field, walk: &mut Walk<'_>) -> Result<bool, Error> {
    if value.is_null() {
        return Ok(false);
    }
    conform_value(value, field.ty, walk)?;
    Ok(match field.presence {
        Presence::OmitEmpty => !is_zero(value, field.ty),
        Presence::Pointer | Presence::Always | Presence::Nullable => true,
    })
}

fn is_zero(value: &Tree, ty: Ty) -> bool {
    match value {
        Tree::Null => true,
        Tree::Bool(value) => !value,
        Tree::Int(value) => *value == 0 && !matches!(ty, Ty::Quantity | Ty::IntOrString | Ty::Json),
        Tree::Float(value) => *value == 0.0 && !matches!(ty, Ty::Json),
        Tree::Str(value) => value.is_empty() && !matches!(ty, Ty::Json),
        Tree::List(items) => items.is_empty() && !matches!(ty, Ty::Json),
        Tree::Map(map) => map.is_empty() && matches!(ty, Ty::Map(_)),
    }
}

fn conform_value(value: &mut Tree, ty: Ty, walk: &mut Walk<'_>) -> Result<(), Error> {
    walk.left = walk.left.checked_sub(1).ok_or(Error::TooManyValues)?;
    match (ty, &mut *value) {
        (Ty::String, Tree::Str(_)) | (Ty::Bool, Tree::Bool(_)) | (Ty::Int64, Tree::Int(_)) => Ok(()),
        (Ty::Int32, Tree::Int(number)) if i32::try_from(*number).is_ok() => Ok(()),
        (Ty::Double, Tree::Int(number)) => {
            *value = Tree::Float(*number as f64);
            Ok(())
        }
        (Ty::Double, Tree::Float(_)) => Ok(()),
        (Ty::Bytes, Tree::Str(text)) => conform_bytes(text),
        (Ty::Time, Tree::Str(text)) => canonical(text, time::canonical),
        (Ty::MicroTime, Tree::Str(text)) => canonical(text, time::canonical_micro),
        (Ty::Quantity, _) => conform_quantity(value),
        (Ty::IntOrString, Tree::Str(_)) => Ok(()),
        (Ty::IntOrString, Tree::Int(number)) if i32::try_from(*number).is_ok() => Ok(()),
        (Ty::Raw | Ty::Fields | Ty::Json, _) => Ok(()),
        (Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings, _) => conform_schema(value),
        (Ty::Struct(ty), _) => conform_struct(value, ty, walk),
        (Ty::List(item), Tree::List(items)) => conform_list(items, *item, walk),
        (Ty::Map(item), Tree::Map(map)) => {
            for (key, value) in map.iter_mut() {
                let length = push_key(walk.path, key);
                conform_item(value, *item, walk)?;
                walk.path.truncate(length);
            }
            Ok(())
        }
        _ => Err(mismatch(value, &ty)),
    }
}

/// A schema, or a list of schemas. Upstream's decoder for these is never strict.
fn conform_schema(value: &mut Tree) -> Result<(), Error> {
    let Some(ty) = schema::type_named("apiextensions/v1", "JSONSchemaProps") else { return Ok(()) };
    let mut walk = Walk { left: MAX_VALUES, strict: &mut Strict::default(), path: &mut String::new() };
    match value {
        Tree::Map(_) => conform_struct(value, ty, &mut walk),
        Tree::List(items) => {
            let schemas = items.iter_mut().filter(|item| matches!(item, Tree::Map(_)));
            schemas.into_iter().try_for_each(|schema| conform_struct(schema, ty, &mut walk))
        }
        _ => Ok(()),
    }
}

fn canonical(text: &mut Str, make: fn(&str) -> Result<Str, time::ParseError>) -> Result<(), Error> {
    *text = make(text)?;
    Ok(())
}

/// Bytes are stored in Go's encoding.
fn conform_bytes(text: &mut Str) -> Result<(), Error> {
    if let Cow::Owned(canonical) = base64::canonical(text)? {
        *text = Str::from(canonical);
    }
    Ok(())
}

fn conform_list(items: &mut [Tree], item: Ty, walk: &mut Walk<'_>) -> Result<(), Error> {
    for (index, value) in items.iter_mut().enumerate() {
        let length = walk.path.len();
        walk.path.push_str(&format!("[{index}]"));
        conform_item(value, item, walk)?;
        walk.path.truncate(length);
    }
    Ok(())
}

/// A null item is the zero value of its type.
fn conform_item(value: &mut Tree, item: Ty, walk: &mut Walk<'_>) -> Result<(), Error> {
    if value.is_null() {
        *value = zero(item);
        return Ok(());
    }
    conform_value(value, item, walk).map_err(Error::inside_item)
}

fn conform_quantity(value: &mut Tree) -> Result<(), Error> {
    let text = match &*value {
        Tree::Str(text) => text.clone(),
        Tree::Int(number) => Str::new(itoa::Buffer::new().format(*number)),
        Tree::Float(number) => Str::new(ryu::Buffer::new().format(*number)),
        _ => return Err(quantity::Error::Format.into()),
    };
    *value = Tree::Str(quantity::canonical(&text)?);
    Ok(())
}

fn add_missing(tree: &mut Tree, ty: &'static Type) {
    let Some(map) = tree.as_map_mut() else { return };
    for field in ty.fields() {
        let absent = match field.presence {
            Presence::OmitEmpty | Presence::Pointer => continue,
            Presence::Nullable => Tree::Null,
            Presence::Always if map.get(field.name).is_some_and(|value| !value.is_null()) => continue,
            Presence::Always => zero(field.ty),
        };
        if !map.contains(field.name) || field.presence == Presence::Always {
            map.insert(Str::const_new(field.name), absent);
        }
    }
}

/// The zero value of a type, as Go encodes it.
pub fn zero(ty: Ty) -> Tree {
    match ty {
        Ty::String | Ty::Bytes => Tree::Str(Str::const_new("")),
        Ty::Bool => Tree::Bool(false),
        Ty::Int32 | Ty::Int64 | Ty::IntOrString => Tree::Int(0),
        Ty::Double => Tree::Float(0.0),
        Ty::Quantity => Tree::Str(Str::const_new("0")),
        Ty::Struct(ty) => {
            let mut tree = Tree::map_new();
            add_missing(&mut tree, ty);
            tree
        }
        _ => Tree::Null,
    }
}

fn mismatch(value: &Tree, ty: &Ty) -> Error {
    let number_wanted = matches!(ty, Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString);
    let value = match value {
        Tree::Null => "null".to_string(),
        Tree::Bool(_) => "bool".to_string(),
        Tree::Int(number) if number_wanted => format!("number {number}"),
        Tree::Float(number) if number_wanted => format!("number {number}"),
        Tree::Int(_) | Tree::Float(_) => "number".to_string(),
        Tree::Str(_) => "string".to_string(),
        Tree::List(_) => "array".to_string(),
        Tree::Map(_) => "object".to_string(),
    };
    // These have their own decoders, which read a plain value first.
    let go_type = match ty {
        Ty::Time | Ty::MicroTime => "string".to_string(),
        Ty::IntOrString => "int32".to_string(),
        ty => go_type(ty),
    };
    Error::Mismatch { value, structure: String::new(), path: Vec::new(), go_type, items: 0 }
}

/// The Go name of a type: `[]v1.Container`.
fn go_type(ty: &Ty) -> String {
    match ty {
        Ty::String => "string".to_string(),
        Ty::Bool => "bool".to_string(),
        Ty::Int32 => "int32".to_string(),
        Ty::Int64 => "int64".to_string(),
        Ty::Double => "float64".to_string(),
        Ty::Bytes => "[]uint8".to_string(),
        Ty::Time => "v1.Time".to_string(),
        Ty::MicroTime => "v1.MicroTime".to_string(),
        Ty::Quantity => "resource.Quantity".to_string(),
        Ty::IntOrString => "intstr.IntOrString".to_string(),
        Ty::Raw => "runtime.RawExtension".to_string(),
        Ty::Fields => "v1.FieldsV1".to_string(),
        Ty::Json | Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => "v1.JSON".to_string(),
        Ty::Struct(ty) => format!("{}.{}", ty.package.rsplit('/').next().unwrap_or(ty.package), ty.name),
        Ty::List(item) => format!("[]{}", go_type(item)),
        Ty::Map(item) => format!("map[string]{}", go_type(item)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::schema::type_of;

    fn conformed(kind: &str, text: &str) -> Result<String, Error> {
        let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
        let ty = type_of(group, "v1", kind).expect("a known kind");
        let mut tree = json::decode(text.as_bytes()).expect("valid JSON");
        conform(&mut tree, ty, &mut Strict::default())?;
        Ok(String::from_utf8(json::encode(&tree, Some(ty))).expect("UTF-8"))
    }

    #[test]
    fn zero_values_follow_field_presence() {
        let cases = [
            (
                "Pod",
                r#"{"spec":{"hostNetwork":false,"containers":[{"name":"c","stdin":false}],"shareProcessNamespace":false}}"#,
                r#"{"metadata":{},"spec":{"containers":[{"name":"c","resources":{}}],"shareProcessNamespace":false},"status":{}}"#,
            ),
            ("ConfigMap", r#"{"data":{"a":null},"binaryData":{}}"#, r#"{"metadata":{},"data":{"a":""}}"#),
            (
                "Secret",
                r#"{"data":{"a":"YWJj\nZGVm\n","b":"YR=="}}"#,
                r#"{"metadata":{},"data":{"a":"YWJjZGVm","b":"YQ=="}}"#,
            ),
            ("ConfigMap", r#"{"binaryData":{"a":"YQ=\r\n="}}"#, r#"{"metadata":{},"binaryData":{"a":"YQ=="}}"#),
            ("Pod", r#"{"metadata":null}"#, r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#),
        ];
        for (kind, input, output) in cases {
            assert_eq!(conformed(kind, input).expect(input), output);
        }
    }

    #[test]
    fn refuses_objects_with_a_million_values() {
        let text = format!("{{\"spec\":{{\"containers\":[{}{{}}]}}}}", "{},".repeat(500_000));
        let error = conformed("Pod", &text).expect_err("too many");
        assert_eq!(error.to_string(), "the object has too many values");
    }

    #[test]
    fn type_errors_match_go() {
        let cases = [
            (
                "Pod",
                r#"{"metadata":[]}"#,
                "json: cannot unmarshal array into Go struct field Pod.metadata of type v1.ObjectMeta",
            ),
            (
                "Pod",
                r#"{"spec":{"containers":{}}}"#,
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "Pod",
                r#"{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}"#,
                "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (
                "Pod",
                r#"{"spec":{"restartPolicy":1}}"#,
                "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                "Pod",
                r#"{"spec":{"volumes":[{"hostPath":{"path":true}}]}}"#,
                "json: cannot unmarshal bool into Go struct field HostPathVolumeSource.spec.volumes.VolumeSource.hostPath.path of type string",
            ),
            (
                "Pod",
                r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#,
                "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            ),
            (
                "Pod",
                r#"{"spec":{"containers":[{"resources":{"limits":"x"}}]}}"#,
                "json: cannot unmarshal string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
            ),
            (
                "PersistentVolumeClaim",
                r#"{"spec":{"accessModes":[1]}}"#,
                "json: cannot unmarshal number into Go struct field PersistentVolumeClaimSpec.spec.accessModes of type v1.PersistentVolumeAccessMode",
            ),
            (
                "PersistentVolumeClaim",
                r#"{"spec":{"accessModes":"x"}}"#,
                "json: cannot unmarshal string into Go struct field PersistentVolumeClaimSpec.spec.accessModes of type []v1.PersistentVolumeAccessMode",
            ),
            (
                "Pod",
                r#"{"metadata":{"uid":1}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.uid of type types.UID",
            ),
            (
                "Pod",
                r#"{"metadata":{"creationTimestamp":1}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                "ConfigMap",
                r#"{"data":{"a":1}}"#,
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
        ];
        for (kind, input, message) in cases {
            assert_eq!(conformed(kind, input).expect_err(input).to_string(), message);
        }
    }
}
