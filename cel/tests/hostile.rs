//! Hostile expressions: nothing panics or overflows the stack, and time and space are bounded.

use std::fmt::Write;
use std::time::Duration;

use api::Tree;
use cel::{Budget, Env, EvalError, Expressions, NoSizes, Schema, Type, Value};
use proptest::prelude::*;

/// The CPU time that one expression may take; upstream runs some of these for minutes.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });

/// The CPU time of this thread, which does not depend on what else the machine does.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with scheduler statistics");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}

/// Fails if some work takes longer than an expression may.
fn assert_bounded(what: &str, work: impl FnOnce()) {
    let start = cpu_time();
    work();
    let taken = cpu_time().saturating_sub(start);
    println!("{taken:?} {what}");
    assert!(taken < PATIENCE, "{what}: {taken:?}");
}

fn env() -> Env {
    Env::new(Expressions::Stored)
        .bindings()
        .mutation()
        .variable("s", Type::String)
        .variable("n", Type::Int)
        .variable("l", Type::list(Type::Int))
        .variable("d", Type::Dyn)
}

/// Compiles, estimates and evaluates an expression, whatever it is.
fn run(expression: &str) -> Option<Result<String, EvalError>> {
    let program = match env().compile(expression) {
        Ok(program) => program,
        Err(issues) => {
            let text = issues.to_string();
            // The parser and the error recovery agree on what is an error.
            assert!(!text.is_empty() && !text.contains("Syntax error\n"), "{expression}");
            return None;
        }
    };
    program.estimate_cost(&NoSizes);
    let text = "x".repeat(1000);
    let object = api::tree! { "a" => api::list![1, "b", api::tree! { "c" => 2 }], "k" => "v" };
    let activation = [
        ("s", Value::string(text)),
        ("n", Value::Int(3)),
        ("l", Value::list((0..10).map(Value::Int).collect())),
        ("d", Value::read(&object, None).expect("an object")),
    ];
    let evaluation = program.evaluate(&activation, Budget::default());
    Some(evaluation.result.map(|value| value.type_of().to_string()))
}

/// Parts of expressions; most combinations are invalid.
const PARTS: [&str; 66] = [
    "s",
    "n",
    "l",
    "d",
    "1",
    "2u",
    "1.5",
    "'a'",
    "b'a'",
    "true",
    "null",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    "in",
    ".?",
    "[?",
    "has(",
    "size(",
    ".all(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".exists(x, ",
    ".optMap(x, ",
    "x",
    ".sort()",
    ".matches(",
    ".format([",
    "string(",
    "int(",
    "dyn(",
    "type(",
    "optional.of(",
    ".orValue(",
    "timestamp(",
    "duration('1s')",
    "quantity('1')",
    "ip('::1')",
    "cidr(",
    "url(",
    "semver('1.0.0')",
    "lists.range(",
    ".k",
    "d.a",
    "`a-b`",
    "\"\\u00e9\"",
    " ",
    "'''",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_does_not_panic(text in "\\PC{0,60}") {
        run(&text);
    }

    #[test]
    fn parts_of_expressions_do_not_panic(parts in proptest::collection::vec(0..PARTS.len(), 1..24)) {
        let text: String = parts.into_iter().map(|part| PARTS[part]).collect();
        run(&text);
    }

    #[test]
    fn functions_take_any_argument(
        call in proptest::sample::select(vec![
            "s.substring(A, B)", "s.charAt(A)", "s.split('', A)", "s.replace('x', 'y', A)", "s.indexOf('x', A)",
            "s.lastIndexOf('x', A)", "l.slice(A, B)", "l.flatten(A)", "lists.range(A)", "A / B", "A % B", "A * B", "A - B",
            "-A", "timestamp(A)", "timestamp(0) + duration(string(A) + 's')", "l[A]", "uint(A)", "double(A) / double(B)",
            "int(double(A) * double(B))", "'%d %x %b %o'.format([A, A, B, B])", "s.findAll('x', A)", "duration(string(A) + 'ns')",
            "quantity('1').add(A).sub(B)", "'%.3f'.format([double(A)])", "timestamp(A).getHours(string(B) + ':00')",
        ]),
        a in prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1), any::<i64>()],
        b in prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1), any::<i64>()],
    ) {
        let text = call.replace('A', &format!("({a})")).replace('B', &format!("({b})"));
        run(&text);
    }
}

/// Any JSON, also with types that no schema expects.
fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        any::<f64>().prop_map(Tree::Float),
        "[a-z0-9:./=T-]{0,12}".prop_map(Tree::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..5).prop_map(Tree::List);
        let keys =
            prop_oneof![Just("a"), Just("b"), Just("k"), Just("x-y"), Just("namespace"), Just("__x__"), Just("")];
        let map = proptest::collection::vec((keys, inner), 0..5).prop_map(|entries| {
            let mut tree = Tree::map_new();
            entries.into_iter().for_each(|(key, value)| tree.set(key, value));
            tree
        });
        prop_oneof![list, map]
    })
}

/// A schema with a field of each kind.
const SCHEMA: &str = r#"{"type": "object", "properties": {
    "a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "x-y"],
          "items": {"type": "object", "properties": {"k": {"type": "string"}, "x-y": {"type": "integer"}}}},
    "b": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "format": "date-time"}},
    "k": {"x-kubernetes-int-or-string": true},
    "x-y": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
    "namespace": {"type": "string", "format": "duration", "nullable": true}}}"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_that_contradict_their_schema_do_not_panic(tree in any_tree()) {
        let schema = Schema::from_tree(&api::json::decode(SCHEMA.as_bytes()).expect("JSON")).expect("a schema");
        let declared = schema.declare().expect("a type").with_name("selfType");
        let env = Env::new(Expressions::Stored).declared_variable("self", &declared);
        let rules = [
            "self == self",
            "self.a == self.a && self.a + self.a == self.a",
            "self.b == self.b + self.b || self.b.exists(x, x.getHours() > 1)",
            "self.k == 1 || self.k == 'a' || dyn(self.k) > 2",
            "self.x__dash__y.all(k, self.x__dash__y[k].size() > 0)",
            "self.namespace > duration('1s')",
            "has(self.a) && self.a[0].x__dash__y > 1",
            "self.?a[?0].?k.orValue('') == ''",
            "'%s'.format([self.a.map(x, x.k)]) == ''",
        ];
        for rule in rules {
            let program = env.compile(rule).expect(rule);
            if let Ok(this) = Value::read(&tree, Some(&schema)) {
                let evaluation = program.evaluate(&[("self", this.clone())], Budget::default());
                prop_assert!(!matches!(evaluation.result, Err(EvalError::CostLimitExceeded)));
                let _ = this.to_tree();
            }
        }
    }
}

#[test]
fn programs_are_shared_between_threads() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<cel::Program>();
    assert_shared::<Env>();
    assert_shared::<Schema>();
}

#[test]
fn deep_nests_are_refused_or_evaluated() {
    let nests: [(&str, &str, &str); 12] = [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1: ", "1", "}"),
        ("-(", "1", ")"),
        ("!(", "true", ")"),
        ("size([", "1", "])"),
        ("true ? ", "1", " : 1"),
        ("1 + (", "1", ")"),
        ("l.map(x, ", "x", ")"),
        ("optional.of(", "1", ")"),
        ("[1][", "0", "]"),
        ("d.a[", "0", "]"),
    ];
    for (open, inner, close) in nests {
        for depth in [10, 60, 120, 249, 251, 1000, 20_000] {
            run(&format!("{}{inner}{}", open.repeat(depth), close.repeat(depth)));
            run(&format!("{}{inner}", open.repeat(depth)));
        }
    }
    for chain in
        [".a", "[0]", " + 1", " && true", " == 1", ".size()", ".optMap(x, x)", ".map(x, x)", " ? 1 : 1", " in [1]"]
    {
        for length in [10, 100, 250, 251, 5000] {
            run(&format!("d{}", chain.repeat(length)));
            run(&format!("optional.of(1){}", chain.repeat(length)));
        }
    }
}

#[test]
fn long_expressions_compile_in_time() {
    for part in [
        "1 == 1 && ",
        "[1] == [2] || ",
        "'a' + 'b' == 'c' && ",
        "size([]) == 0 || ",
        "optional.none() == optional.of(1) || ",
    ] {
        let text = format!("{}true", part.repeat(99_000 / part.len()));
        assert_bounded(part, || assert!(run(&text).is_some(), "{part}"));
    }
    let mut list = String::from("n in [0");
    (1..15_000).for_each(|number| write!(list, ", {number}").expect("a string grows"));
    assert_bounded("a list", || assert_eq!(run(&format!("{list}]")), Some(Ok("bool".to_owned()))));
}

#[test]
fn too_long_expressions_are_refused() {
    let issues = env().compile(&"1".repeat(100_001)).expect_err("a limit");
    let text = "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000";
    assert_eq!(issues.to_string(), text);
}

#[test]
fn large_results_and_long_loops_are_stopped() {
    let cases = [
        // Strings that grow faster than their cost.
        "lists.range(20).map(x, s).join(s).replace('', s).size() > 0",
        "s.replace('', s).replace('', s).size() > 0",
        "s.replace('', s).split('').map(x, s).join(s).size() > 0",
        "('%s' + '%s').format([s.replace('', s), s.replace('', s)]).size() > 0",
        "'%.999999999f'.format([1.5]).size() > 0",
        "s.split('').map(x, s.split('')).flatten().map(x, s).join().size() > 0",
        // Comparisons and searches that cost less than they do.
        "cel.bind(big, lists.range(100000).map(x, [x]), lists.range(1000).all(x, [big] == [big]))",
        "cel.bind(big, lists.range(100000), lists.range(10000).all(x, [[big]] == [[big]]))",
        "lists.range(1000000).distinct().size() > 0",
        "lists.range(1000000).all(x, lists.range(1000000).all(y, true))",
        "lists.range(100000).all(x, lists.range(200).all(y, x + y >= 0))",
        "lists.range(100000).map(x, lists.range(100)).flatten().sort().size() > 0",
        "cel.bind(big, lists.range(100000), lists.range(10000).all(x, (big + big + [x]).size() > 0))",
        "cel.bind(big, lists.range(10000), sets.contains(big, big))",
        "cel.bind(big, lists.range(100000).map(x, ''), lists.range(10000).all(x, big.max() == ''))",
        "cel.bind(big, lists.range(100000).map(x, ''), lists.range(10000).all(x, big.join() == ''))",
        "cel.bind(big, lists.range(30000).transformMap(i, v, v), lists.range(10000).all(x, big.exists(k, true)))",
        // Regular expressions.
        "'(a{1000}){1000}'.matches('(((a{100}){100}){100})')",
        "s.matches('(x+x+)+y')",
        "s.matches('(.*)*(.*)*(.*)*(.*)*y')",
        "cel.bind(t, s.replace('x', s), t.matches('((x{50}){50}){50}'))",
        "lists.range(10000).all(i, 'a'.matches('(a{1000})' + string(i)))",
        "cel.bind(t, s.replace('x', s), t.findAll('x').size() > 0)",
        // A chain that doubles itself.
        "optional.of(s).optMap(a, a + a).optMap(a, a + a).optMap(a, a + a).optMap(a, a + a).optMap(a, a + a).hasValue()",
    ];
    for expression in cases {
        assert_bounded(expression, || drop(run(expression)));
    }
}

#[test]
fn an_evaluation_can_be_interrupted() {
    let program = env().compile("lists.range(100000).all(x, x >= 0)").expect("an expression");
    let empty: [(&str, Value<'static>); 0] = [];
    let evaluation = program.evaluate(&empty, Budget::new(u64::MAX).interrupt(&|| true));
    assert_eq!(evaluation.result.err(), Some(EvalError::Interrupted));
}
