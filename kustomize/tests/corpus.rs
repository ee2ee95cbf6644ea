//! Directories whose results were recorded with kubectl (`corpus/record.py`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use api::{Tree, json};
use kustomize::{Files, Options};

/// Files in memory below /ROOT.
struct Memory(BTreeMap<PathBuf, Vec<u8>>);

impl Memory {
    fn of(case: &Tree) -> Memory {
        let file = |(path, text): (&str, &Tree)| {
            (Path::new("/ROOT").join(path), text.as_str().unwrap_or_default().as_bytes().to_vec())
        };
        Memory(case.map("files").iter().map(file).collect())
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let path: PathBuf = path.components().collect();
        let exists = self.0.contains_key(&path) || self.is_directory(&path);
        exists.then_some(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.0.keys().any(|file| file != path && file.starts_with(path))
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        self.read(path).map(|bytes| bytes.len() as u64)
    }
}

/// Directories as they are written in errors.
fn with_root(text: &str) -> String {
    text.replace("/ROOT", "ROOT")
}

#[test]
fn results_are_those_of_kubectl() {
    let cases = json::decode(include_bytes!("corpus/cases.json")).expect("the corpus is JSON");
    let mut differences = Vec::new();
    for case in cases.as_list().expect("a list") {
        let directory = Path::new("/ROOT").join(case.str("target"));
        let got = match kustomize::build(&Memory::of(case), &directory, Options::default()) {
            Ok(built) => {
                let warnings = built.warnings.into_iter().map(Tree::from).collect::<Vec<_>>();
                let same = case.list("warnings") == warnings;
                let output = String::from_utf8(kustomize::to_yaml(&built.resources)).expect("YAML is text");
                ("output", if same { output } else { format!("warnings: {warnings:?}\n{output}") })
            }
            Err(error) => ("error", with_root(&error.to_string()).trim_end().to_string()),
        };
        let want = case.get("own").or(case.get(got.0)).and_then(Tree::as_str);
        if want != Some(&got.1) {
            let other = if got.0 == "error" { case.str("output") } else { case.str("error") };
            differences.push(format!("{}: {}", case.str("name"), difference(want.unwrap_or(other), &got.1)));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// The first lines that differ.
fn difference(want: &str, got: &str) -> String {
    let (want, got): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    let at = want.iter().zip(&got).take_while(|(want, got)| want == got).count();
    let part = |lines: &[&str]| {
        lines.iter().skip(at.saturating_sub(2)).take(8).map(|line| format!("\n    {line}")).collect::<String>()
    };
    format!("line {}\n  want{}\n  got{}", at + 1, part(&want), part(&got))
}
