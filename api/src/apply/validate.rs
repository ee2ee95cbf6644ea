//! Validates an applied object against its type. It may omit anything, but its fields must be declared, of the right
//! type, and without duplicate keys.

use std::collections::BTreeSet;

use super::set::Element;
use super::shape::{Typed, item_element};
use crate::schema::{Topology, Ty, Type};
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

pub(super) fn validate(tree: &Tree, ty: &'static Type) -> Result<(), Problems> {
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

    fn below(&mut self, step: &str, tree: &Tree, typed: Typed, depth: usize) {
        let length = self.path.len();
        self.path.push_str(step);
        self.node(tree, typed, depth + 1);
        self.path.truncate(length);
    }

    fn node(&mut self, tree: &Tree, typed: Typed, depth: usize) {
        if tree.is_null() || depth > MAX_DEPTH {
            return;
        }
        match typed.ty {
            Ty::Struct(ty) => match tree {
                Tree::Map(map) => self.fields(map, ty, depth),
                other => self.problem(&format!("expected map, got &{{{}}}", plain(other))),
            },
            Ty::Map(item) => match tree {
                Tree::Map(map) => {
                    let item = Typed { ty: *item, topology: Topology::Unset };
                    map.iter().for_each(|(key, value)| self.below(&format!(".{key}"), value, item, depth));
                }
                other => self.problem(&format!("expected map, got &{{{}}}", plain(other))),
            },
            Ty::List(item) => match tree {
                Tree::List(items) => self.items(items, typed.topology, *item, depth),
                other => self.problem(&format!("expected list, got &{{{}}}", plain(other))),
            },
            scalar => self.scalar(tree, scalar),
        }
    }

    fn fields(&mut self, map: &Map, ty: &'static Type, depth: usize) {
        for (key, value) in map.iter() {
            match ty.field(key) {
                Some(field) => self.below(&format!(".{key}"), value, Typed::field(field), depth),
                None => {
                    let length = self.path.len();
                    self.path.push_str(&format!(".{key}"));
                    self.problem("field not declared in schema");
                    self.path.truncate(length);
                }
            }
        }
    }

    fn items(&mut self, items: &[Tree], topology: Topology, item: Ty, depth: usize) {
        let item = Typed { ty: item, topology: Topology::Unset };
        let keys = match topology {
            Topology::Set => &[],
            Topology::Map(keys) => keys,
            _ => {
                items.iter().enumerate().for_each(|(at, value)| self.below(&format!("[{at}]"), value, item, depth));
                return;
            }
        };
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for (at, value) in items.iter().enumerate() {
            match item_element(value, keys, item) {
                Err(text) => self.problem(&format!("element {at}: {text}")),
                Ok(element) => self.item(element.clone(), &mut seen, value, item, depth),
            }
        }
    }

    fn item(&mut self, element: Element, seen: &mut BTreeSet<String>, value: &Tree, item: Typed, depth: usize) {
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
