//! The schema table: every field of every API type with JSON name, protobuf number, type, presence, list type and keys,
//! patch strategy and default. The rows are in `tables/`, one file per package; no other module contains merge keys or
//! field numbers.

mod custom;
mod field_index;
pub mod initializers;
mod parse;

pub use self::custom::{CustomField, CustomList, CustomObject, CustomStruct, CustomType, TypeRef};
use self::field_index::FieldIndex;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub enum Ty {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    /// base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// An embedded object of any kind (RawExtension).
    Raw,
    /// FieldsV1: the format of managed fields.
    Fields,
    /// Any JSON value.
    Json,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
    Struct(&'static Type),
    List(&'static Ty),
    Map(&'static Ty),
}

/// When a field appears in JSON: the rule of upstream's Go type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Omitted with its zero value.
    OmitEmpty,
    /// Omitted if unset; an explicit zero is kept.
    Pointer,
    /// Always present, with its zero value (null for lists, maps, times and raw values) if unset.
    Always,
    /// Always present, null if unset.
    Nullable,
}

/// How server-side apply treats a list or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Unspecified: lists are atomic, maps and structs granular.
    Unset,
    Atomic,
    Granular,
    Set,
    /// A list whose items are identified by these fields.
    Map(&'static [&'static str]),
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strategy {
    /// Items or fields are merged.
    pub merge: bool,
    /// The patch may list the keys to retain (`$retainKeys`).
    pub retain_keys: bool,
    /// The value is replaced.
    pub replace: bool,
    /// The field that identifies items of a merged list.
    pub merge_key: Option<&'static str>,
}

/// A field of a built-in type.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The type of the value.
    pub ty: Ty,
    /// When the field appears in JSON.
    pub presence: Presence,
    /// Required by OpenAPI.
    pub required: bool,
    pub topology: Topology,
    /// How strategic merge patch treats the field.
    pub strategy: Strategy,
    /// OpenAPI's default, as JSON text.
    pub default: Option<&'static str>,
    /// The name of the field's Go type if it differs from that of `ty`: `v1.RestartPolicy`.
    pub go: Option<&'static str>,
    /// The allowed values of the field or its items; empty if upstream lists none.
    pub values: &'static [&'static str],
}

/// A field in the protobuf encoding.
#[derive(Debug)]
pub enum Wire {
    Field {
        number: u32,
        field: &'static Field,
        /// A list in its own message with `items`.
        wrapped: bool,
    },
    /// Inlined in JSON, a separate message here.
    Inline { number: u32, ty: &'static Type },
}

impl Wire {
    /// The field number.
    pub fn number(&self) -> u32 {
        match self {
            Wire::Field { number, .. } | Wire::Inline { number, .. } => *number,
        }
    }
}

/// Group, version and kind.
#[derive(Debug)]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version within the group.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
}

/// A union of fields, of which at most one is set.
#[derive(Debug)]
pub struct Union {
    /// The field that names the set member.
    pub discriminator: Option<&'static str>,
    /// Field name and the discriminator's value for it.
    pub fields: Vec<(&'static str, &'static str)>,
}

/// A built-in struct type.
#[derive(Debug)]
pub struct Type {
    /// `Pod`
    pub name: &'static str,
    /// `core/v1`
    pub package: &'static str,
    /// The OpenAPI package name, such as `io.k8s.api.core.v1`.
    pub openapi_package: &'static str,
    /// Group, version and kind of a top-level type.
    pub gvk: Option<Gvk>,
    pub topology: Topology,
    /// Only exists in the protobuf encoding.
    pub inline: bool,
    body: OnceLock<Body>,
}

#[derive(Debug, Default)]
struct Body {
    fields: Vec<&'static Field>,
    /// For each field, the embedded Go structs that JSON does not show.
    embedded: Vec<&'static [&'static str]>,
    by_name: FieldIndex,
    wire: Vec<Wire>,
    unions: Vec<Union>,
}

static EMPTY_BODY: Body =
    Body { fields: Vec::new(), embedded: Vec::new(), by_name: FieldIndex::new(), wire: Vec::new(), unions: Vec::new() };

impl Type {
    fn body(&self) -> &Body {
        self.body.get().unwrap_or(&EMPTY_BODY)
    }

    /// JSON fields in canonical order, including those of inlined types.
    pub fn fields(&self) -> &[&'static Field] {
        &self.body().fields
    }

    /// The field with a JSON name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.field_index(name).map(|at| self.body().fields[at])
    }

    /// The field's index in `fields`.
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        let body = self.body();
        body.by_name.find(name, &body.fields)
    }

    /// The embedded Go structs of a field: `["VolumeSource"]` for a volume's `hostPath`.
    pub fn embedded(&self, name: &str) -> &'static [&'static str] {
        self.field_index(name).map_or(&[], |at| self.body().embedded[at])
    }

    /// Protobuf fields, by ascending number.
    pub fn wire(&self) -> &[Wire] {
        &self.body().wire
    }

    /// The unions of the type's fields.
    pub fn unions(&self) -> &[Union] {
        &self.body().unions
    }

    /// `io.k8s.api.core.v1.Pod`
    pub fn openapi_name(&self) -> String {
        format!("{}.{}", self.openapi_package, self.name)
    }
}

/// The table of all built-in types.
pub struct Schema {
    types: Vec<&'static Type>,
    by_name: HashMap<(&'static str, &'static str), &'static Type>,
    by_gvk: HashMap<(&'static str, &'static str, &'static str), &'static Type>,
}

impl Schema {
    /// All types of the table.
    pub fn types(&self) -> &[&'static Type] {
        &self.types
    }
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(parse::builtin);

/// The table, parsed from its rows at the first call.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

/// A type by package and name: `type_named("core/v1", "PodSpec")`.
pub fn type_named(package: &str, name: &str) -> Option<&'static Type> {
    SCHEMA.by_name.get(&(package, name) as &(&str, &str)).copied()
}

/// A kind's type: `type_of("apps", "v1", "Deployment")`.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    SCHEMA.by_gvk.get(&(group, version, kind) as &(&str, &str, &str)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_the_order_of_their_go_types() {
        let check = |package: &str, name: &str, want: &[&str]| {
            let ty = type_named(package, name).expect(name);
            let names: Vec<&str> = ty.fields().iter().map(|field| field.name).collect();
            assert_eq!(names, want, "{name}");
        };
        check("core/v1", "ConfigMap", &["kind", "apiVersion", "metadata", "immutable", "data", "binaryData"]);
        check("core/v1", "ServicePort", &["name", "protocol", "appProtocol", "port", "targetPort", "nodePort"]);
        check("meta/v1", "APIResourceList", &["kind", "apiVersion", "groupVersion", "resources"]);
        check(
            "meta/v1",
            "APIResource",
            &[
                "name",
                "singularName",
                "namespaced",
                "group",
                "version",
                "kind",
                "verbs",
                "shortNames",
                "categories",
                "storageVersionHash",
            ],
        );
    }

    #[test]
    fn the_table_reads_and_resolves() {
        let pod = type_of("", "v1", "Pod").expect("Pod is in the table");
        assert_eq!(pod.openapi_name(), "io.k8s.api.core.v1.Pod");
        let Some(Field { ty: Ty::Struct(spec), .. }) = pod.field("spec") else { panic!("spec is a struct") };
        let containers = spec.field("containers").expect("containers");
        assert_eq!(containers.strategy.merge_key, Some("name"));
        assert_eq!(containers.topology, Topology::Map(&["name"]));
        let Ty::List(Ty::Struct(volume)) = spec.field("volumes").expect("volumes").ty else { panic!("a list") };
        assert!(volume.field("hostPath").is_some(), "inlined fields are found");
        assert!(type_of("", "v1", "Nothing").is_none());
        assert!(schema().types().len() > 800);
    }
}
