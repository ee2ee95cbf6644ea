//! The plugin `rewrite`: rules that change the question, and the response.

use std::fmt;
use std::sync::Arc;

use regex_automata::nfa::thompson::pikevm::PikeVM;

use super::plugins::{Context, ReadResult};
use super::syntax::Line;
use super::values::{self, Value, ValueError};
use super::{CorefileError, RcodeRewrite, ServerBlock};
use crate::message::{Name, Rcode, Type, class};

/// As in CoreDNS.
const MAX_PATTERN: usize = 10_000;

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    /// Whether no further rule is applied after this one.
    pub is_final: bool,
    /// The field that the rule changes.
    pub field: Field,
}

/// The part of a message that a rule changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// The type of the question, from and to.
    Type(Type, Type),
    /// The class of the question, from and to.
    Class(u16, u16),
    /// The name of the question, and names in the response.
    Name { from: NameMatch, to: String, answers: Vec<AnswerRewrite> },
    /// The TTLs of the response are limited to a range.
    Ttl { of: NameMatch, min: u32, max: u32 },
    /// The response code.
    Rcode { of: NameMatch, rewrite: RcodeRewrite },
}

/// Which names a rule is for. Texts are in lower case.
#[derive(Debug, Clone, PartialEq)]
pub enum NameMatch {
    /// This name.
    Exact(Name),
    /// Names that begin with a text.
    Prefix(String),
    /// Names that end with a text.
    Suffix(String),
    /// Names that contain a text.
    Substring(String),
    /// Names that match a regular expression.
    Regex(Pattern),
}

/// How names of the response are changed.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerRewrite {
    /// The rewritten name becomes the original one.
    Auto,
    /// Names of records that match are replaced.
    Name(Pattern, String),
    /// Names in the data of records that match are replaced.
    Value(Pattern, String),
}

/// A regular expression.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    machine: Arc<PikeVM>,
}

impl Pattern {
    pub fn new(text: &str) -> Value<Pattern> {
        if text.len() > MAX_PATTERN {
            return Err(ValueError::PatternTooLong(MAX_PATTERN));
        }
        let machine = PikeVM::new(text).map_err(|_| ValueError::refused(text, "is not a regular expression"))?;
        Ok(Pattern { text: text.to_string(), machine: Arc::new(machine) })
    }

    /// The replacement with `{0}`, `{1}` and so on filled in, if the text matches.
    pub fn replace(&self, text: &str, replacement: &str) -> Option<String> {
        let mut cache = self.machine.create_cache();
        let mut captures = self.machine.create_captures();
        self.machine.captures(&mut cache, text, &mut captures);
        if !captures.is_match() {
            return None;
        }
        let mut out = replacement.to_string();
        for group in 0..captures.group_len() {
            let value = captures.get_group(group).map_or("", |span| &text[span.range()]);
            out = out.replace(&format!("{{{group}}}"), value);
        }
        Some(out)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl NameMatch {
    /// Whether a name in lower case matches.
    pub fn matches(&self, name: &Name) -> bool {
        match self {
            NameMatch::Exact(exact) => exact.matches(name),
            _ => self.replace(&name.to_string(), "").is_some(),
        }
    }

    /// The text of a name in lower case after the rewrite, if it matches.
    pub fn replace(&self, text: &str, to: &str) -> Option<String> {
        match self {
            NameMatch::Exact(exact) => (exact.to_string() == text).then(|| to.to_string()),
            NameMatch::Prefix(prefix) => text.strip_prefix(prefix.as_str()).map(|rest| format!("{to}{rest}")),
            NameMatch::Suffix(suffix) => text.strip_suffix(suffix.as_str()).map(|rest| format!("{rest}{to}")),
            NameMatch::Substring(part) => text.contains(part.as_str()).then(|| text.replace(part.as_str(), to)),
            NameMatch::Regex(pattern) => pattern.replace(text, to),
        }
    }
}

pub(super) fn read(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let mut words: Vec<String> = context.arguments().to_vec();
    // The block form is the same rule on several lines.
    for line in &context.directive.lines {
        words.push(line.name.clone());
        words.extend(line.arguments.iter().cloned());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (is_final, words) = match words.as_slice() {
        ["continue", rest @ ..] => (false, rest),
        ["stop", rest @ ..] => (true, rest),
        rest => (true, rest),
    };
    let field = field(words).map_err(|why| error(context, why.to_string()))?;
    server.rewrites.push(Rewrite { is_final, field });
    Ok(())
}

fn error(context: &Context, why: String) -> CorefileError {
    let first: Option<&Line> = context.directive.lines.first();
    match first {
        Some(line) => context.option_error(line, why),
        None => context.error(why),
    }
}

fn field(words: &[&str]) -> Value<Field> {
    match words {
        ["type", from, to] => Ok(Field::Type(record_type(from)?, record_type(to)?)),
        ["class", from, to] => Ok(Field::Class(class_of(from)?, class_of(to)?)),
        ["name", rest @ ..] => name_field(rest),
        ["ttl", rest @ ..] => ttl_field(rest),
        ["rcode", rest @ ..] => rcode_field(rest),
        ["type" | "class", ..] => Err("two values are expected".into()),
        ["edns0" | "cname", ..] => Err(ValueError::Unsupported(format!("the field {}", words[0]))),
        [field, ..] => Err(ValueError::unknown("field", field)),
        [] => Err("a field is expected".into()),
    }
}

fn record_type(text: &str) -> Value<Type> {
    Type::parse(text).ok_or_else(|| ValueError::unknown("type", text))
}

fn class_of(text: &str) -> Value<u16> {
    match text.to_ascii_uppercase().as_str() {
        "IN" => Ok(class::IN),
        "CH" => Ok(class::CH),
        "HS" => Ok(class::HS),
        _ => Err(ValueError::unknown("class", text)),
    }
}

fn dotted(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.ends_with('.') { lower } else { lower + "." }
}

/// `[exact|prefix|suffix|substring|regex] STRING`, by the kind.
fn name_match(kind: &str, text: &str) -> Value<NameMatch> {
    Ok(match kind {
        "exact" => NameMatch::Exact(values::name(text)?),
        "prefix" => NameMatch::Prefix(text.to_ascii_lowercase()),
        "suffix" => NameMatch::Suffix(dotted(text)),
        "substring" => NameMatch::Substring(text.to_ascii_lowercase()),
        "regex" => NameMatch::Regex(Pattern::new(text)?),
        _ => return Err(ValueError::unknown("kind of match", kind)),
    })
}

fn name_field(words: &[&str]) -> Value<Field> {
    let (kind, from, to, options) = match words {
        [from, to] => ("exact", from, to, &[][..]),
        [kind, from, to, options @ ..] => (*kind, from, to, options),
        _ => return Err("FROM and TO are expected".into()),
    };
    let from = name_match(kind, from)?;
    let to = match kind {
        "exact" | "suffix" => dotted(to),
        _ => to.to_ascii_lowercase(),
    };
    let mut answers = answer_rewrites(options)?;
    if kind == "exact" && !answers.contains(&AnswerRewrite::Auto) {
        answers.insert(0, AnswerRewrite::Auto);
    }
    Ok(Field::Name { from, to, answers })
}

/// `answer (auto | (name|value FROM TO)) { [answer] ... }`.
fn answer_rewrites(mut words: &[&str]) -> Value<Vec<AnswerRewrite>> {
    if words.first().is_some_and(|word| *word != "answer") {
        return Err(ValueError::unknown("option", words[0]));
    }
    let mut rewrites = Vec::new();
    while !words.is_empty() {
        let rest = words.strip_prefix(&["answer"]).unwrap_or(words);
        words = match rest {
            ["auto", rest @ ..] | ["name", "auto", rest @ ..] => {
                rewrites.push(AnswerRewrite::Auto);
                rest
            }
            ["name", from, to, rest @ ..] => {
                rewrites.push(AnswerRewrite::Name(Pattern::new(from)?, dotted(to)));
                rest
            }
            ["value", from, to, rest @ ..] => {
                rewrites.push(AnswerRewrite::Value(Pattern::new(from)?, dotted(to)));
                rest
            }
            _ => return Err("auto, or name or value with FROM and TO is expected after answer".into()),
        };
    }
    Ok(rewrites)
}

/// `[KIND] STRING [SECONDS|MIN-MAX]`.
fn ttl_field(words: &[&str]) -> Value<Field> {
    let (of, range) = match words {
        [name, range] => (name_match("exact", name)?, range),
        [kind, name, range] => (name_match(kind, name)?, range),
        _ => return Err("a name and a TTL are expected".into()),
    };
    let bound = |text: &str, open: u32| if text.is_empty() { Ok(open) } else { values::number(text) };
    let (min, max) = match range.split_once('-') {
        Some((min, max)) => (bound(min, 0)?, bound(max, i32::MAX as u32)?),
        None => (values::number(range)?, values::number(range)?),
    };
    if min > max { Err("the range is empty".into()) } else { Ok(Field::Ttl { of, min, max }) }
}

/// `[KIND] STRING FROM TO`.
fn rcode_field(words: &[&str]) -> Value<Field> {
    let (of, from, to) = match words {
        [name, from, to] => (name_match("exact", name)?, from, to),
        [kind, name, from, to] => (name_match(kind, name)?, from, to),
        _ => return Err("a name and two response codes are expected".into()),
    };
    let rcode = |text: &str| Rcode::parse(text).ok_or_else(|| ValueError::unknown("response code", text));
    Ok(Field::Rcode { of, rewrite: RcodeRewrite { from: rcode(from)?, to: rcode(to)? } })
}
