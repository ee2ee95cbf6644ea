//! Validates an applied object against its type. It may omit anything, but its fields must be declared, of the right
//! type, and without duplicate keys.

use std::collections::BTreeSet;

use super::set::Element;
use super::shape::{Keys, Typed, item_element};
use crate::schema::{CustomList, CustomStruct, CustomType, Topology, Ty, Type, TypeRef};
use crate::tree::{MAX_DEPTH, Map, Tree};

/// All problems of an applied object, as one message in upstream's format.
#[derive(Debug)]
pub(super) struct Problems(Vec<String>);

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [only] => f.write_str(only),
            many => write!(f, "errors:\n  {}", many.join("\n  ")),
        }
    }
}

impl std::error::Error for Problems {}

pub(super) fn validate(tree: &Tree, ty: TypeRef<'_>) -> Result<(), Problems> {
    let mut problems = Vec::new();
    Walk { problems: &mut problems, path: String::new() }.node(tree, Typed::root(ty), 0);
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// More would be repetitive.
const MAX_PROBLEMS: usize = 100;

struct Walk<'a> {
    problems: &'a mut Vec<String>,
    path: String,
}

impl Walk<'_> {
    fn problem(&mut self, text: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            let colon = if self.path.is_empty() { "" } else { ": " };
            self.problems.push(format!("{}{colon}{text}", self.path));
        }
    }

    fn below(&mut self, step: &str, tree: &Tree, typed: Typed<'_>, depth: usize) {
        let length = self.path.len();
        self.path.push_str(step);
        self.node(tree, typed, depth + 1);
        self.path.truncate(length);
    }

    fn node(&mut self, tree: &Tree, typed: Typed<'_>, depth: usize) {
        if tree.is_null() || depth > MAX_DEPTH {
            return;
        }
        match typed {
            Typed::Table(ty, topology) => self.table(tree, ty, topology, depth),
            Typed::Custom(ty) => self.custom(tree, ty, depth),
        }
    }

    fn table(&mut self, tree: &Tree, ty: Ty, topology: Topology, depth: usize) {
        match (ty, tree) {
            (Ty::Struct(ty), Tree::Map(map)) => self.fields(map, ty, depth),
            (Ty::Map(item), Tree::Map(map)) => self.entries(map, Typed::Table(*item, Topology::Unset), depth),
            (Ty::List(item), Tree::List(items)) => {
                let keys = match topology {
                    Topology::Set => Some(Keys::NONE),
                    Topology::Map(keys) => Some(Keys::Table(keys)),
                    _ => None,
                };
                self.items(items, keys, Typed::Table(*item, Topology::Unset), depth);
            }
            (Ty::Struct(_) | Ty::Map(_), other) => self.wrong("map", other),
            (Ty::List(_), other) => self.wrong("list", other),
            (scalar, _) => self.scalar(tree, scalar),
        }
    }

    fn custom(&mut self, tree: &Tree, ty: &CustomType, depth: usize) {
        match (ty, tree) {
            (CustomType::Any, _) => {}
            (CustomType::Scalar(scalar), _) => self.scalar(tree, *scalar),
            (CustomType::Table(ty), _) => self.table(tree, Ty::Struct(ty), Topology::Unset, depth),
            (CustomType::Struct(fields), Tree::Map(map)) => self.custom_fields(map, fields, depth),
            (CustomType::Map { item, .. }, Tree::Map(map)) => self.entries(map, Typed::Custom(item), depth),
            (CustomType::List { item, topology }, Tree::List(items)) => {
                let keys = match topology {
                    CustomList::Atomic => None,
                    CustomList::Set => Some(Keys::NONE),
                    CustomList::Map(keys) => Some(Keys::Custom(keys)),
                };
                self.items(items, keys, Typed::Custom(item), depth);
            }
            (CustomType::Struct(_) | CustomType::Map { .. }, other) => self.wrong("map", other),
            (CustomType::List { .. }, other) => self.wrong("list", other),
        }
    }

    fn wrong(&mut self, expected: &str, value: &Tree) {
        self.problem(&format!("expected {expected}, got &{{{}}}", plain(value)));
    }

    fn entries(&mut self, map: &Map, item: Typed<'_>, depth: usize) {
        map.iter().for_each(|(key, value)| self.below(&format!(".{key}"), value, item, depth));
    }

    fn custom_fields(&mut self, map: &Map, fields: &CustomStruct, depth: usize) {
        for (key, value) in map.iter() {
            match fields.field(key).map(|field| &field.ty).or(fields.others.as_deref()) {
                Some(ty) => self.below(&format!(".{key}"), value, Typed::Custom(ty), depth),
                None => return self.undeclared(key),
            }
        }
    }

    /// The first one ends the fields of its object, as in upstream.
    fn undeclared(&mut self, key: &str) {
        let length = self.path.len();
        self.path.push_str(&format!(".{key}"));
        self.problem("field not declared in schema");
        self.path.truncate(length);
    }

    fn fields(&mut self, map: &Map, ty: &'static Type, depth: usize) {
        for (key, value) in map.iter() {
            match ty.field(key) {
                Some(field) => self.below(&format!(".{key}"), value, Typed::field(field), depth),
                None => return self.undeclared(key),
            }
        }
    }

    fn items(&mut self, items: &[Tree], keys: Option<Keys<'_>>, item: Typed<'_>, depth: usize) {
        let Some(keys) = keys else {
            items.iter().enumerate().for_each(|(at, value)| self.below(&format!("[{at}]"), value, item, depth));
            return;
        };
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for (at, value) in items.iter().enumerate() {
            match item_element(value, keys, item) {
                Err(text) => self.problem(&format!("element {at}: {text}")),
                Ok(element) => self.item(element.clone(), &mut seen, value, item, depth),
            }
        }
    }

    fn item(&mut self, element: Element, seen: &mut BTreeSet<String>, value: &Tree, item: Typed<'_>, depth: usize) {
        let step = element.to_string();
        self.below(&step, value, item, depth);
        if !seen.insert(step.clone()) {
            self.problem(&format!("duplicate entries for key {step}"));
        }
    }

    fn scalar(&mut self, tree: &Tree, ty: Ty) {
        match (ty, tree) {
            (Ty::Raw | Ty::Json | Ty::Fields | Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings, _) => {}
            (Ty::Quantity | Ty::IntOrString, Tree::List(_) | Tree::Map(_)) => {
                self.problem(&format!("expected any scalar, got {}", value_text(tree)))
            }
            (Ty::Quantity | Ty::IntOrString, _) => {}
            (Ty::Bool, Tree::Bool(_)) => {}
            (Ty::Bool, _) => self.problem(&format!("expected boolean, got {}", value_text(tree))),
            (Ty::Int32 | Ty::Int64 | Ty::Double, Tree::Int(_) | Tree::Float(_)) => {}
            (Ty::Int32 | Ty::Int64 | Ty::Double, _) => {
                self.problem(&format!("expected numeric (int or float), got {}", go_type(tree)))
            }
            (_, Tree::Str(_)) => {}
            _ => self.problem(&format!("expected string, got {}", value_text(tree))),
        }
    }
}

/// Upstream prints the value with its Go type.
fn value_text(tree: &Tree) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_syntax(tree))
}

fn go_syntax(tree: &Tree) -> String {
    match tree {
        Tree::Null => "interface {}(nil)".to_string(),
        Tree::Bool(value) => value.to_string(),
        Tree::Int(value) => value.to_string(),
        Tree::Float(value) => value.to_string(),
        Tree::Str(value) => format!("{value:?}"),
        Tree::List(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Tree::Map(map) => {
            let fields: Vec<String> = map.iter().map(|(key, value)| format!("{key:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}

fn go_type(tree: &Tree) -> &'static str {
    match tree {
        Tree::Null => "<nil>",
        Tree::Bool(_) => "bool",
        Tree::Int(_) => "int64",
        Tree::Float(_) => "float64",
        Tree::Str(_) => "string",
        Tree::List(_) => "[]interface {}",
        Tree::Map(_) => "map[string]interface {}",
    }
}

fn plain(tree: &Tree) -> String {
    match tree {
        Tree::Str(text) => text.to_string(),
        other => go_syntax(other),
    }
}
