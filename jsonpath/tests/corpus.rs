//! Templates whose results were recorded with kubectl (`corpus/record.py`).

use api::{Tree, json};
use jsonpath::JsonPath;

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).expect("the corpus is JSON")
}

/// What is recorded of a case: output, error or parse error.
fn evaluate(template: &str, object: &Tree, allow_missing_keys: bool) -> (&'static str, String) {
    let path = match JsonPath::parse(template) {
        Ok(path) => path.allow_missing_keys(allow_missing_keys),
        Err(error) => return ("parse", error.to_string()),
    };
    match path.execute(object) {
        Ok(output) => ("output", output),
        Err(error) => ("error", error.to_string()),
    }
}

#[test]
fn results_are_those_of_kubectl() {
    let object = read(include_str!("corpus/object.json"));
    let cases = read(include_str!("corpus/cases.json"));
    let mut differences = Vec::new();
    for case in cases.as_list().expect("a list") {
        let template = case.str("template");
        for (allow, want) in [(true, case), (false, case.get("strict").unwrap_or(case))] {
            let (kind, text) = evaluate(template, &object, allow);
            if want.get(kind).and_then(Tree::as_str) != Some(&text) {
                differences.push(format!("{template:?}\n  want {}\n  got {kind} {text:?}", jsonpath::text_of(want)));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn json_output_is_indented() {
    let object = read(r#"{"items":[{"a":1,"b":[]},{"a":"<x>","b":{"c":null}}]}"#);
    let path = JsonPath::parse("{.items[*]['a','b']}{.missing}").expect("a template").allow_missing_keys(true);
    let want = "[\n    1,\n    \"\\u003cx\\u003e\",\n    [],\n    {\n        \"c\": null\n    }\n]\n[]\n";
    assert_eq!(path.execute_json(&object).as_deref(), Ok(want));
}
