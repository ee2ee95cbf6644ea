use api::json;

use super::*;

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Errors and warnings of the rules of a schema for a value, and the stored value.
#[derive(Clone, Copy)]
struct Case<'a> {
    schema: &'a str,
    old: Option<&'a str>,
    value: &'a str,
    ratchets: bool,
}

impl<'a> Case<'a> {
    fn create(schema: &'a str, value: &'a str) -> Case<'a> {
        Case { schema, old: None, value, ratchets: false }
    }

    fn update(schema: &'a str, old: &'a str, value: &'a str) -> Case<'a> {
        Case { schema, old: Some(old), value, ratchets: true }
    }

    fn run(self) -> (Vec<String>, Vec<String>) {
        let set = RuleSet::for_value(&read(self.schema)).expect("a schema with rules");
        let (value, old) = (read(self.value), self.old.map(read));
        let mut errors = Errors::new();
        let options = EvaluationOptions { ratchets: self.ratchets, interrupt: None };
        evaluate(&set, &value, old.as_ref(), options, &Path::root("spec"), &mut errors);
        (errors.iter().map(ToString::to_string).collect(), errors.warnings().to_vec())
    }

    fn gives(self, errors: &[&str]) {
        self.gives_both(errors, &[]);
    }

    fn warns(self, warnings: &[&str]) {
        self.gives_both(&[], warnings);
    }

    fn gives_both(self, errors: &[&str], warnings: &[&str]) {
        let (got, warned) = self.run();
        assert_eq!((got, warned), (owned(errors), owned(warnings)), "{} {:?} {}", self.schema, self.old, self.value);
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn quoted(text: &str) -> String {
    String::from_utf8(json::encode(&Tree::from(text), None)).expect("UTF-8")
}

/// A schema with one rule: `{"rule": RULE, MORE}`.
fn ruled(schema: &str, rule: &str, more: &str) -> String {
    let rule = quoted(rule);
    let more = if more.is_empty() { String::new() } else { format!(",{more}") };
    format!(r#"{{{schema},"x-kubernetes-validations":[{{"rule":{rule}{more}}}]}}"#)
}

const INTEGER: &str = r#""type":"integer""#;

#[test]
fn violations_carry_the_message_of_their_rule() {
    let cases = [
        ("", "spec: Invalid value: 0: failed rule: self > 0"),
        (r#""message":"must be positive""#, "spec: Invalid value: 0: must be positive"),
        (r#""message":"  must be positive ""#, "spec: Invalid value: 0: must be positive"),
        (r#""messageExpression":"'got %d'.format([self])""#, "spec: Invalid value: 0: got 0"),
        (r#""message":"unused","messageExpression":"'got %d'.format([self])""#, "spec: Invalid value: 0: got 0"),
    ];
    for (more, want) in cases {
        let schema = ruled(INTEGER, "self > 0", more);
        Case::create(&schema, "0").gives(&[want]);
        Case::create(&schema, "1").gives(&[]);
    }
    // A rule of several lines needs a message; without one the text is shown trimmed.
    let schema = ruled(INTEGER, " self > 0 ", "");
    Case::create(&schema, "0").gives(&["spec: Invalid value: 0: failed rule: self > 0"]);
}

#[test]
fn unusable_results_of_message_expressions_fall_back() {
    let unusable = ["'%d'.format([1 / self])", "''", "' '", "'a\\nb'", "'x'.split('').map(c, c)[1]"];
    for expression in unusable {
        let expression = quoted(expression);
        let schema = ruled(INTEGER, "self > 0", &format!(r#""message":"fallback","messageExpression":{expression}"#));
        Case::create(&schema, "0").gives(&["spec: Invalid value: 0: fallback"]);
        let schema = ruled(INTEGER, "self > 0", &format!(r#""messageExpression":{expression}"#));
        Case::create(&schema, "0").gives(&["spec: Invalid value: 0: failed rule: self > 0"]);
    }
}

#[test]
fn messages_have_a_maximum_length() {
    let schema = ruled(
        r#""type":"string","maxLength":6000"#,
        "self == ''",
        r#""message":"fallback","messageExpression":"self""#,
    );
    for (length, is_used) in [(5120, true), (5121, false)] {
        let text = "a".repeat(length);
        let message = if is_used { &text } else { "fallback" };
        let want = format!(r#"spec: Invalid value: "{text}": {message}"#);
        Case::create(&schema, &format!(r#""{text}""#)).gives(&[&want]);
    }
}

#[test]
fn reasons_select_the_error() {
    let cases = [
        ("FieldValueInvalid", "spec: Invalid value: 0: bad", r#"spec: Invalid value: bad"#),
        ("FieldValueForbidden", "spec: Forbidden: bad", "spec: Forbidden: bad"),
        ("FieldValueRequired", "spec: Required value: bad", "spec: Required value: bad"),
        ("FieldValueDuplicate", "spec: Duplicate value: 0", "spec: Duplicate value"),
    ];
    for (reason, scalar, compound) in cases {
        let more = format!(r#""message":"bad","reason":"{reason}""#);
        Case::create(&ruled(INTEGER, "self > 0", &more), "0").gives(&[scalar]);
        let list = r#""type":"array","maxItems":3,"items":{"type":"integer"}"#;
        Case::create(&ruled(list, "self.size() > 1", &more), "[1]").gives(&[compound]);
    }
}

const PAIR: &str = r#""type":"object","properties":{
    "a":{"type":"string","maxLength":8},
    "inner":{"type":"object","properties":{"x-y":{"type":"string","maxLength":8}}}}"#;

#[test]
fn field_paths_are_below_the_value() {
    let cases = [
        (".a", "spec.a: Invalid value: here"),
        (".inner['x-y']", "spec.inner.x-y: Invalid value: here"),
        ("", "spec: Invalid value: here"),
    ];
    for (field_path, want) in cases {
        let schema = ruled(PAIR, "has(self.a)", &format!(r#""message":"here","fieldPath":"{field_path}""#));
        Case::create(&schema, r#"{"inner":{}}"#).gives(&[want]);
    }
    let map = r#""type":"object","maxProperties":4,"additionalProperties":{"type":"string","maxLength":8}"#;
    let schema = ruled(map, "!('k' in self)", r#""message":"here","fieldPath":"['k']""#);
    Case::create(&schema, r#"{"k":"v"}"#).gives(&["spec.[k]: Invalid value: here"]);
}

#[test]
fn all_rules_at_and_below_a_value_are_evaluated() {
    let schema = r#"{"type":"array","maxItems":4,
        "x-kubernetes-validations":[{"rule":"self.size() < 2","message":"too many"},{"rule":"false","message":"never"}],
        "items":{"type":"object","properties":{"n":{"type":"integer",
            "x-kubernetes-validations":[{"rule":"self > 0","messageExpression":"'got %d'.format([self])"}]}}}}"#;
    Case::create(schema, r#"[{"n":1},{"n":0},{"n":-1},{}]"#).gives(&[
        "spec: Invalid value: too many",
        "spec: Invalid value: never",
        "spec[1].n: Invalid value: 0: got 0",
        "spec[2].n: Invalid value: -1: got -1",
    ]);
    let schema = r#"{"type":"object","maxProperties":4,"additionalProperties":{"type":"integer",
        "x-kubernetes-validations":[{"rule":"self > 0","message":"low"}]}}"#;
    Case::create(schema, r#"{"a":0,"b":1}"#).gives(&["spec[a]: Invalid value: 0: low"]);
    // A null has no rules, whatever its schema says.
    Case::create(&ruled(r#""type":"integer","nullable":true"#, "false", ""), "null").gives(&[]);
    // `if` is a word of the language, and `x-y` no identifier.
    let schema = r#"{"type":"object","properties":{
        "if":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 0"}]},
        "x-y":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}}}"#;
    Case::create(schema, r#"{"if":0,"x-y":1}"#).gives(&[
        "spec.if: Invalid value: 0: failed rule: self > 0",
        "spec.x-y: Invalid value: 1: failed rule: self > 1",
    ]);
}

#[test]
fn transition_rules_need_a_stored_value() {
    let schema = ruled(INTEGER, "self >= oldSelf", r#""messageExpression":"'was %d'.format([oldSelf])""#);
    Case::create(&schema, "1").gives(&[]);
    Case::update(&schema, "null", "1").gives(&[]);
    Case::update(&schema, "1", "1").gives(&[]);
    Case::update(&schema, "1", "2").gives(&[]);
    Case::update(&schema, "2", "1").gives(&["spec: Invalid value: 1: was 2"]);
}

#[test]
fn optional_old_self_makes_rules_run_at_creation() {
    let text = r#""type":"string","maxLength":8"#;
    let more = r#""message":"set once","optionalOldSelf":true"#;
    let once = ruled(text, "!oldSelf.hasValue() || oldSelf.value() == self", more);
    Case::create(&once, r#""a""#).gives(&[]);
    Case::update(&once, r#""a""#, r#""a""#).gives(&[]);
    Case::update(&once, r#""a""#, r#""b""#).gives(&[r#"spec: Invalid value: "b": set once"#]);
    let new = ruled(text, "oldSelf.hasValue() || self == 'new'", r#""message":"not new","optionalOldSelf":true"#);
    Case::create(&new, r#""old""#).gives(&[r#"spec: Invalid value: "old": not new"#]);
    Case::update(&new, r#""new""#, r#""old""#).gives(&[]);
}

/// A list of objects with an integer `v` that may only grow.
fn growing(list: &str) -> String {
    format!(
        r#"{{"type":"array","maxItems":5,{list}"items":{{"type":"object","required":["k"],"properties":{{
            "k":{{"type":"string","maxLength":8}},"l":{{"type":"string","maxLength":8}},
            "v":{{"type":"integer","x-kubernetes-validations":[{{"rule":"self >= oldSelf","message":"shrinks"}}]}}}}}}}}"#
    )
}

#[test]
fn items_of_map_lists_are_correlated_by_their_keys() {
    let by_key = growing(r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"#);
    let old = r#"[{"k":"a","v":1},{"k":"b","v":5}]"#;
    let cases: [(&str, &[&str]); 5] = [
        (r#"[{"k":"b","v":5},{"k":"a","v":1}]"#, &[]),
        (r#"[{"k":"b","v":4},{"k":"a","v":1}]"#, &["spec[0].v: Invalid value: 4: shrinks"]),
        (r#"[{"k":"c","v":0},{"k":"a","v":0}]"#, &["spec[1].v: Invalid value: 0: shrinks"]),
        (r#"[{"k":"b"}]"#, &[]),
        ("[]", &[]),
    ];
    for (value, want) in cases {
        Case::update(&by_key, old, value).gives(want);
    }
    let by_two = growing(r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","l"],"#);
    let old = r#"[{"k":"a","l":"x","v":1},{"k":"a","l":"y","v":5}]"#;
    Case::update(&by_two, old, r#"[{"k":"a","l":"y","v":4}]"#).gives(&["spec[0].v: Invalid value: 4: shrinks"]);
    Case::update(&by_two, old, r#"[{"k":"a","l":"x","v":4}]"#).gives(&[]);
    // Stored before its keys were unique: neither item is the old one.
    let twice = r#"[{"k":"a","v":9},{"k":"a","v":8}]"#;
    Case::update(&by_key, twice, r#"[{"k":"a","v":1}]"#).gives(&[]);
    // Items of other lists have no old value.
    Case::update(&growing(""), r#"[{"k":"a","v":5}]"#, r#"[{"k":"a","v":4}]"#).gives(&[]);
}

#[test]
fn unchanged_violations_are_warnings() {
    let rule = r#""x-kubernetes-validations":[{"rule":"self != 'bad'","message":"is bad"}]"#;
    let text = format!(r#"{{"type":"string","maxLength":8,{rule}}}"#);
    Case::update(&text, r#""bad""#, r#""bad""#).warns(&[r#"spec: Invalid value: "bad": is bad"#]);
    Case::update(&text, r#""good""#, r#""bad""#).gives(&[r#"spec: Invalid value: "bad": is bad"#]);
    let strict = Case { ratchets: false, ..Case::update(&text, r#""bad""#, r#""bad""#) };
    strict.gives(&[r#"spec: Invalid value: "bad": is bad"#]);
    // Items without keys are unchanged only if their list is.
    let list = format!(r#"{{"type":"array","maxItems":5,"items":{text}}}"#);
    Case::update(&list, r#"["bad"]"#, r#"["bad"]"#).warns(&[r#"spec[0]: Invalid value: "bad": is bad"#]);
    Case::update(&list, r#"["bad"]"#, r#"["bad","ok"]"#).gives(&[r#"spec[0]: Invalid value: "bad": is bad"#]);
}

#[test]
fn items_of_map_lists_are_ratcheted_by_their_keys() {
    let schema = r#"{"type":"array","maxItems":5,
        "x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
        "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string","maxLength":8},
            "v":{"type":"integer"},"w":{"type":"integer"}},
            "x-kubernetes-validations":[{"rule":"self.v > 0","message":"low"}]}}"#;
    let old = r#"[{"k":"a","v":0},{"k":"b","v":1}]"#;
    Case::update(schema, old, r#"[{"k":"b","v":2},{"k":"a","v":0}]"#).warns(&["spec[1]: Invalid value: low"]);
    Case::update(schema, old, r#"[{"k":"a","v":0,"w":1}]"#).gives(&["spec[0]: Invalid value: low"]);
    Case::update(schema, old, r#"[{"k":"c","v":0}]"#).gives(&["spec[0]: Invalid value: low"]);
}

#[test]
fn transition_rules_are_never_ratcheted() {
    let schema = ruled(r#""type":"string","maxLength":8"#, "oldSelf == 'good' && self == 'good'", r#""message":"no""#);
    Case::update(&schema, r#""bad""#, r#""bad""#).gives(&[r#"spec: Invalid value: "bad": no"#]);
}

#[test]
fn failures_name_the_rule() {
    let list = r#""type":"array","maxItems":3,"items":{"type":"integer"}"#;
    Case::create(&ruled(list, "self[1] > 0", ""), "[1]")
        .gives(&[r#"spec: Invalid value: "array": index out of bounds: 1 evaluating rule: self[1] > 0"#]);
    Case::create(&ruled(list, "self[1] > 0", r#""message":"two needed""#), "[1]")
        .gives(&[r#"spec: Invalid value: "array": index out of bounds: 1 evaluating rule: two needed"#]);
    Case::create(&ruled(PAIR, "self.a == 'x'", ""), "{}")
        .gives(&[r#"spec: Invalid value: "object": no such key: a evaluating rule: self.a == 'x'"#]);
    Case::create(&ruled(INTEGER, "1 / self > 0", ""), "0")
        .gives(&[r#"spec: Invalid value: "integer": division by zero evaluating rule: 1 / self > 0"#]);
    let (errors, _) = Case::create(&ruled(INTEGER, "self.missing()", ""), "0").run();
    assert!(
        errors[0].starts_with(r#"spec: Invalid value: "integer": rule compile error: compilation failed: "#),
        "{errors:?}"
    );
}

/// Ones, and a rule that costs some five units for each pair of them.
fn quadratic(rules: usize) -> (String, String) {
    let rule = |n: usize| format!(r#"{{"rule":"self.all(x, self.all(z, x + z >= -{n}))"}}"#);
    let rules: Vec<String> = (0..rules).map(rule).collect();
    let schema = format!(
        r#"{{"type":"array","maxItems":700,"items":{{"type":"integer"}},"x-kubernetes-validations":[{}]}}"#,
        rules.join(",")
    );
    (schema, format!("[{}]", vec!["1"; 300].join(",")))
}

#[test]
fn one_call_has_a_cost_limit() {
    let (schema, _) = quadratic(2);
    let value = format!("[{}]", vec!["1"; 700].join(","));
    // The second rule is not evaluated any more.
    Case::create(&schema, &value).gives(&[
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules \
         will be run due to call cost exceeds limit for rule: self.all(x, self.all(z, x + z >= -0))",
    ]);
}

#[test]
fn rules_of_an_object_share_a_budget() {
    let exhausted = format!(r#"spec: Invalid value: "array": {EXHAUSTED}"#);
    let cost = {
        let (schema, value) = quadratic(1);
        let set = RuleSet::for_value(&read(&schema)).expect("a rule");
        let (mut errors, value) = (Errors::new(), read(&value));
        let mut evaluator = Evaluator::new(None, &mut errors);
        let subject = Subject { value: &value, old: None, ratchet: Ratchet::default() };
        assert!(evaluator.node(&set, subject, &Path::root("spec")).is_ok());
        cel::limits::RUNTIME_COST_BUDGET - evaluator.left
    };
    assert_eq!(cel::limits::RUNTIME_COST_BUDGET, 10_000_000);
    let affordable = usize::try_from(cel::limits::RUNTIME_COST_BUDGET / cost).expect("a small number");
    let (schema, value) = quadratic(affordable);
    Case::create(&schema, &value).gives(&[]);
    let (schema, value) = quadratic(affordable + 3);
    Case::create(&schema, &value).gives(&[&exhausted]);
}

#[test]
fn message_expressions_spend_the_budget_too() {
    let rule = |n: usize| {
        format!(
            r#"{{"rule":"self.size() < {n}","messageExpression":"self.all(x, self.all(z, x + z >= -{n})) ? 'm' : 'n'"}}"#
        )
    };
    let rules: Vec<String> = (0..40).map(rule).collect();
    let schema = format!(
        r#"{{"type":"array","maxItems":700,"items":{{"type":"integer"}},"x-kubernetes-validations":[{}]}}"#,
        rules.join(",")
    );
    let (errors, _) = Case::create(&schema, &quadratic(0).1).run();
    let (last, before) = errors.split_last().expect("errors");
    assert!(!before.is_empty() && before.iter().all(|error| error == "spec: Invalid value: m"), "{errors:?}");
    assert_eq!(
        last,
        "spec: Invalid value: \"array\": messageExpression evaluation failed due to running out of cost budget, no \
         further validation rules will be run"
    );
}

#[test]
fn rules_of_the_whole_object_see_names_of_the_metadata() {
    let schema = r#"{"type":"object","properties":{"spec":{"type":"object"}},
        "x-kubernetes-validations":[{"rule":"self.metadata.name == 'only'","message":"one object"}]}"#;
    let set = RuleSet::for_object(&read(schema)).expect("a rule");
    for (name, want) in [("only", 0), ("other", 1)] {
        let object = read(&format!(r#"{{"apiVersion":"e.com/v1","kind":"K","metadata":{{"name":"{name}"}}}}"#));
        let mut errors = Errors::new();
        evaluate(&set, &object, None, EvaluationOptions::default(), &Path::nil(), &mut errors);
        assert_eq!(errors.len(), want, "{name}: {:?}", errors.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
}

#[test]
fn interrupted_evaluations_end_with_an_error() {
    let (schema, value) = quadratic(3);
    let (set, value) = (RuleSet::for_value(&read(&schema)).expect("rules"), read(&value));
    let calls = std::cell::Cell::new(0);
    let interrupt = || {
        calls.set(calls.get() + 1);
        calls.get() > 1
    };
    let options = EvaluationOptions { ratchets: false, interrupt: Some(&interrupt) };
    let mut errors = Errors::new();
    evaluate(&set, &value, None, options, &Path::root("spec"), &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let rule = "self.all(x, self.all(z, x + z >= -0))";
    assert_eq!(texts, [format!(r#"spec: Invalid value: "array": operation interrupted evaluating rule: {rule}"#)]);
    assert_eq!(calls.get(), 2, "no rule is evaluated after the interruption");
}

#[test]
fn rules_of_an_object_share_the_time_too() {
    // A loop over a computed list costs little more than the list.
    let rule = r#"{"rule":"lists.range(20000).all(x, lists.range(200).all(y, true)) || self > 0"}"#;
    let schema = format!(r#"{{"type":"integer","x-kubernetes-validations":[{}]}}"#, [rule; 12].join(","));
    let (errors, _) = Case::create(&schema, "0").run();
    assert_eq!(errors.len(), 1, "{errors:?}");
}
