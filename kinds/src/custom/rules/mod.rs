//! The rules of schemas: expressions in CEL that an object, or a part of it, has to satisfy. Only this module compiles
//! and evaluates them.

mod compile;
mod evaluate;

use std::sync::Arc;

use api::{Str, Tree};
use cel::{DeclType, Expressions, Schema};

pub(crate) use compile::{CompiledRule, compile};
pub use evaluate::Interrupt;
pub(crate) use evaluate::{EvaluationOptions, evaluate};

/// The rules at a schema and below it.
#[derive(Debug)]
pub(crate) struct RuleSet {
    schema: Arc<Schema>,
    /// The type of the value, which errors print.
    ty: Str,
    rules: Vec<Rule>,
    items: Option<Box<RuleSet>>,
    properties: Vec<(Str, RuleSet)>,
    additional: Option<Box<RuleSet>>,
    list_keys: Vec<Str>,
}

/// A rule as it was written, and compiled.
#[derive(Debug)]
struct Rule {
    text: Str,
    message: Str,
    message_expression: Str,
    reason: Str,
    is_optional: bool,
    compiled: CompiledRule,
}

impl RuleSet {
    /// The rules of a whole object; None if there are none.
    pub(crate) fn for_object(props: &Tree) -> Option<RuleSet> {
        let schema = Arc::new(Schema::from_tree(props).ok()?.with_object_meta());
        let declared = schema.declare();
        node(props, &schema, declared.as_ref())
    }

    /// The rules of a value inside of an object.
    pub(crate) fn for_value(props: &Tree) -> Option<RuleSet> {
        let schema = Arc::new(Schema::from_tree(props).ok()?);
        let declared = schema.declare();
        node(props, &schema, declared.as_ref())
    }
}

fn node(props: &Tree, schema: &Arc<Schema>, declared: Option<&DeclType>) -> Option<RuleSet> {
    let element = declared.and_then(DeclType::element);
    let child = |key: &str, inner: Option<&Arc<Schema>>| {
        let props = props.get(key).filter(|props| matches!(props, Tree::Map(_)))?;
        node(props, inner?, element).map(Box::new)
    };
    let set = RuleSet {
        ty: Str::new(props.str("type")),
        rules: read_rules(props, declared),
        items: child("items", schema.items.as_ref()),
        properties: read_properties(props, schema, declared),
        additional: child("additionalProperties", schema.additional_properties.as_ref()),
        list_keys: super::definition::texts(match props.str("x-kubernetes-list-type") {
            "map" => props.list("x-kubernetes-list-map-keys"),
            _ => &[],
        }),
        schema: schema.clone(),
    };
    let is_empty = set.rules.is_empty() && set.items.is_none() && set.properties.is_empty() && set.additional.is_none();
    (!is_empty).then_some(set)
}

fn read_properties(props: &Tree, schema: &Schema, declared: Option<&DeclType>) -> Vec<(Str, RuleSet)> {
    let mut out = Vec::new();
    for (name, inner) in props.map("properties").iter() {
        let Some(inner_schema) = schema.properties.as_ref().and_then(|properties| properties.get(name)) else {
            continue;
        };
        let owned;
        let field = match cel::escape(name) {
            Some(identifier) => declared.and_then(|declared| declared.field(&identifier)),
            None => {
                owned = inner_schema.declare();
                owned.as_ref()
            }
        };
        if let Some(set) = field.and_then(|field| node(inner, inner_schema, Some(field))) {
            out.push((Str::new(name), set));
        }
    }
    out
}

fn read_rules(props: &Tree, declared: Option<&DeclType>) -> Vec<Rule> {
    let read = |rule: &Tree| Rule {
        text: Str::new(rule.str("rule")),
        message: Str::new(rule.str("message")),
        message_expression: Str::new(rule.str("messageExpression")),
        reason: Str::new(rule.str("reason")),
        is_optional: rule.bool("optionalOldSelf"),
        compiled: compile(rule, props, declared, |_| Expressions::Stored),
    };
    props.list("x-kubernetes-validations").iter().map(read).collect()
}
