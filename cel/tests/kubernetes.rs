//! Expressions compared with the results of Kubernetes 1.37: values, messages, and compile errors with their positions.

use std::sync::Arc;

use api::Tree;
use cel::{
    Authorizer, AuthorizerRequest, Budget, Decision, DeclType, DeclaredSizes, Env, EvalError, Expressions, Schema,
    TimeZones, Type, Value, limits,
};

/// The zones that the tables name.
struct Zones;

impl TimeZones for Zones {
    fn offset(&self, zone: &str, _: i64) -> Option<i64> {
        (zone == "America/New_York").then_some(-5 * 3600)
    }
}

/// The rows of a table, each with its line number.
fn rows(table: &str) -> Vec<(usize, Vec<&str>)> {
    let lines = table.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| (at + 1, line.split('\t').collect())).collect()
}

fn json(text: &str) -> Tree {
    api::json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn read_string(text: &str) -> String {
    json(text).as_str().expect("a JSON string").to_owned()
}

fn env(schema: &Schema, old: bool) -> Option<Env> {
    let declared = schema.declare()?.with_name("selfType");
    let of = declared.cel_type().clone();
    let env = Env::new(Expressions::New).time_zones(Arc::new(Zones)).declared_variable("self", &declared);
    Some(env.variable("oldSelf", if old { Type::optional(of) } else { of }))
}

/// The result of an expression for a value, in the notation of the table.
fn evaluate(schema: &Schema, expression: &str, value: &Tree, formatted: bool) -> String {
    let env = env(schema, false).expect("a declared type");
    let text = if formatted { format!("'%s'.format([{expression}])") } else { expression.to_owned() };
    let program = match env.compile(&text) {
        Ok(program) => program,
        Err(issues) => return format!("compile: {issues}"),
    };
    let this = match Value::read(value, Some(schema)) {
        Ok(this) => this,
        Err(error) => return format!("!{error}"),
    };
    let evaluation = program.evaluate(&[("self", this)], Budget::default());
    match evaluation.result {
        Ok(Value::Bool(value)) => value.to_string(),
        Ok(Value::String(text)) => format!("={}", &*text),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("!{error}"),
    }
}

#[test]
fn evaluates_as_kubernetes_does() {
    let mut failures = Vec::new();
    let table = rows(include_str!("kubernetes/evaluations.txt"));
    for (line, row) in &table {
        let [schema, expression, value, expected] = row[..] else { panic!("line {line} has other columns") };
        let schema = Schema::from_tree(&json(schema)).expect("a schema");
        let (expected, formatted) = match expected.split_at(1) {
            ("=", text) => (format!("={}", read_string(text)), true),
            ("!", text) => (format!("!{}", read_string(text)), false),
            _ => (expected.to_owned(), false),
        };
        let found = evaluate(&schema, expression, &json(value), formatted);
        if found != expected {
            failures.push(format!("line {line}: {expression} <- {value}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), table.len(), failures.join("\n"));
}

/// The result of a compilation in the notation of the table.
fn compile(schema: &Tree, root: bool, expression: &str, optional: bool, wants_string: bool) -> String {
    let schema = Schema::from_tree(schema).expect("a schema");
    let schema = if root { schema.with_object_meta() } else { schema };
    let Some(env) = env(&schema, optional) else { return "no type".to_owned() };
    match env.compile(expression) {
        Err(issues) => format!("!{issues}"),
        Ok(program) if wants_string && *program.output_type() != Type::String => "not string".to_owned(),
        Ok(program) if !wants_string && *program.output_type() != Type::Bool => "not bool".to_owned(),
        Ok(_) => "ok".to_owned(),
    }
}

/// The name of the type of `self` is upstream's own.
fn without_suffix(text: &str) -> String {
    let mut parts = text.split("selfType<suffix:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("selfType");
        out.push_str(part.split_once('>').map_or(part, |(_, rest)| rest));
    }
    out
}

#[test]
fn compiles_as_kubernetes_does() {
    let mut failures = Vec::new();
    let table = rows(include_str!("kubernetes/compilations.txt"));
    for (line, row) in &table {
        let [schema, expression, options, expected] = row[..] else { panic!("line {line} has other columns") };
        let (root, schema) = schema.strip_prefix("root ").map_or((false, schema), |schema| (true, schema));
        let expected = match expected.strip_prefix('!') {
            Some(text) => format!("!{}", without_suffix(&read_string(text))),
            None => expected.to_owned(),
        };
        let expression = read_string(expression);
        let wants_string = expected == "not string";
        let found = compile(&json(schema), root, &expression, options == "optionalOldSelf", wants_string);
        if found != expected {
            failures.push(format!("line {line}: {expression}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), table.len(), failures.join("\n"));
}

#[test]
fn syntax_errors_do_not_change() {
    for (line, row) in rows(include_str!("kubernetes/syntax.txt")) {
        let [expression, expected] = row[..] else { panic!("line {line} has other columns") };
        let issues = Env::new(Expressions::New).compile(&read_string(expression)).expect_err(expression).to_string();
        let found: Vec<&str> = issues.lines().filter(|line| line.starts_with("ERROR")).collect();
        assert_eq!(found.join("\n"), read_string(expected), "line {line}: {expression}");
    }
}

/// The cost of a row of the evaluations.
fn measure_cost(row: &[&str]) -> u64 {
    let schema = Schema::from_tree(&json(row[0])).expect("a schema");
    let program = env(&schema, false).expect("an environment").compile(row[1]).expect(row[1]);
    let value = json(row[2]);
    match Value::read(&value, Some(&schema)) {
        Ok(this) => program.evaluate(&[("self", this)], Budget::default()).cost,
        Err(_) => 0,
    }
}

#[test]
fn costs_of_evaluations_do_not_change() {
    let expected: Vec<u64> =
        include_str!("kubernetes/costs.txt").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let table = rows(include_str!("kubernetes/evaluations.txt"));
    let found: Vec<u64> = table.iter().map(|(_, row)| measure_cost(row)).collect();
    for ((line, row), (found, expected)) in table.iter().zip(found.iter().zip(&expected)) {
        assert_eq!(found, expected, "line {line}: {} <- {}", row[1], row[2]);
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
}

/// By how much a cost exceeds the limit, as upstream writes it.
fn exceed_factor(cost: u64, cardinality: u64) -> String {
    let factor = cost.saturating_mul(cardinality) as f64 / limits::STATIC_ESTIMATED_COST_LIMIT as f64;
    match factor {
        factor if factor <= 1.0 => "-".to_owned(),
        factor if factor > 100.0 => "more than 100".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}"),
        factor => format!("{factor:.1}"),
    }
}

#[test]
fn estimates_costs_as_kubernetes_does() {
    let mut failures = Vec::new();
    let table = rows(include_str!("kubernetes/estimates.txt"));
    for (line, row) in &table {
        let [schema, cardinality, expression, expected] = row[..] else { panic!("line {line} has other columns") };
        let schema = Schema::from_tree(&json(schema)).expect("a schema");
        let declared = schema.declare().expect("a declared type");
        let program = env(&schema, false).expect("an environment").compile(expression).expect(expression);
        let cost = program.estimate_cost(&DeclaredSizes::new(&declared)).max;
        let cardinality = cardinality.parse().unwrap_or_else(|_| declared.max_cardinality());
        let found = exceed_factor(cost, cardinality);
        if found != expected {
            failures
                .push(format!("line {line}: {expression}\n  expected {expected}\n  found    {found} (cost {cost})"));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), table.len(), failures.join("\n"));
}

/// The environment of device selectors.
fn device_env() -> (Env, DeclType) {
    let map = |value: DeclType| DeclType::map(DeclType::map(value, 32), 32);
    let fields = [
        ("driver".to_owned(), DeclType::scalar(Type::String)),
        ("attributes".to_owned(), map(DeclType::scalar(Type::Dyn))),
        ("capacity".to_owned(), map(DeclType::scalar(Type::object("kubernetes.Quantity")))),
        ("allowMultipleAllocations".to_owned(), DeclType::scalar(Type::Bool)),
    ];
    let device = DeclType::object("kubernetes.DRADevice", fields);
    (Env::new(Expressions::New).bindings().declared_variable("device", &device), device)
}

#[test]
fn checks_device_selectors_as_kubernetes_does() {
    let (env, device) = device_env();
    for (line, row) in rows(include_str!("kubernetes/device_selectors.txt")) {
        let [expression, expected] = row[..] else { panic!("line {line} has other columns") };
        let expected =
            expected.strip_prefix('!').map_or_else(|| expected.to_owned(), |text| format!("!{}", read_string(text)));
        let found = match env.compile(&read_string(expression)) {
            Err(issues) => format!("!{issues}"),
            Ok(program) => match program.output_type() {
                Type::Bool | Type::Dyn
                    if program.estimate_cost(&DeclaredSizes::new(&device)).max > limits::PER_CALL_LIMIT =>
                {
                    "too complex".to_owned()
                }
                Type::Bool | Type::Dyn => "ok".to_owned(),
                other => format!("type {other}"),
            },
        };
        assert_eq!(found, expected, "line {line}: {expression}");
    }
}

/// Everything is allowed.
struct Allow;

impl Authorizer for Allow {
    fn authorize(&self, _: &AuthorizerRequest<'_>) -> Decision {
        Decision { allowed: true, ..Decision::default() }
    }
}

/// Expressions of policies, and the greatest `n` for which one evaluation is within the cost limit.
const COSTS: [(&str, i64); 12] = [
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, x >= 0))", 1623),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).map(x, x + 1).size() >= 0)", 658),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).filter(x, x == 1).size() >= 0)", 3021),
    ("lists.range(int(object.data.n)).all(y, !lists.range(100).exists(x, x < 0))", 1394),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, 'abcdefghij'.contains('abc')))", 1937),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, 'abcdefghij'.matches('^[a-z]+$')))", 1225),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, [1, 2, 3].size() == 3))", 1623),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, object.metadata.name == 'a'))", 1225),
    ("lists.range(int(object.data.n)).all(y, lists.range(100).all(x, x >= 0 && x < 100000000))", 1225),
    (
        "lists.range(int(object.data.n)).all(y, lists.range(100).all(x, quantity('1k').isLessThan(quantity('1M'))))",
        1396,
    ),
    (
        "lists.range(int(object.data.n)).all(y, lists.range(100).all(x, authorizer.path('/x').check('get').allowed()))",
        0,
    ),
    ("lists.range(int(object.data.n)).size() >= 0", 999_983),
];

#[test]
fn costs_at_run_time_are_those_of_kubernetes() {
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    let env = Env::new(Expressions::Stored).variable("object", Type::Dyn).variable("authorizer", authorizer);
    for (expression, limit) in COSTS {
        let program = env.compile(expression).expect(expression);
        let cost = |n: i64| {
            let n = n.to_string();
            let metadata = api::tree! { "name" => "a" };
            let object = api::tree! { "data" => api::tree! { "n" => n.as_str() }, "metadata" => metadata };
            let object = Value::read(&object, None).expect("an object");
            let activation = [("object", object), ("authorizer", Value::authorizer(&Allow))];
            program.evaluate(&activation, Budget::default()).result.map(|value| value.as_bool())
        };
        assert_eq!(cost(limit), Ok(Some(true)), "{expression}");
        assert_eq!(cost(limit + 1), Err(EvalError::CostLimitExceeded), "{expression}");
    }
}
