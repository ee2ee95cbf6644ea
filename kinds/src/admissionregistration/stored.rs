//! The expressions that a stored object already has. They can use functions that are new in this version, since an older
//! server has accepted them, or an upgrade has.

use std::collections::HashSet;

use api::Tree;
use cel::Expressions;

use super::expressions::PolicyCompiler;

/// The expressions of the stored object; none for a new one.
#[derive(Debug, Default)]
pub(crate) struct StoredExpressions(HashSet<String>);

impl StoredExpressions {
    /// Collects all expressions in the tree.
    pub(crate) fn of(old: Option<&Tree>) -> StoredExpressions {
        let mut found = HashSet::new();
        if let Some(old) = old {
            collect(old, &mut found);
        }
        StoredExpressions(found)
    }

    /// The functions that an expression can use.
    pub(crate) fn environment(&self, text: &str) -> Expressions {
        if self.0.contains(text) { Expressions::Stored } else { Expressions::New }
    }

    pub(crate) fn compiler(&self, has_params: bool) -> PolicyCompiler {
        PolicyCompiler::new(has_params, Expressions::New)
    }
}

const FIELDS: &[&str] = &["expression", "messageExpression", "valueExpression"];

fn collect(tree: &Tree, found: &mut HashSet<String>) {
    match tree {
        Tree::Map(map) => {
            for (key, value) in map.iter() {
                match value {
                    Tree::Str(text) if FIELDS.contains(&key) => drop(found.insert(text.to_string())),
                    value => collect(value, found),
                }
            }
        }
        Tree::List(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}
