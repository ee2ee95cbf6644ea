//! `metadata.initializers` of old Kubernetes: what a new object waits for before it becomes visible.

use api::Tree;
use api::field::{Errors, Path, Value};
use api::validation::fully_qualified_name;

/// Whether an object is still uninitialized.
pub fn is_pending(object: &Tree) -> bool {
    object.at("metadata").has("initializers")
}

/// The failure reported by an initializer; null if there is none.
pub fn failure(object: &Tree) -> &Tree {
    object.at("metadata.initializers.result")
}

/// An empty list is equivalent to none.
pub fn normalize(object: &mut Tree) {
    let initializers = object.at("metadata.initializers");
    if !initializers.is_null() && initializers.list("pending").is_empty() && !initializers.has("result") {
        object.child("metadata").remove("initializers");
    }
}

fn path_of(field: &str) -> String {
    format!("metadata.initializers{field}")
}

/// Validates initializers set by the creator.
pub fn validate(object: &Tree, errors: &mut Errors) {
    let pending = object.list("metadata.initializers.pending");
    let text = path_of(".pending");
    let path = Path::root(&text);
    for (index, initializer) in pending.iter().enumerate() {
        let name = initializer.str("name");
        errors.invalid_all(&path.index(index).field("name"), name, fully_qualified_name(name));
    }
    validate_result(failure(object), errors);
}

/// Only the first initializer may remove itself or report a failure; the list must not change otherwise.
pub fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let root = path_of("");
    let path = Path::root(&root);
    if !is_pending(object) && is_pending(old) && old.list("metadata.initializers.pending").len() <= 1 {
        return;
    }
    let (pending, before) = (names(object), names(old));
    let untouched = pending == before;
    let first_gone = before.split_first().is_some_and(|(_, rest)| pending == rest);
    match (is_pending(old), failure(old).is_null()) {
        (false, _) => {
            errors.invalid(&path, Value::from(&Tree::Null), "field is immutable once initialization has completed")
        }
        (true, false) if object.at("metadata.initializers") != old.at("metadata.initializers") => {
            errors.invalid(&path, Value::from(object.at("metadata.initializers")), "field is immutable")
        }
        _ if !untouched && !first_gone => {
            let why = "only the first pending initializer may be removed, and none be added";
            errors.invalid(&path.field("pending"), Value::from(object.at("metadata.initializers.pending")), why);
        }
        _ => validate_result(failure(object), errors),
    }
}

fn names(object: &Tree) -> Vec<&str> {
    object.list("metadata.initializers.pending").iter().map(|initializer| initializer.str("name")).collect()
}

fn validate_result(result: &Tree, errors: &mut Errors) {
    let status = result.str("status");
    if !result.is_null() && status != "Failure" {
        let text = path_of(".result.status");
        errors.invalid(&Path::root(&text), status, "must be 'Failure'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(initializers: &str) -> Tree {
        api::json::decode(format!(r#"{{"metadata":{{"initializers":{initializers}}}}}"#).as_bytes()).expect("JSON")
    }

    #[test]
    fn only_the_first_may_act() {
        let check = |new: &str, old: &str, want: &str| {
            let mut errors = Errors::new();
            validate_update(&object(new), &object(old), &mut errors);
            let got: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
            assert!(got.join(" ").contains(want) && got.is_empty() == want.is_empty(), "{new} {old}: {got:?}");
        };
        let two = r#"{"pending":[{"name":"a"},{"name":"b"}]}"#;
        check(two, two, "");
        check(r#"{"pending":[{"name":"b"}]}"#, two, "");
        check(r#"{"pending":[{"name":"a"}]}"#, two, "only the first");
        check(r#"{"pending":[{"name":"b"},{"name":"a"}]}"#, two, "only the first");
        check("null", two, "only the first");
        check("null", r#"{"pending":[{"name":"b"}]}"#, "");
        check(r#"{"pending":[{"name":"a"},{"name":"b"}],"result":{"status":"Failure"}}"#, two, "");
        check(r#"{"pending":[{"name":"a"},{"name":"b"}],"result":{"status":"Success"}}"#, two, "must be 'Failure'");
        check(two, "null", "immutable once initialization has completed");
    }

    #[test]
    fn an_empty_list_is_none() {
        let mut bare = object(r#"{"pending":[]}"#);
        normalize(&mut bare);
        assert!(!is_pending(&bare));
        let mut kept = object(r#"{"pending":[{"name":"a"}]}"#);
        normalize(&mut kept);
        assert!(is_pending(&kept));
    }
}
