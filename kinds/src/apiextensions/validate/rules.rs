//! The rules of a definition: their fields, that they compile, and what they can cost.

use api::Tree;
use api::field::{Errors, Path, Value};
use cel::limits::{STATIC_ESTIMATED_COST_LIMIT, STATIC_ESTIMATED_CRD_COST_LIMIT};
use cel::{DeclType, Expressions, Schema};

use super::super::printed;
use crate::custom::{CompiledRule, compile_rule, resolve_field_path};

const NAME: &str = "x-kubernetes-validations";
const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const NO_TYPE: &str = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                       to convert structural schema to CEL declarations";
/// How many of the most expensive rules are named.
const MOST_EXPENSIVE: usize = 4;

/// Which rules were there before: they keep the functions and costs that they were accepted with.
pub(super) struct StoredRules<'a> {
    pub(super) texts: &'a [String],
    pub(super) is_unchanged: bool,
}

/// Validates the text fields of a schema's rules.
pub(super) fn validate_fields(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, rule) in props.list(NAME).iter().enumerate() {
        let path = path.field(NAME);
        validate_rule(rule, props, &path.index(index), errors);
    }
}

fn validate_rule(rule: &Tree, props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (text, message) = (rule.str("rule").trim(), rule.str("message"));
    let breaks = |text: &str| text.contains(['\n', '\r']);
    if text.is_empty() {
        errors.required(&path.field("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&path.field("message"), message, "must be non-empty if specified");
    } else if breaks(message.trim()) {
        errors.invalid(&path.field("message"), message, "must not contain line breaks");
    } else if breaks(text) && message.trim().is_empty() {
        errors.required(&path.field("message"), "message must be specified if rule contains line breaks");
    }
    let expression = rule.str("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.required(&path.field("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.at("reason").as_str().filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(&path.field("reason"), reason, REASONS);
    }
    let field = rule.str("fieldPath");
    if !field.is_empty() && field.trim().is_empty() {
        errors.invalid(&path.field("fieldPath"), field, "must be non-empty if specified");
    }
    if breaks(field) {
        errors.invalid(&path.field("fieldPath"), field, "must not contain line breaks");
    }
    if !field.is_empty() && resolve_field_path(field, props, true).is_err() {
        errors.invalid(&path.field("fieldPath"), field, "must be a valid path");
    }
}

/// Compiles all rules of a schema that is valid otherwise.
pub(super) fn validate(props: &Tree, known: &StoredRules<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Ok(schema) = Schema::from_tree(props) else { return };
    let schema = schema.with_object_meta();
    let declared = schema.declare();
    let mut walk = RuleValidator { known, total: 0, expensive: Vec::new(), errors };
    walk.node(props, &schema, declared.as_ref(), Some(1), None, path);
    walk.validate_total(path);
}

struct RuleValidator<'a> {
    known: &'a StoredRules<'a>,
    total: u64,
    /// Costs and paths of the most expensive expressions.
    expensive: Vec<(u64, String)>,
    errors: &'a mut Errors,
}

impl RuleValidator<'_> {
    /// `cardinality` is how often a value can occur; None if that is not limited. `uncorrelated` is the path from which
    /// values have no identity over time.
    fn node(
        &mut self,
        props: &Tree,
        schema: &Schema,
        declared: Option<&DeclType>,
        cardinality: Option<u64>,
        uncorrelated: Option<&str>,
        path: &Path<'_>,
    ) {
        let below = cardinality.and_then(|cardinality| Some(cardinality.saturating_mul(max_elements(props)?)));
        let element = declared.and_then(DeclType::element);
        let own = path.to_string();
        if let (Tree::Map(_), Some(inner)) = (props.at("additionalProperties"), &schema.additional_properties) {
            let path = path.field("additionalProperties");
            self.node(props.at("additionalProperties"), inner, element, below, uncorrelated, &path);
        }
        for (name, property) in props.map("properties").iter() {
            let Some(inner) = schema.properties.as_ref().and_then(|properties| properties.get(name)) else { continue };
            let owned = inner.declare();
            let field = cel::escape(name).and_then(|name| declared?.field(&name)).or(owned.as_ref());
            let properties = path.field("properties");
            self.node(property, inner, field, below, uncorrelated, &properties.key(name));
        }
        if let (Tree::Map(_), Some(inner)) = (props.at("items"), &schema.items) {
            let is_map = props.str("x-kubernetes-list-type") == "map";
            let uncorrelated = uncorrelated.or((!is_map).then_some(own.as_str()));
            self.node(props.at("items"), inner, element, below, uncorrelated, &path.field("items"));
        }
        self.rules(props, declared, cardinality, uncorrelated, path);
    }

    fn rules(
        &mut self,
        props: &Tree,
        declared: Option<&DeclType>,
        cardinality: Option<u64>,
        uncorrelated: Option<&str>,
        path: &Path<'_>,
    ) {
        let rules = path.field(NAME);
        if declared.is_none() && !props.list(NAME).is_empty() {
            return self.errors.internal(&rules, NO_TYPE);
        }
        for (index, rule) in props.list(NAME).iter().enumerate() {
            let expressions = |text: &str| match self.known.texts.iter().any(|known| known == text) {
                true => Expressions::Stored,
                false => Expressions::New,
            };
            let compiled = compile_rule(rule, props, declared, expressions);
            let path = rules.index(index);
            let cost = compiled.max_cost.saturating_mul(cardinality.unwrap_or(compiled.max_cardinality));
            self.observe(cost, "estimated rule cost", &path.field("rule"));
            self.report(rule, &compiled, &path);
            if compiled.message.is_some() {
                let cost = compiled.message_max_cost;
                self.observe(cost, "estimated messageExpression cost", &path.field("messageExpression"));
            }
            self.validate_old_self(rule, &compiled, uncorrelated, &path);
        }
    }

    fn observe(&mut self, cost: u64, name: &str, path: &Path<'_>) {
        if !self.known.is_unchanged && cost > STATIC_ESTIMATED_COST_LIMIT {
            self.errors.forbidden(path, &cost_text(name, cost, STATIC_ESTIMATED_COST_LIMIT));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= STATIC_ESTIMATED_CRD_COST_LIMIT / 100 {
            self.expensive.push((cost, path.to_string()));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(MOST_EXPENSIVE);
        }
    }

    fn report(&mut self, rule: &Tree, compiled: &CompiledRule, path: &Path<'_>) {
        let shown = || Value::raw(printed::rule_text(rule));
        if let Some(error) = &compiled.error {
            self.errors.invalid(&path.field("rule"), shown(), error);
        }
        if let Some(error) = &compiled.message_error {
            self.errors.invalid(&path.field("messageExpression"), shown(), error);
        }
    }

    fn validate_old_self(&mut self, rule: &Tree, compiled: &CompiledRule, uncorrelated: Option<&str>, path: &Path<'_>) {
        match (compiled.uses_old_self, uncorrelated) {
            (true, Some(within)) => {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors.invalid(&path.field("rule"), rule.str("rule"), &why);
            }
            (false, _) if rule.get("optionalOldSelf").is_some_and(|value| !value.is_null()) => {
                let value = rule.at("optionalOldSelf");
                self.errors.invalid(
                    &path.field("optionalOldSelf"),
                    value,
                    "may not be set if oldSelf is not used in rule",
                );
            }
            _ => {}
        }
    }

    fn validate_total(&mut self, path: &Path<'_>) {
        if self.total <= STATIC_ESTIMATED_CRD_COST_LIMIT {
            return;
        }
        for (_, path) in &self.expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.forbidden(&Path::root(path), why);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.errors.forbidden(path, &cost_text(name, self.total, STATIC_ESTIMATED_CRD_COST_LIMIT));
    }
}

fn max_elements(props: &Tree) -> Option<u64> {
    let limit = |key: &str| props.int(key).map(|limit| u64::try_from(limit).unwrap_or(0));
    match props.str("type") {
        "object" if props.has("additionalProperties") => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

fn cost_text(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_string(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
