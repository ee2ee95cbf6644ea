//! Settings by flags, variables and a file, and their reference.

use std::process::{Command, Output};

use crate::support::{BINARY, root};

fn tiphys(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).envs(variables.iter().copied()).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text of a document below a heading, up to the next one.
fn section(heading: &str, body: &str) -> String {
    format!("\n## {heading}\n\n{body}")
}

#[test]
fn reference_is_that_of_the_binary() {
    let path = root().join("docs/configuration.md");
    let document = std::fs::read_to_string(&path).expect("the document");
    let own = document.split("\n## ").next().expect("a text").trim_end();
    let mut want = format!("{own}\n");
    for command in ["up", "server", "agent"] {
        let output = tiphys(&["config", "explain", command, "--markdown"], &[]);
        want.push_str(&section(&format!("tiphys {command}"), &text(&output.stdout)));
    }
    if std::env::var_os("TIPHYS_BLESS").is_some() {
        std::fs::write(&path, &want).expect("the document");
    }
    assert!(document == want, "docs/configuration.md is out of date: TIPHYS_BLESS=1 writes it");
}

#[test]
fn mistakes_are_reported_with_their_position() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tiphys.yaml");
    std::fs::write(&path, "port: 7443\nfake-node: 3\n").expect("a file");
    let file = path.to_str().expect("text");
    for words in [vec!["config", "check", file], vec!["up", "--config", file]] {
        let output = tiphys(&words, &[]);
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && error.contains("tiphys.yaml:2:1: fake-node: unknown key; is fake-nodes meant?"),
            "{error}"
        );
    }
    std::fs::write(&path, "port: 7443\nfake-nodes: 3\n").expect("a file");
    let output = tiphys(&["config", "check", file], &[]);
    assert!(text(&output.stdout).contains("2 settings of `tiphys up`, all valid"), "{output:?}");
    let printed = text(&tiphys(&["config", "print"], &[("TIPHYS_CONFIG", file), ("TIPHYS_PORT", "8443")]).stdout);
    assert!(printed.contains("port: 8443  # $TIPHYS_PORT") && printed.contains("fake-nodes: 3  # "), "{printed}");
}
