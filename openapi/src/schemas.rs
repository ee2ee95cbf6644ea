//! Schemas of types in OpenAPI v3 form; v2 is derived from them.

use std::collections::{BTreeMap, HashMap};

use api::schema::{Field, Gvk, Presence, Strategy, Topology, Ty, Type, Union, schema};
use api::{Map, Tree, json, list, tree};

use crate::{Api, DescriptionSource};

pub(crate) const REFERENCE: &str = "#/components/schemas/";
pub(crate) const GVK: &str = "x-kubernetes-group-version-kind";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const POD: &str = "io.k8s.api.core.v1.Pod";

/// Everything that a `$ref` may refer to.
pub(crate) struct Schemas<'a> {
    types: HashMap<String, &'static Type>,
    pub api: &'a Api<'a>,
}

/// The definition of a name.
#[derive(Clone, Copy)]
pub(crate) enum Definition<'a> {
    Type(&'static Type),
    /// A type with a special form: a Time is a string.
    Scalar(&'static str),
    Extra(&'a Tree),
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(api: &'a Api<'a>) -> Schemas<'a> {
        let own = schema().types().iter().filter(|ty| !ty.inline);
        Schemas { types: own.map(|ty| (ty.openapi_name(), *ty)).collect(), api }
    }

    fn find(&self, name: &str) -> Option<Definition<'a>> {
        if let Some(ty) = self.types.get(name) {
            return Some(Definition::Type(ty));
        }
        if let Some(name) = SCALARS.iter().find(|scalar| **scalar == name) {
            return Some(Definition::Scalar(name));
        }
        self.api.extras.iter().find_map(|extra| extra.schemas.get(name)).map(Definition::Extra)
    }

    /// The named schemas and everything they refer to, by name. Names without a schema are skipped.
    pub(crate) fn collect_reachable(
        &self,
        roots: impl IntoIterator<Item = String>,
    ) -> BTreeMap<String, Definition<'a>> {
        let mut found = BTreeMap::new();
        let mut open: Vec<String> = roots.into_iter().collect();
        while let Some(name) = open.pop() {
            if found.contains_key(&name) {
                continue;
            }
            let Some(definition) = self.find(&name) else { continue };
            references(definition, &mut open);
            found.insert(name, definition);
        }
        found
    }

    pub(crate) fn render(&self, name: &str, definition: Definition<'_>) -> Tree {
        match definition {
            Definition::Type(ty) => self.render_type(name, ty),
            Definition::Scalar(name) => described(scalar(name), self.api.texts.type_description(name)),
            Definition::Extra(schema) => schema.clone(),
        }
    }

    fn render_type(&self, name: &str, ty: &Type) -> Tree {
        let texts = TypeDescriptions { texts: self.api.texts, name, ty };
        let mut properties = Vec::with_capacity(ty.fields().len());
        for field in ty.fields() {
            properties.push((field.name.into(), property(field, &texts)));
        }
        let mut out = described(tree! { "type" => "object" }, texts.type_description().as_deref());
        if !properties.is_empty() {
            out.set("properties", Map::from_entries(properties, |_| ()));
        }
        let required: Vec<Tree> = ty.fields().iter().filter(|f| f.required).map(|f| f.name.into()).collect();
        if !required.is_empty() {
            out.set("required", required);
        }
        if let Some(gvks) = self.gvks(ty) {
            out.set(GVK, gvks);
        }
        set_topology(&mut out, ty.topology, false);
        if !ty.unions().is_empty() {
            out.set("x-kubernetes-unions", ty.unions().iter().map(union).collect::<Vec<_>>());
        }
        out
    }

    fn gvks(&self, ty: &Type) -> Option<Vec<Tree>> {
        let Gvk { group, version, kind } = ty.gvk.as_ref()?;
        // Every built-in group version has these two. Custom groups are excluded: a new one must not change other
        // documents.
        let shared = ty.openapi_package == META && matches!(ty.name, "DeleteOptions" | "WatchEvent");
        if !shared {
            return Some(vec![gvk(group, version, kind)]);
        }
        let all = Api { extras: &[], ..*self.api }.group_versions();
        Some(all.iter().map(|(group, version)| gvk(group, version, kind)).collect())
    }
}

pub(crate) fn gvk(group: &str, version: &str, kind: &str) -> Tree {
    tree! { "group" => group, "kind" => kind, "version" => version }
}

fn union(union: &Union) -> Tree {
    let fields = union.fields.iter().map(|(field, value)| ((*field).into(), Tree::from(*value))).collect();
    let mut out = tree! { "fields-to-discriminateBy" => Map::from_entries(fields, |_| ()) };
    if let Some(discriminator) = union.discriminator {
        out.set("discriminator", discriminator);
    }
    out
}

fn property(field: &Field, texts: &TypeDescriptions<'_>) -> Tree {
    let by_value = field.presence != Presence::Pointer;
    let mut out = schema_of(&field.ty, by_value);
    if let Some(default) = default_of(field) {
        out.set("default", default);
    }
    set_values(&mut out, field);
    let is_list = matches!(field.ty, Ty::List(_));
    set_topology(&mut out, field.topology, is_list);
    set_strategy(&mut out, field.strategy);
    wrapped(described(out, texts.field_description(field.name).as_deref()))
}

/// The values of a list or map are those of its items.
fn set_values(out: &mut Tree, field: &Field) {
    if field.values.is_empty() {
        return;
    }
    let values: Vec<Tree> = field.values.iter().map(|value| Tree::from(*value)).collect();
    match field.ty {
        Ty::List(_) => out.child("items").set("enum", values),
        Ty::Map(_) => out.child("additionalProperties").set("enum", values),
        _ => out.set("enum", values),
    }
}

/// A reference must not have siblings, so it is wrapped in an `allOf`.
fn wrapped(mut schema: Tree) -> Tree {
    if schema.as_map().is_some_and(|map| map.len() > 1)
        && let Some(reference) = schema.remove("$ref")
    {
        schema.set("allOf", list![tree! { "$ref" => reference }]);
    }
    schema
}

/// A struct held by value has the default `{}`.
fn schema_of(ty: &Ty, by_value: bool) -> Tree {
    match ty {
        Ty::String => tree! { "type" => "string" },
        Ty::Bool => tree! { "type" => "boolean" },
        Ty::Int32 => tree! { "type" => "integer", "format" => "int32" },
        Ty::Int64 => tree! { "type" => "integer", "format" => "int64" },
        Ty::Double => tree! { "type" => "number", "format" => "double" },
        Ty::Bytes => tree! { "type" => "string", "format" => "byte" },
        Ty::List(item) => tree! { "type" => "array", "items" => element(item) },
        Ty::Map(item) => tree! { "type" => "object", "additionalProperties" => element(item) },
        Ty::Struct(ty) => {
            let mut out = reference(&ty.openapi_name());
            if by_value {
                out.set("default", Tree::map_new());
            }
            out
        }
        _ => reference(scalar_name(ty).unwrap_or_default()),
    }
}

/// The items of a list or map are always held by value.
fn element(ty: &Ty) -> Tree {
    let mut out = schema_of(ty, true);
    let zero = match ty {
        Ty::String => Some(Tree::from("")),
        Ty::Bool => Some(Tree::Bool(false)),
        Ty::Int32 | Ty::Int64 | Ty::Double => Some(Tree::Int(0)),
        _ => None,
    };
    if let Some(zero) = zero {
        out.set("default", zero);
    }
    wrapped(out)
}

/// The table has every default except the empty string of required fields.
fn default_of(field: &Field) -> Option<Tree> {
    match (field.default, field.ty) {
        (Some(text), _) => json::decode(text.as_bytes()).ok(),
        (None, Ty::String) if field.presence == Presence::Always => Some(Tree::from("")),
        _ => None,
    }
}

fn set_topology(out: &mut Tree, topology: Topology, is_list: bool) {
    let key = if is_list { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
    match topology {
        Topology::Unset => {}
        Topology::Atomic => out.set(key, "atomic"),
        Topology::Granular => out.set(key, "granular"),
        Topology::Set => out.set(key, "set"),
        Topology::Map(keys) => {
            out.set(key, "map");
            out.set("x-kubernetes-list-map-keys", keys.iter().map(|key| Tree::from(*key)).collect::<Vec<_>>());
        }
    }
}

fn set_strategy(out: &mut Tree, strategy: Strategy) {
    let words = [(strategy.merge, "merge"), (strategy.replace, "replace"), (strategy.retain_keys, "retainKeys")];
    let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    if !words.is_empty() {
        out.set("x-kubernetes-patch-strategy", words.join(","));
    }
    if let Some(key) = strategy.merge_key {
        out.set("x-kubernetes-patch-merge-key", key);
    }
}

fn described(mut schema: Tree, text: Option<&str>) -> Tree {
    if let Some(text) = text {
        schema.set("description", text);
    }
    schema
}

pub(crate) fn reference(name: &str) -> Tree {
    tree! { "$ref" => format!("{REFERENCE}{name}") }
}

fn references(definition: Definition<'_>, names: &mut Vec<String>) {
    match definition {
        Definition::Type(ty) => ty.fields().iter().for_each(|field| references_of_ty(&field.ty, names)),
        Definition::Scalar(_) => {}
        Definition::Extra(schema) => references_of_tree(schema, names),
    }
}

fn references_of_ty(ty: &Ty, names: &mut Vec<String>) {
    match ty {
        Ty::Struct(ty) => names.push(ty.openapi_name()),
        Ty::List(item) | Ty::Map(item) => references_of_ty(item, names),
        _ => names.extend(scalar_name(ty).map(str::to_string)),
    }
}

fn references_of_tree(tree: &Tree, names: &mut Vec<String>) {
    match tree {
        Tree::List(items) => items.iter().for_each(|item| references_of_tree(item, names)),
        Tree::Map(map) => {
            let reference = map.str("$ref").strip_prefix(REFERENCE);
            names.extend(reference.map(str::to_string));
            map.iter().for_each(|(_, value)| references_of_tree(value, names));
        }
        _ => {}
    }
}

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const ANY_JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const OR_ARRAY: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const OR_BOOL: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const OR_STRINGS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

const SCALARS: &[&str] = &[
    TIME,
    MICRO_TIME,
    QUANTITY,
    INT_OR_STRING,
    RAW_EXTENSION,
    FIELDS,
    ANY_JSON,
    OR_ARRAY,
    OR_BOOL,
    OR_STRINGS,
    crate::paths::PATCH,
];

fn scalar_name(ty: &Ty) -> Option<&'static str> {
    Some(match ty {
        Ty::Time => TIME,
        Ty::MicroTime => MICRO_TIME,
        Ty::Quantity => QUANTITY,
        Ty::IntOrString => INT_OR_STRING,
        Ty::Raw => RAW_EXTENSION,
        Ty::Fields => FIELDS,
        Ty::Json => ANY_JSON,
        Ty::SchemaOrArray => OR_ARRAY,
        Ty::SchemaOrBool => OR_BOOL,
        Ty::SchemaOrStrings => OR_STRINGS,
        _ => return None,
    })
}

fn scalar(name: &str) -> Tree {
    let string = || tree! { "type" => "string" };
    match name {
        TIME | MICRO_TIME => tree! { "type" => "string", "format" => "date-time" },
        QUANTITY => tree! { "oneOf" => list![string(), tree! { "type" => "number" }] },
        INT_OR_STRING => {
            tree! { "format" => "int-or-string", "oneOf" => list![tree! { "type" => "integer" }, string()] }
        }
        RAW_EXTENSION | FIELDS | crate::paths::PATCH => tree! { "type" => "object" },
        _ => Tree::map_new(),
    }
}

const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The descriptions of a type. Lists have no upstream description, so it is generated.
struct TypeDescriptions<'a> {
    texts: &'a dyn DescriptionSource,
    name: &'a str,
    ty: &'a Type,
}

impl TypeDescriptions<'_> {
    fn type_description(&self) -> Option<String> {
        let made = || self.list_item().map(|item| format!("{} is a collection of {item} objects.", self.ty.name));
        self.texts.type_description(self.name).map(str::to_string).or_else(|| self.generate_text(made))
    }

    fn field_description(&self, field: &str) -> Option<String> {
        let made = || {
            let item = self.list_item()?;
            match field {
                "metadata" => Some(LIST_METADATA.to_string()),
                "items" => Some(format!("items is the list of {item} objects.")),
                "apiVersion" | "kind" => self.texts.field_description(POD, field).map(str::to_string),
                _ => None,
            }
        };
        self.texts.field_description(self.name, field).map(str::to_string).or_else(|| self.generate_text(made))
    }

    /// Generates a text unless the document has no descriptions.
    fn generate_text(&self, make: impl Fn() -> Option<String>) -> Option<String> {
        self.texts.type_description(POD).and_then(|_| make())
    }

    fn list_item(&self) -> Option<&'static str> {
        match self.ty.field("items")?.ty {
            Ty::List(Ty::Struct(item)) if self.ty.gvk.is_some() => Some(item.name),
            _ => None,
        }
    }
}
