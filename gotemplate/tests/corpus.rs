//! Templates whose results were recorded with kubectl (`jsonpath/tests/corpus/record.py`).

use api::{Tree, json};
use gotemplate::Template;

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).expect("the corpus is JSON")
}

/// What is recorded of a case: a parse error, or the output and perhaps an error.
fn evaluate(text: &str, object: &Tree, allow_missing_keys: bool) -> Tree {
    let template = match Template::parse("output", text) {
        Ok(template) => template.allow_missing_keys(allow_missing_keys),
        Err(error) => return api::tree! { "parse" => error.to_string() },
    };
    let mut out = Vec::new();
    let result = template.execute(object, &mut out);
    let mut case = api::tree! { "output" => String::from_utf8_lossy(&out).into_owned() };
    if let Err(error) = result {
        case.set("error", error.to_string());
    }
    case
}

#[test]
fn results_are_those_of_kubectl() {
    let object = read(include_str!("corpus/object.json"));
    let cases = read(include_str!("corpus/cases.json"));
    let mut differences = Vec::new();
    for case in cases.as_list().expect("a list") {
        let template = case.str("template");
        for (allow, want) in [(true, case), (false, case.get("strict").unwrap_or(case))] {
            let got = evaluate(template, &object, allow);
            if ["parse", "output", "error"].into_iter().any(|key| want.get(key) != got.get(key)) {
                let text = |tree: &Tree| String::from_utf8_lossy(&json::encode(tree, None)).into_owned();
                let mut want = want.clone();
                want.remove("template");
                want.remove("strict");
                differences.push(format!("{template:?}\n  want {}\n  got  {}", text(&want), text(&got)));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
