//! Variables: `$(NAME)` in known fields, replaced by a field of a resource.

use api::Tree;

use crate::error::Error;
use crate::field_spec::{Creates, FieldSpec, split_path};
use crate::fields::{map_text, scalar_text};
use crate::id::{Gvk, ResId};
use crate::resources::Resources;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Var {
    name: String,
    id: ResId,
    field: String,
}

impl std::fmt::Display for Var {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} {{{}}}}}", self.name, self.id.gvk, self.field)
    }
}

const DEFAULT_FIELD: &str = "metadata.name";

pub(crate) fn read(items: &[Tree]) -> Result<Vec<Var>, Error> {
    Ok(items.iter().map(read_one).collect())
}

fn read_one(tree: &Tree) -> Var {
    let object = tree.at("objref");
    let version = map_text(object, "apiVersion");
    let mut gvk = crate::config::gvk_of(object);
    if !version.is_empty() {
        gvk = Gvk { kind: gvk.kind, ..Gvk::new(&version, "") };
    }
    let field = map_text(tree.at("fieldref"), "fieldPath");
    Var {
        name: map_text(tree, "name"),
        id: ResId { gvk, name: map_text(object, "name"), namespace: map_text(object, "namespace") },
        field: if field.is_empty() { DEFAULT_FIELD.to_string() } else { field },
    }
}

/// Adds the variables of a kustomization; each is bound to the resource that it names now.
pub(crate) fn merge(vars: &mut Vec<Var>, resources: &mut Resources, incoming: Vec<Var>) -> Result<(), Error> {
    for var in &incoming {
        let uses_namespace = !var.id.namespace.is_empty() || var.id.gvk.is_cluster_scoped();
        let matches = |id: &ResId| {
            id.name == var.id.name && id.gvk == var.id.gvk && (!uses_namespace || id.is_same_namespace(&var.id))
        };
        match resources.find_any(matches).as_slice() {
            [] => {}
            [at] => resources.list[*at].variables.push(var.name.clone()),
            several => return Err(Error::AmbiguousVar { count: several.len(), var: var.to_string() }),
        }
    }
    merge_sets(vars, incoming)
}

pub(crate) fn merge_sets(vars: &mut Vec<Var>, incoming: Vec<Var>) -> Result<(), Error> {
    for var in incoming {
        if vars.iter().any(|known| known.name == var.name) {
            return Err(Error::RepeatedVar(var.name));
        }
        vars.push(var);
    }
    Ok(())
}

pub(crate) fn resolve(resources: &mut Resources, vars: &[Var], specs: &[FieldSpec]) -> Result<(), Error> {
    let mut values: Vec<(&str, Tree)> = Vec::new();
    for var in vars {
        let owner = resources.list.iter().find(|resource| resource.variables.contains(&var.name));
        let owner = owner.ok_or_else(|| Error::UnmappedVar(var.to_string()))?;
        let value = find(&owner.tree, &var.field).ok_or_else(|| Error::NoVarField(var.to_string()))?;
        values.push((&var.name, value.clone()));
    }
    if values.is_empty() {
        return Ok(());
    }
    for resource in &mut resources.list {
        for spec in specs {
            spec.apply(&mut resource.tree, Creates::Nothing, &mut |value| {
                replace_in(value, &values);
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A dotted path with indexes in brackets.
fn find<'t>(tree: &'t Tree, path: &str) -> Option<&'t Tree> {
    split_path(path, '.').iter().try_fold(tree, |here, step| {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let here = if name.is_empty() { here } else { here.get(name)? };
        match index.strip_suffix(']') {
            Some(index) => here.as_list()?.get(index.parse::<usize>().ok()?),
            None => Some(here),
        }
    })
}

fn replace_in(value: &mut Tree, values: &[(&str, Tree)]) {
    match value {
        Tree::Map(map) => map.iter_mut().for_each(|(_, item)| replace_text(item, values)),
        Tree::List(items) => items.iter_mut().for_each(|item| replace_text(item, values)),
        value => replace_text(value, values),
    }
}

fn replace_text(value: &mut Tree, values: &[(&str, Tree)]) {
    if let Some(text) = value.as_str() {
        *value = expand(text, values);
    }
}

/// The text with its variables; one that is the whole text keeps its type.
fn expand(text: &str, values: &[(&str, Tree)]) -> Tree {
    let lookup = |name: &str| {
        let found = values.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        found.filter(|value| !matches!(value, Tree::Null | Tree::List(_) | Tree::Map(_)))
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match (after.chars().next(), after.find(')')) {
            (None, _) => {
                out.push('$');
                ""
            }
            (Some('$'), _) => {
                out.push('$');
                &after[1..]
            }
            (Some('('), Some(end)) => {
                let name = &after[1..end];
                match lookup(name) {
                    Some(value) if text.len() == name.len() + 3 => return value.clone(),
                    Some(value) => out.push_str(&scalar_text(value)),
                    None => out.push_str(&format!("$({name})")),
                }
                &after[end + 1..]
            }
            (Some(c), _) => {
                out.push('$');
                out.push(c);
                &after[c.len_utf8()..]
            }
        };
    }
    out.push_str(rest);
    Tree::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_variables() {
        let values = [("A", Tree::from("x")), ("N", Tree::Int(5))];
        for (text, want) in [
            ("$(A)", Tree::from("x")),
            ("$(N)", Tree::Int(5)),
            ("a $(A) $(N) $(B)", Tree::from("a x 5 $(B)")),
            ("$$(A) $", Tree::from("$(A) $")),
            ("$(A", Tree::from("$(A")),
        ] {
            assert_eq!(expand(text, &values), want, "{text}");
        }
    }
}
