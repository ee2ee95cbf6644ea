//! The glossary of CONTRIBUTING.md: words with one meaning, for which the field has an established term, are not used.

use std::fs;
use std::process::Command;

use crate::support::root;

/// A word to avoid, and its replacement.
struct Rule {
    word: &'static str,
    instead: &'static str,
}

const fn rule(word: &'static str, instead: &'static str) -> Rule {
    Rule { word, instead }
}

/// Words with one meaning only: a rule must not raise false alarms.
const RULES: &[Rule] = &[
    rule("folder", "directory"),
    rule("folders", "directories"),
    rule("control group", "cgroup"),
    rule("control groups", "cgroups"),
    rule("meters", "metrics"),
    rule("node agent", "kubelet"),
    rule("in the house", "built-in"),
    rule("nothing but behave", "fake nodes"),
    rule("it is tried again", "retrying"),
    rule("makes no sense", "invalid"),
    rule("are no names", "invalid names"),
    rule("the way of", "the life of"),
    rule("whoever", "the caller, the client"),
    rule("somebody", "the caller, the client"),
];

/// Files that have to name the words, or that hold upstream's text.
const EXCEPTIONS: &[&str] = &["CHANGELOG.md", "CONTRIBUTING.md", "tiphys/tests/e2e/vocabulary.rs"];

#[test]
fn uses_the_words_of_the_glossary() {
    let mut failures = Vec::new();
    for file in tracked_files() {
        for rule in RULES.iter().filter(|rule| contains_word(&file, rule.word)) {
            failures.push(format!("{file}: name it {:?}, not {:?}", rule.instead, rule.word));
        }
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            for rule in RULES.iter().filter(|rule| contains_word(line, rule.word)) {
                failures.push(format!("{file}:{number}: write {:?}, not {:?}", rule.instead, rule.word));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn tracked_files() -> Vec<String> {
    let output = Command::new("git").arg("ls-files").current_dir(root()).output().expect("git starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let files: Vec<String> = text.lines().filter(|file| !EXCEPTIONS.contains(file)).map(str::to_string).collect();
    assert!(files.len() > 500, "only {} files", files.len());
    files
}

/// Whether a line contains a word, not as a part of another, in upper or lower case. An underscore is a blank.
fn contains_word(line: &str, word: &str) -> bool {
    let line = line.to_lowercase().replace('_', " ");
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[test]
fn finds_whole_words_only() {
    for (line, word, expected) in [
        ("the folder of a pod", "folder", true),
        ("Folder_name", "folder", true),
        ("a subfolder", "folder", false),
        ("folders", "folder", false),
        ("a control group", "control group", true),
        ("mod node_agent;", "node agent", true),
        ("testkit/tests/node_agent/mod.rs", "node agent", true),
    ] {
        assert_eq!(contains_word(line, word), expected, "{line}: {word}");
    }
}
