//! The configuration file: a mapping of the names of flags to their values.

use std::path::Path;

use api::Tree;
use clap::{Arg, ArgAction, Command};

use super::{Setting, Source, flag, flags, is_switch, shown};
use crate::error::{Error, Result};

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file; all of its errors are reported together.
pub(super) fn read(path: &Path, command: &Command) -> Result<Vec<Setting>> {
    let size = std::fs::metadata(path).map_err(Error::file(path))?.len();
    if size > MAX_BYTES {
        return Err(Error::Flags(vec![format!("{}: it has more than {MAX_BYTES} bytes", shown(path))]));
    }
    let text = std::fs::read(path).map_err(Error::file(path))?;
    let tree = api::yaml::decode(&text).map_err(|error| {
        let line = error.line().map_or_else(String::new, |line| format!(":{line}:1"));
        Error::Flags(vec![format!("{}{line}: {error}", shown(path))])
    })?;
    if tree.is_null() {
        return Ok(Vec::new());
    }
    let Some(map) = tree.as_map() else {
        return Err(Error::Flags(vec![format!("{}: it is not a mapping of settings", shown(path))]));
    };
    if let Some(kind) = map.get("kind").and_then(Tree::as_str) {
        let why = format!(
            "{}: it is a {kind}, not a file of settings: --kubelet-config names a KubeletConfiguration",
            shown(path)
        );
        return Err(Error::Flags(vec![why]));
    }
    let (mut settings, mut errors) = (Vec::<Setting>::new(), Vec::new());
    for (key, position) in api::yaml::key_positions(&text) {
        let source = Source::File { path: path.to_path_buf(), position };
        let parsed = map.get(key.as_str()).map_or(Err(Problem::Unset), |value| setting(command, &key, value));
        match parsed {
            Ok((key, _)) if settings.iter().any(|other| other.key == key) => {
                errors.push(located(&source, &key, &Problem::Twice, command));
            }
            Ok((key, words)) => settings.push(Setting { key, words, source }),
            Err(problem) => errors.push(located(&source, &key, &problem, command)),
        }
    }
    if errors.is_empty() { Ok(settings) } else { Err(Error::Flags(errors)) }
}

/// What is wrong with a key.
enum Problem {
    Unknown,
    Unset,
    Twice,
    NotBoolean(String),
    List,
    Mapping,
}

fn located(source: &Source, key: &str, problem: &Problem, command: &Command) -> String {
    let name = command.get_name();
    let why = match problem {
        Problem::Unknown => {
            let nearest = stdx::suggest::nearest(key, flags(command).filter_map(Arg::get_long));
            match nearest {
                Some(nearest) => format!("unknown key; is {nearest} meant?"),
                None => format!("unknown key; `tiphys config explain {name}` lists all"),
            }
        }
        Problem::Unset => "it has no value".to_string(),
        Problem::Twice => "it is set twice".to_string(),
        Problem::NotBoolean(value) => format!("{value:?} is neither true nor false"),
        Problem::List => "it takes one value, not a list".to_string(),
        Problem::Mapping => "it takes a value, not a mapping".to_string(),
    };
    format!("{source}: {key}: {why}")
}

/// The long name of the flag, and the words of a command line.
fn setting(command: &Command, key: &str, value: &Tree) -> Result<(String, Vec<String>), Problem> {
    let arg = flag(command, key).ok_or(Problem::Unknown)?;
    let long = arg.get_long().unwrap_or_default();
    let word = |value: &Tree| text(value).map(|text| format!("--{long}={text}"));
    let words = match (is_switch(arg), value) {
        (_, Tree::Null) => return Err(Problem::Unset),
        (_, Tree::Map(_)) => return Err(Problem::Mapping),
        (true, value) => match value.as_bool() {
            Some(true) => vec![format!("--{long}")],
            Some(false) => Vec::new(),
            None => return Err(Problem::NotBoolean(text(value).unwrap_or_default())),
        },
        (false, Tree::List(_)) if !matches!(arg.get_action(), ArgAction::Append) => return Err(Problem::List),
        (false, Tree::List(items)) => items.iter().map(word).collect::<Result<_, Problem>>()?,
        (false, value) => vec![word(value)?],
    };
    Ok((long.to_string(), words))
}

/// A scalar as it would be written on a command line.
fn text(value: &Tree) -> Result<String, Problem> {
    match value {
        Tree::Map(_) => Err(Problem::Mapping),
        Tree::List(_) => Err(Problem::List),
        Tree::Null => Err(Problem::Unset),
        value => Ok(match value.as_str() {
            Some(text) => text.to_string(),
            None => String::from_utf8_lossy(&api::json::encode(value, None)).into_owned(),
        }),
    }
}
