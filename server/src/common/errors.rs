//! Several error messages as one.

/// The messages without duplicates, in brackets if there are several.
pub(crate) fn join_errors(errors: Vec<String>) -> String {
    let mut seen: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !seen.contains(&error) {
            seen.push(error);
        }
    }
    match seen.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
