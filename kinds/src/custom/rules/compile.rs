//! A rule as a program, with what it can cost.

use api::{Str, Tree};
use cel::{DeclType, DeclaredSizes, Env, Expressions, Program, Type};

use super::super::field_path;

/// The name of the type of `self` in compile errors; upstream's ends in a number that changes.
const SELF_TYPE: &str = "selfType1";

/// The result of compiling a rule.
#[derive(Debug, Default)]
pub(crate) struct CompiledRule {
    pub(crate) program: Option<Program>,
    pub(crate) error: Option<String>,
    pub(crate) message: Option<Program>,
    pub(crate) message_error: Option<String>,
    pub(crate) max_cost: u64,
    pub(crate) message_max_cost: u64,
    /// The maximum number of times that the rule runs for one object.
    pub(crate) max_cardinality: u64,
    pub(crate) uses_old_self: bool,
    /// The path of errors, relative to the schema.
    pub(crate) field_path: Str,
}

/// Compiles a rule of a schema. `expressions` decides for each text whether it may use the newest functions.
pub(crate) fn compile(
    rule: &Tree,
    props: &Tree,
    declared: Option<&DeclType>,
    expressions: impl Fn(&str) -> Expressions,
) -> CompiledRule {
    let mut out = CompiledRule::default();
    let (text, message) = (rule.str("rule"), rule.str("messageExpression"));
    if text.trim().is_empty() {
        return out;
    }
    let Some(declared) = declared else {
        out.error = Some("failed to convert to declType for CEL validation rules".to_string());
        return out;
    };
    let is_optional = rule.bool("optionalOldSelf");
    let named = declared.with_name(SELF_TYPE);
    let program = match checked(text, &env(&named, is_optional, expressions(text)), &Type::Bool, RULE) {
        Ok(program) => program,
        Err(error) => {
            out.error = Some(error.to_string());
            return out;
        }
    };
    let sizes = DeclaredSizes::new(&named);
    out.uses_old_self = program.uses_variable("oldSelf");
    out.max_cost = program.estimate_cost(&sizes).max;
    out.max_cardinality = declared.max_cardinality();
    out.program = Some(program);
    if !message.is_empty() {
        match checked(message, &env(&named, is_optional, expressions(message)), &Type::String, MESSAGE) {
            Ok(program) => {
                out.message_max_cost = program.estimate_cost(&sizes).max;
                out.message = Some(program);
            }
            Err(error) => {
                out.message_error = Some(error.to_string());
                return out;
            }
        }
    }
    if let Ok(found) = field_path::resolve(rule.str("fieldPath"), props, true) {
        out.field_path = Str::from(found.text);
    }
    out
}

fn env(declared: &DeclType, is_optional: bool, expressions: Expressions) -> Env {
    let of = declared.cel_type().clone();
    let old = if is_optional { Type::optional(of) } else { of };
    Env::new(expressions)
        .time_zones(crate::time_zones::database())
        .declared_variable("self", declared)
        .variable("oldSelf", old)
}

/// Upstream's texts: a failed compilation, a wrong type, a constant that cannot be used.
type Texts = [&'static str; 3];

const RULE: Texts = ["compilation failed", "cel expression must evaluate to a bool", "program instantiation failed"];
const MESSAGE: Texts = [
    "messageExpression compilation failed",
    "messageExpression must evaluate to a string",
    "messageExpression instantiation failed",
];

/// Why an expression cannot be used; each has its text of [`Texts`].
#[derive(Debug, thiserror::Error)]
enum CompileError {
    #[error("{text}: {issues}")]
    Issues { text: &'static str, issues: cel::Issues },
    #[error("{0}")]
    OutputType(&'static str),
    #[error("{text}: {error}")]
    Instantiation { text: &'static str, error: cel::EvalError },
}

fn checked(text: &str, env: &Env, wanted: &Type, texts: Texts) -> Result<Program, CompileError> {
    let program = env.compile(text).map_err(|issues| CompileError::Issues { text: texts[0], issues })?;
    if program.output_type() != wanted {
        return Err(CompileError::OutputType(texts[1]));
    }
    match program.instantiation_error() {
        Some(error) => Err(CompileError::Instantiation { text: texts[2], error: error.clone() }),
        None => Ok(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(ty: &str, rule: &str) -> CompiledRule {
        let read = |text: &str| api::json::decode(text.as_bytes()).expect("valid JSON");
        let props = read(ty);
        let declared = cel::Schema::from_tree(&props).expect("a schema").declare();
        compile(&read(rule), &props, declared.as_ref(), |_| Expressions::Stored)
    }

    #[test]
    fn errors_say_what_cannot_be_used() {
        let integer = r#"{"type":"integer"}"#;
        let cases = [
            (r#"{"rule":"self"}"#, "cel expression must evaluate to a bool", ""),
            (r#"{"rule":"self >"}"#, "compilation failed: ERROR: <input>:1:7: Syntax error: ", ""),
            (r#"{"rule":"'a'.matches('[')"}"#, "compilation failed: ERROR: <input>:1:13: ", ""),
            (r#"{"rule":"self > 0","messageExpression":"self"}"#, "", "messageExpression must evaluate to a string"),
            (r#"{"rule":"self > 0","messageExpression":"other"}"#, "", "messageExpression compilation failed: ERROR: "),
            (r#"{"rule":" "}"#, "", ""),
            (r#"{"rule":"self > oldSelf","messageExpression":"string(oldSelf)"}"#, "", ""),
        ];
        for (rule, error, message_error) in cases {
            let got = compiled(integer, rule);
            for (got, want) in [(got.error, error), (got.message_error, message_error)] {
                let got = got.unwrap_or_default();
                assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{rule}: {got}");
            }
        }
    }

    #[test]
    fn old_self_is_optional_if_the_rule_says_so() {
        let integer = r#"{"type":"integer"}"#;
        let cases = [
            (r#"{"rule":"self > oldSelf"}"#, true, true),
            (r#"{"rule":"self > 0"}"#, true, false),
            (r#"{"rule":"self > oldSelf","optionalOldSelf":true}"#, false, false),
            (r#"{"rule":"oldSelf.hasValue()","optionalOldSelf":true}"#, true, true),
            (r#"{"rule":"oldSelf.hasValue()"}"#, false, false),
        ];
        for (rule, is_valid, uses_old_self) in cases {
            let got = compiled(integer, rule);
            assert_eq!((got.error.is_none(), got.uses_old_self), (is_valid, uses_old_self), "{rule}: {:?}", got.error);
        }
    }

    #[test]
    fn costs_grow_with_the_declared_sizes() {
        let list = |most: usize| format!(r#"{{"type":"array","maxItems":{most},"items":{{"type":"integer"}}}}"#);
        let rule = r#"{"rule":"self.all(x, x > 0)","messageExpression":"self.map(x, string(x)).join()"}"#;
        let (small, large) = (compiled(&list(10), rule), compiled(&list(1000), rule));
        assert!(large.max_cost > small.max_cost * 50, "{} {}", small.max_cost, large.max_cost);
        assert!(small.message_max_cost > 0 && large.message_max_cost > 0);
    }
}
