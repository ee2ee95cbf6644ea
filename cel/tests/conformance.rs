//! The tests of the CEL specification that apply to Kubernetes' dialect.

use std::sync::Arc;

use api::Tree;
use cel::{Budget, Env, Expressions, TimeZones, Type, Value};

/// The zones that the tests name, as they were in February 2009.
struct Zones;

impl TimeZones for Zones {
    fn offset(&self, zone: &str, _: i64) -> Option<i64> {
        let minutes = match zone {
            "Australia/Sydney" => 660,
            "US/Central" => -360,
            "America/St_Johns" => -210,
            "Asia/Kathmandu" => 345,
            _ => return None,
        };
        Some(minutes * 60)
    }
}

fn read_string(text: &str) -> String {
    let tree: Tree = api::json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    tree.as_str().expect("a JSON string").to_owned()
}

/// A type in the notation of messages.
fn read_type(text: &str) -> Type {
    let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(item) = inner("list") {
        return Type::list(read_type(item));
    }
    if let Some((key, value)) = inner("map").and_then(|pair| pair.split_once(", ")) {
        return Type::map(read_type(key), read_type(value));
    }
    if let Some(value) = inner("optional_type") {
        return Type::optional(read_type(value));
    }
    match text {
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "bool" => Type::Bool,
        "null" => Type::Null,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        _ => Type::Dyn,
    }
}

/// The value of a literal.
fn read_literal(text: &str) -> Value<'static> {
    let program = Env::new(Expressions::Stored).compile(text).unwrap_or_else(|issues| panic!("{text}: {issues}"));
    let empty: [(&str, Value<'static>); 0] = [];
    program.evaluate(&empty, Budget::default()).result.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Whether two values are equal and have the same type.
fn is_same(a: &Value<'_>, b: &Value<'_>) -> bool {
    if let (Value::Double(a), Value::Double(b)) = (a, b)
        && a.is_nan()
    {
        return b.is_nan();
    }
    let env = Env::new(Expressions::Stored).variable("a", Type::Dyn).variable("b", Type::Dyn);
    let program = env.compile("a == b && type(a) == type(b)").expect("an equality");
    let equal = program.evaluate(&[("a", a.clone()), ("b", b.clone())], Budget::default());
    equal.result.ok().and_then(|value| value.as_bool()) == Some(true)
}

struct Variable {
    name: String,
    of: Type,
    value: Option<Value<'static>>,
}

fn read_variables(text: &str) -> Vec<Variable> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = read_string(text);
    let read = |variable: &str| {
        let parts: Vec<&str> = variable.split('\u{1f}').collect();
        let value = (!parts[2].is_empty()).then(|| read_literal(parts[2]));
        Variable { name: parts[0].to_owned(), of: read_type(parts[1]), value }
    };
    text.split('\u{1e}').map(read).collect()
}

/// None if the test passes, what is wrong otherwise.
fn check(expression: &str, variables: &[Variable], expected: &str) -> Option<String> {
    let mut env = Env::new(Expressions::Stored).bindings().time_zones(Arc::new(Zones));
    for variable in variables {
        env = env.variable(&variable.name, variable.of.clone());
    }
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(_) if expected == "!" => return None,
        Err(issues) => return Some(issues.to_string()),
    };
    let bound = variables.iter().filter_map(|variable| Some((variable.name.as_str(), variable.value.clone()?)));
    let activation: Vec<(&str, Value<'static>)> = bound.collect();
    let result = program.evaluate(&activation, Budget::default()).result;
    let (literal, of) = match expected.split_at(1) {
        ("~", rest) => rest.split_once(" = ").map_or((None, Some(rest)), |(of, literal)| (Some(literal), Some(of))),
        ("=", literal) => (Some(literal), None),
        _ => (None, None),
    };
    if let Some(of) = of.filter(|of| program.output_type().to_string() != **of) {
        return Some(format!("type {} is not {of}", program.output_type()));
    }
    match (literal, result) {
        (None, Err(_)) => None,
        (None, Ok(value)) if expected == "!" => Some(format!("is {value:?}")),
        (None, Ok(_)) => None,
        (Some(_), Err(error)) => Some(error.to_string()),
        (Some(literal), Ok(value)) => match literal.strip_prefix("type:") {
            Some(name) => (!matches!(&value, Value::Type(of) if of.name() == name)).then(|| format!("is {value:?}")),
            None => (!is_same(&value, &read_literal(literal))).then(|| format!("is {value:?}, not {literal}")),
        },
    }
}

#[test]
fn passes_the_tests_of_the_specification() {
    let exceptions: Vec<&str> = include_str!("conformance/exceptions.txt").lines().collect();
    let is_exception = |name: &str| exceptions.iter().any(|line| line.split('\t').next() == Some(name));
    let (mut failures, mut total) = (Vec::new(), 0);
    for line in include_str!("conformance/simple.txt").lines().filter(|line| line.contains('\t')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, expression, variables, expected] = columns[..] else { panic!("{line} has other columns") };
        let expression = read_string(expression);
        total += 1;
        let failure = check(&expression, &read_variables(variables), &read_string(expected));
        match failure {
            Some(failure) if !is_exception(name) => failures.push(format!("{name}: {expression}\n  {failure}")),
            None if is_exception(name) => failures.push(format!("{name} passes and is no exception")),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{} of {total} fail:\n{}", failures.len(), failures.join("\n"));
}
