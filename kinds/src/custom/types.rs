//! The type of a custom resource for server-side apply, from its schema.

use api::schema::{CustomField, CustomList, CustomObject, CustomStruct, CustomType, Ty, type_named};
use api::{Str, Tree};

use super::schema::{Additional, JsonType, ListType, Schema};

/// The type of a kind's objects. Without a schema every field is allowed.
pub(crate) fn object_type(kind: &str, schema: &Schema) -> CustomObject {
    let mut fields = with_object_fields(schema);
    fields.others = schema.preserves_unknown.then(|| Box::new(CustomType::Any));
    CustomObject { kind: Str::new(kind), ty: CustomType::Struct(fields) }
}

/// Kind, apiVersion and metadata have the types of every object, whatever the schema declares.
fn with_object_fields(schema: &Schema) -> CustomStruct {
    let mut all = object_fields();
    let named = schema.properties.iter().filter(|(name, _)| !all.iter().any(|field| field.name == *name));
    let named: Vec<CustomField> = named.map(|(name, property)| field(name, property)).collect();
    all.extend(named);
    CustomStruct::new(all)
}

fn object_fields() -> Vec<CustomField> {
    let text = |name: &str| CustomField { name: Str::new(name), ty: CustomType::Scalar(Ty::String), default: None };
    let metadata = type_named("meta/v1", "ObjectMeta").map_or(CustomType::Any, CustomType::Table);
    vec![text("apiVersion"), text("kind"), CustomField { name: Str::new("metadata"), ty: metadata, default: None }]
}

fn field(name: &Str, schema: &Schema) -> CustomField {
    let default: Option<Tree> = schema.default.clone();
    CustomField { name: name.clone(), ty: type_of(schema), default }
}

fn type_of(schema: &Schema) -> CustomType {
    if schema.is_int_or_string {
        return CustomType::Scalar(Ty::IntOrString);
    }
    match schema.ty {
        Some(JsonType::Object) => struct_of(schema),
        Some(JsonType::Array) => list_of(schema),
        Some(JsonType::String) => CustomType::Scalar(Ty::String),
        Some(JsonType::Integer) => CustomType::Scalar(Ty::Int64),
        Some(JsonType::Number) => CustomType::Scalar(Ty::Double),
        Some(JsonType::Boolean) => CustomType::Scalar(Ty::Bool),
        None => CustomType::Any,
    }
}

fn struct_of(schema: &Schema) -> CustomType {
    let is_atomic = schema.is_atomic_map;
    if schema.is_embedded {
        let mut fields = with_object_fields(schema);
        fields.others = schema.preserves_unknown.then(|| Box::new(CustomType::Any));
        fields.is_atomic = is_atomic;
        return CustomType::Struct(fields);
    }
    match &schema.additional {
        Additional::Schema(item) => return CustomType::Map { item: Box::new(type_of(item)), is_atomic },
        Additional::Any => return CustomType::Map { item: Box::new(CustomType::Any), is_atomic },
        Additional::Unset | Additional::Forbidden => {}
    }
    if schema.properties.is_empty() && schema.preserves_unknown && !is_atomic {
        return CustomType::Any;
    }
    let mut fields = CustomStruct::new(schema.properties.iter().map(|(name, inner)| field(name, inner)).collect());
    fields.others = schema.preserves_unknown.then(|| Box::new(CustomType::Any));
    fields.is_atomic = is_atomic;
    CustomType::Struct(fields)
}

fn list_of(schema: &Schema) -> CustomType {
    let item = Box::new(schema.items.as_deref().map_or(CustomType::Any, type_of));
    let topology = match schema.list_type {
        ListType::Atomic => CustomList::Atomic,
        ListType::Set => CustomList::Set,
        ListType::Map => CustomList::Map(schema.list_keys.clone()),
    };
    CustomType::List { item, topology }
}
