//! Typical rules are fast: an object is read in place, and a program has its names resolved.

use std::time::{Duration, Instant};

use cel::{Budget, Env, Expressions, Schema, Value};

/// The minimum time of one evaluation; a loaded machine only makes it longer.
fn measure(rule: &str) -> Duration {
    let schema = api::json::decode(
        br#"{"type": "object", "properties": {
            "replicas": {"type": "integer"}, "maxReplicas": {"type": "integer"}, "name": {"type": "string"},
            "items": {"type": "array", "items": {"type": "string"}}}}"#,
    );
    let schema = Schema::from_tree(&schema.expect("JSON")).expect("a schema");
    let declared = schema.declare().expect("a type").with_name("selfType");
    let program = Env::new(Expressions::New).declared_variable("self", &declared).compile(rule).expect(rule);
    let items = api::list!["a", "bc", "def", "ghij", "klmno"];
    let object = api::tree! { "replicas" => 2, "maxReplicas" => 3, "name" => "x-1", "items" => items };
    let activation = [("self", Value::read(&object, Some(&schema)).expect("an object"))];
    let batch = || {
        let start = Instant::now();
        for _ in 0..200 {
            let evaluation = program.evaluate(&activation, Budget::default());
            assert_eq!(evaluation.result.map(|value| value.as_bool()), Ok(Some(true)));
        }
        start.elapsed() / 200
    };
    (0..50).map(|_| batch()).min().unwrap_or_default()
}

#[test]
fn typical_rules_take_microseconds() {
    let limit = Duration::from_micros(if cfg!(debug_assertions) { 500 } else { 2 });
    let rules = ["self.replicas <= self.maxReplicas", "self.name.startsWith('x') && self.items.all(i, i.size() < 10)"];
    for rule in rules {
        let time = measure(rule);
        println!("{rule}: {time:?}");
        assert!(time < limit, "{rule}: {time:?}");
    }
}
