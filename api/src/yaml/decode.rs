//! Converts the parser's events to a tree. Aliases are copied, within a budget.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::Error;
use super::resolve;
use crate::base64;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// The maximum number of copied nodes; a long string counts as several.
const COPY_BUDGET: usize = 1 << 18;
const MAX_DUPLICATES: usize = 100;

/// Which plain words are booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Booleans {
    /// YAML 1.1: also `yes`, `no`, `on`, `off`, `y` and `n`.
    Words,
    /// YAML 1.2: `true` and `false`.
    Core,
}

/// The first document and its duplicate keys.
pub(super) fn document(text: &str, booleans: Booleans) -> Result<(Tree, Vec<String>), Error> {
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut decoder = Decoder {
        parser: Parser::new_from_str_with_options(text, options),
        text,
        anchors: HashMap::new(),
        budget: COPY_BUDGET,
        duplicates: Vec::new(),
        booleans,
    };
    let tree = decoder.first()?;
    Ok((tree, decoder.duplicates))
}

struct Decoder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// The value of each anchor, once its node is complete.
    anchors: HashMap<usize, Tree>,
    budget: usize,
    duplicates: Vec<String>,
    booleans: Booleans,
}

impl<'a> Decoder<'a> {
    fn first(&mut self) -> Result<Tree, Error> {
        loop {
            match self.next()?.0 {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Tree::Null),
                event => return self.node(event, 0),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Error> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((self.without_added_line_end(event, &span), span)),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// A block scalar at the end of the text has no trailing line end. The parser adds one, as YAML 1.2 specifies;
    /// upstream's does not.
    fn without_added_line_end(&self, mut event: Event<'a>, span: &Span) -> Event<'a> {
        if let Event::Scalar(text, ScalarStyle::Literal | ScalarStyle::Folded, ..) = &mut event
            && span.end.byte_offset() == Some(self.text.len())
            && span.end.col() > span.indent.unwrap_or(0)
            && let Some(kept) = text.strip_suffix('\n')
        {
            *text = Cow::Owned(kept.to_string());
        }
        event
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Tree, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let anchor = event.anchor_id();
        let tree = match event {
            Event::Scalar(text, style, _, tag) => scalar(&text, style, tag.as_deref(), self.booleans)?,
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(id) => return self.alias(id, depth),
            _ => Tree::Null,
        };
        if let Some(id) = anchor.filter(|id| *id != 0) {
            self.spend(&tree)?;
            self.anchors.insert(id, tree.clone());
        }
        Ok(tree)
    }

    /// The depth limit applies to the expanded tree: chained anchors could make it arbitrarily deep.
    fn alias(&mut self, id: usize, depth: usize) -> Result<Tree, Error> {
        let tree = self.anchors.remove(&id).ok_or(Error::Recursive)?;
        if tree.exceeds_depth(MAX_DEPTH.saturating_sub(depth)) {
            return Err(Error::TooDeep);
        }
        self.spend(&tree)?;
        self.anchors.insert(id, tree.clone());
        Ok(tree)
    }

    fn spend(&mut self, tree: &Tree) -> Result<(), Error> {
        self.budget = self.budget.checked_sub(weight(tree)).ok_or(Error::TooManyAliases)?;
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Tree, Error> {
        let mut items = Vec::new();
        loop {
            match self.next()?.0 {
                Event::SequenceEnd => return Ok(Tree::List(items)),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Tree, Error> {
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Tree::Map(Map::from_entries(entries, |_| {})));
            }
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.node(event, depth + 1)?;
            let (value, value_span) = self.next()?;
            let line = value_line(&value, &value_span, &span);
            let value = self.node(value, depth + 1)?;
            if merge {
                let merged = entries.len();
                merge_into(&mut entries, value);
                seen.extend(entries[merged..].iter().map(|(key, _)| key.clone()));
                continue;
            }
            let shown = show(&key);
            let key = key_text(key)?;
            if !seen.insert(key.clone()) && self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(format!("line {line}: key {shown} already set in map"));
            }
            entries.push((key, value));
        }
    }

    /// Scanner errors have a line; upstream omits the first line.
    fn syntax(&self, error: &ScanError) -> Error {
        if *error.kind() == ErrorKind::RecursionLimitExceeded {
            return Error::TooDeep;
        }
        let line = error.marker().line();
        // Unclosed nodes are found on the line after the last, which then has a number.
        let named = line > 1 || matches!(error.kind(), ErrorKind::UnclosedFlowCollection { .. });
        let place = (line.max(1), error.marker().col() + 1);
        Error::Syntax { line: named.then_some(line), place, problem: self.problem(error) }
    }

    fn problem(&self, error: &ScanError) -> String {
        match error.kind() {
            ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
                "mapping values are not allowed in this context".to_string()
            }
            ErrorKind::MappingKeyNotAllowed => "mapping keys are not allowed in this context".to_string(),
            ErrorKind::BlockSequenceEntryNotAllowed => {
                "block sequence entries are not allowed in this context".to_string()
            }
            ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "could not find expected ':'".to_string(),
            ErrorKind::ExpectedBlockMappingKey => "did not find expected key".to_string(),
            ErrorKind::ExpectedBlockSequenceEntry => "did not find expected '-' indicator".to_string(),
            ErrorKind::ExpectedNodeContent => "did not find expected node content".to_string(),
            ErrorKind::ExpectedFlowSequenceSeparator
            | ErrorKind::UnexpectedEofFlowSequence
            | ErrorKind::UnclosedFlowCollection { open: '[' } => "did not find expected ',' or ']'".to_string(),
            ErrorKind::ExpectedFlowMappingSeparator
            | ErrorKind::UnexpectedEofFlowMapping
            | ErrorKind::UnclosedFlowCollection { .. } => "did not find expected ',' or '}'".to_string(),
            ErrorKind::UnclosedQuotedScalar => "found unexpected end of stream".to_string(),
            ErrorKind::UnexpectedCharacter { .. } => "found character that cannot start any token".to_string(),
            ErrorKind::TabInIndentation | ErrorKind::TabInBlockIndentation => {
                "found a tab character that violates indentation".to_string()
            }
            ErrorKind::UnknownAnchor => format!("unknown anchor '{}' referenced", self.alias_name(error)),
            _ => error.info(),
        }
    }

    fn alias_name(&self, error: &ScanError) -> &'a str {
        let rest = error.marker().byte_offset().and_then(|at| self.text.get(at..)).unwrap_or("");
        let rest = rest.strip_prefix('*').unwrap_or(rest);
        rest.split(|c: char| c.is_whitespace() || ",[]{}:".contains(c)).next().unwrap_or("")
    }
}

/// The line that upstream reports for a value: that of its anchor or tag, of the `|` or `>` of a block scalar (next to
/// the key), otherwise that of its first character.
fn value_line(value: &Event<'_>, span: &Span, key: &Span) -> usize {
    let beside_key = match value {
        Event::Scalar(text, style, anchor, tag) => {
            let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
            let empty = text.is_empty() && *style == ScalarStyle::Plain;
            block || empty || *anchor != 0 || tag.is_some()
        }
        Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => *anchor != 0 || tag.is_some(),
        _ => false,
    };
    if beside_key { key.end.line() } else { span.start.line() }
}

fn merge_into(entries: &mut Vec<(Str, Tree)>, value: Tree) {
    match value {
        Tree::Map(map) => entries.extend(map.into_entries()),
        // The first of several maps takes precedence.
        Tree::List(maps) => maps.into_iter().rev().for_each(|map| merge_into(entries, map)),
        _ => {}
    }
}

fn weight(tree: &Tree) -> usize {
    match tree {
        Tree::Str(text) => 1 + text.len() / 64,
        Tree::List(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Tree::Map(map) => 1 + map.iter().map(|(key, value)| 1 + key.len() / 64 + weight(value)).sum::<usize>(),
        _ => 1,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, booleans: Booleans) -> Result<Tree, Error> {
    let is_word =
        || booleans == Booleans::Core && !text.eq_ignore_ascii_case("true") && !text.eq_ignore_ascii_case("false");
    let tree = match tag.map(|tag| tag.core_suffix()) {
        None if style == ScalarStyle::Plain && matches!(resolve::plain(text), resolve::Plain::Bool(_)) && is_word() => {
            Tree::Str(Str::new(text))
        }
        None if style == ScalarStyle::Plain => resolve::as_tree(resolve::plain(text), text),
        Some(Some("int" | "float" | "bool" | "null")) => resolve::as_tree(resolve::plain(text), text),
        Some(Some("binary")) => binary(text)?,
        _ => Tree::Str(Str::new(text)),
    };
    match tree {
        Tree::Float(value) if value.is_nan() => Err(Error::NotFinite("NaN")),
        Tree::Float(value) if value.is_infinite() => Err(Error::NotFinite(if value > 0.0 { "+Inf" } else { "-Inf" })),
        tree => Ok(tree),
    }
}

fn binary(text: &str) -> Result<Tree, Error> {
    let bytes = base64::decode(text.trim()).map_err(|_| Error::BadBinary)?;
    String::from_utf8(bytes).map(Tree::from).map_err(|_| Error::BadBinary)
}

/// JSON keys are strings; numbers and booleans are converted.
fn key_text(key: Tree) -> Result<Str, Error> {
    Ok(match key {
        Tree::Str(text) => text,
        Tree::Int(value) => Str::new(itoa::Buffer::new().format(value)),
        Tree::Float(value) => Str::from(value.to_string()),
        Tree::Bool(value) => Str::new(if value { "true" } else { "false" }),
        Tree::Null => return Err(Error::BadKey("null".to_string())),
        Tree::List(_) | Tree::Map(_) => return Err(Error::BadKey("a list or a map".to_string())),
    })
}

/// A key as printed by Go's `%#v`.
fn show(key: &Tree) -> Cow<'static, str> {
    match key {
        Tree::Str(text) => Cow::Owned(format!("{text:?}")),
        Tree::Int(value) => Cow::Owned(value.to_string()),
        Tree::Float(value) => Cow::Owned(value.to_string()),
        Tree::Bool(true) => Cow::Borrowed("true"),
        Tree::Bool(false) => Cow::Borrowed("false"),
        _ => Cow::Borrowed("interface {}(nil)"),
    }
}
