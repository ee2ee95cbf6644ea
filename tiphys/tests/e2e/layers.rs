//! The layers inside each crate: top-level modules do not import each other in cycles.
//!
//! Imports are read from the sources: paths that begin with `crate::` or with enough `super::` to reach the crate's
//! root, outside of comments, strings and `#[cfg(test)]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

#[test]
fn modules_do_not_import_each_other_in_cycles() {
    let mut failures = Vec::new();
    for name in crates() {
        let cycles = Imports::read(&root().join(&name).join("src")).cycles();
        failures.extend(cycles.iter().map(|cycle| format!("{name}: {cycle}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The directories of the workspace's crates.
pub fn crates() -> Vec<String> {
    let entries = fs::read_dir(root()).expect("the workspace can be read");
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("Cargo.toml").exists() && entry.path().join("src").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() > 15, "only {names:?}");
    names
}

/// Which top-level module imports which, with one file as the proof.
#[derive(Default)]
struct Imports {
    modules: BTreeSet<String>,
    /// Names that the crate's root re-exports, and the module that each is from.
    exports: BTreeMap<String, String>,
    edges: BTreeMap<String, BTreeMap<String, PathBuf>>,
}

impl Imports {
    fn read(src: &Path) -> Imports {
        let sources = production_sources(src);
        let mut imports = Imports::default();
        imports.modules.extend(sources.iter().filter_map(|source| source.top.clone()));
        for source in sources.iter().filter(|source| source.top.is_none()) {
            imports.add_exports(&source.code);
        }
        for source in &sources {
            imports.add_edges(source);
        }
        imports
    }

    /// Notes `pub use module::{A, b::B}` of the crate's root.
    fn add_exports(&mut self, code: &str) {
        for statement in code.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            let Some((module, names)) = statement.split_once("::") else { continue };
            let module = module.trim();
            if !self.modules.contains(module) {
                continue;
            }
            for name in words(names) {
                self.exports.insert(name.to_string(), module.to_string());
            }
        }
    }

    fn add_edges(&mut self, source: &Source) {
        let Some(top) = &source.top else { return };
        for name in source.imported_names() {
            let module = self.exports.get(&name).filter(|_| !self.modules.contains(&name)).unwrap_or(&name).clone();
            if self.modules.contains(&module) && module != *top {
                let edges = self.edges.entry(top.clone()).or_default();
                edges.entry(module).or_insert_with(|| source.path.clone());
            }
        }
    }

    /// One line per cycle: the modules on it with a file for each import.
    fn cycles(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for module in &self.modules {
            if seen.contains(module) {
                continue;
            }
            if let Some(path) = self.shortest_cycle(module) {
                seen.extend(path.iter().cloned());
                cycles.push(self.describe(&path));
            }
        }
        cycles
    }

    /// The shortest path from a module back to itself, breadth first.
    fn shortest_cycle(&self, start: &str) -> Option<Vec<String>> {
        let mut paths = vec![vec![start.to_string()]];
        let mut seen = BTreeSet::new();
        while !paths.is_empty() {
            let mut longer = Vec::new();
            for path in paths {
                for next in self.edges.get(path.last()?).into_iter().flat_map(BTreeMap::keys) {
                    if next == start {
                        return Some(path);
                    }
                    if seen.insert(next.clone()) {
                        longer.push(path.iter().chain([next]).cloned().collect());
                    }
                }
            }
            paths = longer;
        }
        None
    }

    fn describe(&self, path: &[String]) -> String {
        let steps = path.iter().zip(path.iter().cycle().skip(1)).map(|(from, to)| {
            let file = self.edges[from][to].strip_prefix(root()).expect("sources are in the workspace");
            format!("{from} → {to} ({})", file.display())
        });
        steps.collect::<Vec<_>>().join(", ")
    }
}

/// A file outside of tests, without comments, strings and test code.
pub struct Source {
    pub path: PathBuf,
    /// The top-level module that the file belongs to; None for `lib.rs` and `main.rs`.
    top: Option<String>,
    /// How many `super::` lead from this file's module to the crate's root.
    depth: usize,
    code: String,
}

impl Source {
    /// The first names after `crate::`, or after the `super::` that reach the root.
    fn imported_names(&self) -> Vec<String> {
        let mut names = names_after(&self.code, "crate::");
        if self.depth > 0 {
            names.extend(names_after(&self.code, &"super::".repeat(self.depth)));
        }
        names
    }
}

/// The files below a directory that are not only for tests.
pub fn production_sources(src: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut tests = BTreeSet::new();
    read_sources(src, &mut sources, &mut tests);
    sources.retain(|source| !tests.iter().any(|test| source.path.starts_with(test)));
    sources
}

/// All sources below a directory; `tests` gets the files and directories of modules that only tests have.
fn read_sources(src: &Path, sources: &mut Vec<Source>, tests: &mut BTreeSet<PathBuf>) {
    let mut pending = vec![src.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("the directory can be read").filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(read_source(src, path, tests));
            }
        }
    }
}

fn read_source(src: &Path, path: PathBuf, tests: &mut BTreeSet<PathBuf>) -> Source {
    let text = fs::read_to_string(&path).expect("the source can be read");
    let (code, test_modules) = without_tests(&without_literals(&text));
    let children = match path.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => path.parent().expect("a file has a directory").to_path_buf(),
        _ => path.with_extension(""),
    };
    for module in test_modules {
        tests.insert(children.join(format!("{module}.rs")));
        tests.insert(children.join(module));
    }
    let module = children.strip_prefix(src).expect("the source is below src");
    let mut names = module.components().map(|name| name.as_os_str().to_string_lossy().into_owned());
    let top = names.next();
    Source { depth: top.iter().count() + names.count(), top, code, path }
}

/// Comments, strings and characters replaced by nothing.
fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = literal_length(rest, code.chars().next_back());
        if length == 0 {
            code.push(character);
            rest = &rest[character.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[length..];
        }
    }
    code
}

/// The length of the comment, string or character at the beginning of a text, or 0.
fn literal_length(text: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    let bytes = text.as_bytes();
    match bytes[0] {
        b'/' if text.starts_with("//") => text.find('\n').unwrap_or(text.len()),
        b'/' if text.starts_with("/*") => text.find("*/").map_or(text.len(), |end| end + 2),
        b'"' => string_length(bytes, 1),
        b'r' if !in_word => raw_string_length(text).unwrap_or(0),
        b'\'' => character_length(text).unwrap_or(0),
        _ => 0,
    }
}

fn string_length(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn raw_string_length(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let begin = 1 + hashes + 1;
    (text.as_bytes().get(begin - 1) == Some(&b'"')).then_some(())?;
    let end = format!("\"{}", "#".repeat(hashes));
    text[begin..].find(&end).map(|at| begin + at + end.len())
}

/// A character literal, which a lifetime is not.
fn character_length(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        return text[3..].find('\'').map(|at| 3 + at + 1);
    }
    let (end, close) = characters.next()?;
    (close == '\'').then_some(end + 1)
}

/// Code without its `#[cfg(test)]` items, and the names of the modules among them that are files.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut parts = code.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_string();
    let mut modules = Vec::new();
    let mut rest = &code[kept.len()..];
    while let Some(after) = rest.strip_prefix("#[cfg(test)]") {
        let length = item_length(after);
        modules.extend(module_file(after[..length].trim()));
        rest = &after[length..];
        let next = rest.find("#[cfg(test)]").unwrap_or(rest.len());
        kept.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    (kept, modules)
}

/// The name of the module that an item declares, where its code is in another file.
fn module_file(item: &str) -> Option<String> {
    let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    name.chars().all(|character| character.is_alphanumeric() || character == '_').then(|| name.to_string())
}

/// The length of an item, a field or a statement, with the attributes before it.
fn item_length(code: &str) -> usize {
    const ITEMS: &[&str] = &["pub", "fn", "mod", "use", "impl", "struct", "enum", "trait", "const", "static", "type"];
    let begin = skip_attributes(code);
    let is_item = words(&code[begin..]).next().is_some_and(|word| ITEMS.contains(&word) || word == "async");
    let mut depth = 0_usize;
    for (at, character) in code.char_indices().skip_while(|(at, _)| *at < begin) {
        match character {
            '{' | '(' | '[' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' | ')' | ']' if depth == 0 => return at,
            '}' | ')' | ']' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            ',' if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn skip_attributes(code: &str) -> usize {
    let mut at = code.len() - code.trim_start().len();
    while code[at..].starts_with("#[") {
        at += code[at..].find(']').map_or(0, |end| end + 1);
        at += code[at..].len() - code[at..].trim_start().len();
    }
    at
}

/// The first names of every path after a prefix; of all members where it is a group in braces.
fn names_after(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|character| character.is_alphanumeric() || character == '_' || character == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_members(group)),
            None => names.extend(words(rest).next().map(str::to_string)),
        }
    }
    names
}

/// The first word of each member of a group whose brace is open.
fn group_members(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut members = vec![String::new()];
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(String::new()),
            _ => {}
        }
        members.last_mut().expect("there is always one").push(character);
    }
    members.iter().filter_map(|member| words(member).next()).map(str::to_string).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

#[test]
fn reads_imports_outside_of_tests() {
    let text = r##"
        //! crate::comment
        use crate::{a, b::{c, d}, e as f};
        use super::super::g::Thing;
        #[cfg(test)]
        use crate::test_only;
        const TEXT: &str = r#"crate::text"#;
        fn run<'a>(x: &'a str) { crate::h::call('"', x) }
        #[cfg(test)]
        #[allow(dead_code)]
        mod tests { use crate::in_tests; fn f() {} }
        #[cfg(test)]
        mod files;
        fn after() -> crate::i::Type {}
    "##;
    let (code, modules) = without_tests(&without_literals(text));
    let source = Source { path: PathBuf::new(), top: Some("x".to_string()), depth: 2, code };
    let mut names = source.imported_names();
    names.sort();
    assert_eq!(names, ["a", "b", "e", "g", "h", "i"]);
    assert_eq!(modules, ["files"]);
}
