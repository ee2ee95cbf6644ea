//! The names of an environment: variables, types with their fields, and libraries.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::library::{self, Library};
use crate::schema::{DeclType, Declaration, is_reserved};
use crate::types::Type;

/// The types of mutations.
const JSON_PATCH: &str = "JSONPatch";
const OBJECT: &str = "Object";

#[derive(Debug, Clone)]
pub(crate) struct Scope {
    variables: BTreeMap<Arc<str>, Type>,
    types: BTreeMap<Arc<str>, Arc<DeclType>>,
    libraries: Vec<Library>,
    /// Whether `Object{…}` and `JSONPatch{…}` can be built.
    mutation: bool,
}

/// Additions.
impl Scope {
    pub(crate) fn new(libraries: Vec<Library>) -> Scope {
        Scope { variables: BTreeMap::new(), types: BTreeMap::new(), libraries, mutation: false }
    }

    pub(crate) fn add_variable(&mut self, name: &str, of: Type) {
        self.variables.insert(name.into(), of);
    }

    pub(crate) fn add_types(&mut self, of: &Arc<DeclType>) {
        match of.declaration() {
            Declaration::Scalar => {}
            Declaration::List(element) | Declaration::Map(element) => self.add_types(element),
            Declaration::Object(fields) => {
                self.types.insert(of.cel_type().name().into(), of.clone());
                fields.values().for_each(|field| self.add_types(field));
            }
        }
    }

    pub(crate) fn add_mutation(&mut self) {
        self.mutation = true;
        self.add_library(Library::JsonPatch);
    }

    fn add_library(&mut self, library: Library) {
        self.libraries.push(library);
    }
}

/// Lookups.
impl Scope {
    pub(crate) fn find_variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// A type by its name.
    pub(crate) fn find_type(&self, name: &str) -> Option<Type> {
        if self.is_mutation(name) {
            return Some(Type::object(name));
        }
        let declared = self.types.get(name).map(|declared| declared.cel_type().clone());
        declared.or_else(|| library::find_type(name))
    }

    /// Whether a name is that of a mutation type: every path of fields has one.
    fn is_mutation(&self, name: &str) -> bool {
        self.mutation && (name == JSON_PATCH || name == OBJECT || name.starts_with("Object."))
    }

    /// Whether an object type has declared fields.
    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.types.contains_key(name) || self.is_mutation(name)
    }

    pub(crate) fn find_field(&self, object: &str, field: &str) -> Option<Type> {
        if self.is_mutation(object) {
            return Some(mutation_field(object, field));
        }
        let declared = self.types.get(object)?;
        // Reserved words need no escape where only a field is allowed.
        let found = declared
            .field(field)
            .or_else(|| if is_reserved(field) { declared.field(&format!("__{field}__")) } else { None });
        found.map(|field| field.cel_type().clone())
    }
}

fn mutation_field(object: &str, field: &str) -> Type {
    match (object, field) {
        (JSON_PATCH, "op" | "path" | "from") => Type::String,
        // Other fields have a type without a name, to which nothing is assignable.
        (JSON_PATCH, field) if field != "value" => Type::opaque(""),
        _ => Type::Dyn,
    }
}
