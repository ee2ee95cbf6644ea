//! Flags, in the form of a KubeletConfiguration that is merged over the file: a flag overrides the file.

use api::{Map, Tree, tree};

use super::{InvalidValue, Taint};

/// A flag's text that does not have the form of its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("{0:?} is not an integer")]
    Integer(String),
    #[error("{0:?} is not a number")]
    Number(String),
    #[error("{0:?} is neither true nor false")]
    Boolean(String),
    #[error("{entry:?}: `name{mark}value` is expected")]
    Pair { entry: String, mark: char },
    #[error("{0:?} is not a NUMA node")]
    NumaNode(String),
    #[error("invalid taint spec: {0}")]
    TaintSpec(String),
    #[error("invalid taint spec: {text}, {source}")]
    Taint { text: String, source: InvalidValue },
}

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagType {
    /// A string.
    Text,
    /// `true` or `false`.
    Bool,
    /// An integer.
    Int,
    /// A number with a fraction.
    Number,
    /// `a,b`
    List,
    /// `a=1,b=2`
    Map,
    /// `memory.available<100Mi,nodefs.available<10%`
    Thresholds,
    /// `A=true,B=false`
    Gates,
    /// `a:hello,b:world`
    Headers,
    /// `key=value:NoSchedule`
    Taints,
    /// `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi`; a repeated flag adds to the earlier ones.
    Memory,
}

/// Fields that flags set, as a part of a KubeletConfiguration.
#[derive(Debug, Clone)]
pub struct Overlay(pub Tree);

impl Default for Overlay {
    fn default() -> Overlay {
        Overlay(tree! {})
    }
}

impl Overlay {
    /// Sets a field by its path.
    pub fn set(&mut self, path: &str, form: FlagType, text: &str) -> Result<(), FlagError> {
        let mut value = read(form, text)?;
        if let (FlagType::Memory, Some(nodes)) = (form, value.as_list_mut()) {
            nodes.splice(0..0, self.0.list(path).iter().cloned());
        }
        match path.rsplit_once('.') {
            Some((parent, name)) => self.0.child(parent).set(name, value),
            None => self.0.set(path, value),
        }
        Ok(())
    }
}

fn read(form: FlagType, text: &str) -> Result<Tree, FlagError> {
    match form {
        FlagType::Text => Ok(text.into()),
        FlagType::Bool => boolean(text).map(Tree::Bool),
        FlagType::Int => text.parse().map(Tree::Int).map_err(|_| FlagError::Integer(text.to_string())),
        FlagType::Number => text.parse().map(Tree::Float).map_err(|_| FlagError::Number(text.to_string())),
        FlagType::List => Ok(Tree::List(entries(text).map(Tree::from).collect())),
        FlagType::Map => pairs(text, '=', |value| Ok(value.into())),
        FlagType::Thresholds => pairs(text, '<', |value| Ok(value.into())),
        FlagType::Gates => pairs(text, '=', |value| boolean(value).map(Tree::Bool)),
        FlagType::Headers => headers(text),
        FlagType::Memory => memory(text),
        FlagType::Taints => Ok(Tree::List(entries(text).map(taint).collect::<Result<_, _>>()?)),
    }
}

fn boolean(text: &str) -> Result<bool, FlagError> {
    match text {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        _ => Err(FlagError::Boolean(text.to_string())),
    }
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn pair(entry: &str, mark: char) -> Result<(&str, &str), FlagError> {
    let wrong = || FlagError::Pair { entry: entry.to_string(), mark };
    let (key, value) = entry.split_once(mark).ok_or_else(wrong)?;
    Ok((key.trim(), value.trim()))
}

fn pairs(text: &str, mark: char, read: impl Fn(&str) -> Result<Tree, FlagError>) -> Result<Tree, FlagError> {
    let mut map = Map::new();
    for entry in entries(text) {
        let (key, value) = pair(entry, mark)?;
        map.insert(key, read(value)?);
    }
    Ok(Tree::Map(map))
}

/// One name may have several values.
fn headers(text: &str) -> Result<Tree, FlagError> {
    let mut headers = tree! {};
    for entry in entries(text) {
        let (key, value) = pair(entry, ':')?;
        headers.list_entry(key).push(value.into());
    }
    Ok(headers)
}

fn memory(text: &str) -> Result<Tree, FlagError> {
    let mut nodes = Vec::new();
    for entry in text.split(';').filter(|entry| !entry.trim().is_empty()) {
        let (node, limits) = pair(entry, ':')?;
        let node: i64 = node.parse().map_err(|_| FlagError::NumaNode(node.to_string()))?;
        nodes.push(tree! { "numaNode" => node, "limits" => pairs(limits, '=', |value| Ok(value.into()))? });
    }
    Ok(Tree::List(nodes))
}

/// `key=value:effect`, `key:effect`.
fn taint(text: &str) -> Result<Tree, FlagError> {
    let (start, effect) = text.rsplit_once(':').ok_or_else(|| FlagError::TaintSpec(text.to_string()))?;
    let (key, value) = start.split_once('=').unwrap_or((start, ""));
    let taint = Taint { key: key.to_string(), value: value.to_string(), effect: effect.to_string() };
    let taint = super::values::taint(taint).map_err(|source| FlagError::Taint { text: text.to_string(), source })?;
    Ok(tree! { "key" => taint.key, "value" => taint.value, "effect" => taint.effect })
}
