//! The rules about source files that no lint of the compiler checks.

use std::fs;

use crate::layers::{crates, production_sources};
use crate::support::root;

/// The most lines of a file, without its tests.
const MAX_LINES: usize = 500;

#[test]
fn files_are_short() {
    let mut failures = Vec::new();
    for source in crates().iter().flat_map(|name| production_sources(&root().join(name).join("src"))) {
        let text = fs::read_to_string(&source.path).expect("the source can be read");
        let lines = lines_before_tests(&text);
        if lines > MAX_LINES {
            failures.push(format!("{}: {lines} lines, more than {MAX_LINES}", source.path.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The number of lines before the tests, which are at the end of a file.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(is_tests).unwrap_or(lines.len())
}

#[test]
fn counts_the_lines_before_tests() {
    for (text, expected) in [
        ("", 0),
        ("a\nb\n", 2),
        ("a\n#[cfg(test)]\nmod tests {\n}\n", 1),
        ("a\n#[cfg(test)]\nmod tests;\nb\n", 4),
        ("#[cfg(test)]\nfn only_for_tests() {}\n", 2),
    ] {
        assert_eq!(lines_before_tests(text), expected, "{text}");
    }
}

/// The lint is in the libraries' roots: in the workspace's list it would also judge the `pub` of tests.
#[test]
fn libraries_warn_of_public_items_that_nothing_exports() {
    for name in crates() {
        let library = root().join(&name).join("src/lib.rs");
        let Ok(text) = fs::read_to_string(&library) else { continue };
        assert!(text.contains("#![warn(unreachable_pub)]"), "{} lacks #![warn(unreachable_pub)]", library.display());
    }
}
