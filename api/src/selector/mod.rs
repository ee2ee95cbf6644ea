//! Label and field selectors: parsed once, then matched against many objects. Errors have upstream's messages.

mod field;

use std::fmt;

use crate::tree::{Map, Str, Tree};
use crate::validation;

pub use field::{FieldSelector, FieldTerm, escape};

/// An invalid selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The operator of a label requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

use Operator::{DoesNotExist, DoubleEquals, Equals, Exists, GreaterThan, In, LessThan, NotEquals, NotIn};

/// A condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<Str>,
    /// The value as a number, for `>` and `<`.
    number: i64,
}

impl Requirement {
    /// Validates and builds a requirement.
    pub fn new(key: &str, operator: Operator, values: Vec<Str>) -> Result<Requirement, Error> {
        let mut problems = Vec::new();
        problems.extend(key_problem("key", key));
        problems.extend(values_problem(operator, &values));
        let numeric = matches!(operator, GreaterThan | LessThan);
        let mut number = 0;
        for (index, value) in values.iter().enumerate() {
            match value.parse() {
                Ok(value) if numeric => number = value,
                Err(_) if numeric => problems.push(format!(
                    "values[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                )),
                _ => {}
            }
        }
        for (index, value) in values.iter().enumerate() {
            let messages = validation::label_value(value);
            if !messages.is_empty() {
                problems.push(format!("values[{index}][{key}]: Invalid value: {value:?}: {}", messages.join("; ")));
            }
        }
        match &problems[..] {
            [] => Ok(Requirement { key: Str::new(key), operator, values: sorted(values), number }),
            [problem] => Err(Error(problem.clone())),
            _ => Err(Error(format!("[{}]", problems.join(", ")))),
        }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, sorted.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(Str::as_str)
    }

    /// Whether the label's value, or its absence, matches.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match self.operator {
            In | Equals | DoubleEquals => value.is_some_and(has),
            NotIn | NotEquals => !value.is_some_and(has),
            Exists => value.is_some(),
            DoesNotExist => value.is_none(),
            GreaterThan => as_number(value).is_some_and(|value| value > self.number),
            LessThan => as_number(value).is_some_and(|value| value < self.number),
        }
    }
}

fn as_number(value: Option<&str>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

fn sorted(mut values: Vec<Str>) -> Vec<Str> {
    values.sort();
    values.dedup();
    values
}

fn key_problem(path: &str, key: &str) -> Option<String> {
    let messages = validation::qualified_name(key);
    (!messages.is_empty()).then(|| format!("{path}: Invalid value: {key:?}: {}", messages.join("; ")))
}

fn values_problem(operator: Operator, values: &[Str]) -> Option<String> {
    let problem = match (operator, values.len()) {
        (In | NotIn, 0) => "for 'in', 'notin' operators, values set can't be empty",
        (Equals | DoubleEquals | NotEquals, 0 | 2..) => "exact-match compatibility requires one single value",
        (Exists | DoesNotExist, 1..) => "values set must be empty for exists and does not exist",
        (GreaterThan | LessThan, 0 | 2..) => "for 'Gt', 'Lt' operators, exactly one value is required",
        _ => return None,
    };
    let shown = if values.is_empty() { "null".to_string() } else { format!("{values:?}").replace("\", \"", "\",\"") };
    Some(format!("values: Invalid value: {shown}: {problem}"))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            In => write!(f, "{key} in ({values})"),
            NotIn => write!(f, "{key} notin ({values})"),
            Equals => write!(f, "{key}={values}"),
            DoubleEquals => write!(f, "{key}=={values}"),
            NotEquals => write!(f, "{key}!={values}"),
            Exists => write!(f, "{key}"),
            DoesNotExist => write!(f, "!{key}"),
            GreaterThan => write!(f, "{key}>{values}"),
            LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// All requirements must match; without any everything does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// Matches all objects.
    pub fn everything() -> Selector {
        Selector::default()
    }

    /// Matches no object.
    pub fn nothing() -> Selector {
        Selector { requirements: Vec::new(), nothing: true }
    }

    /// `tier in (front,back),!canary`
    pub fn parse(text: &str) -> Result<Selector, Error> {
        Parser { tokens: tokens(text), at: 0 }.selector().map(Selector::of)
    }

    /// A LabelSelector object: missing selects nothing, empty everything.
    pub fn from_object(object: &Tree) -> Result<Selector, Error> {
        if object.is_null() {
            return Ok(Selector::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in object.map("matchLabels").iter() {
            requirements.push(Requirement::new(key, Equals, vec![Str::new(value.as_str().unwrap_or(""))])?);
        }
        for expression in object.list("matchExpressions") {
            requirements.push(expression_of(expression)?);
        }
        Ok(Selector::of(requirements))
    }

    /// A plain map of labels, as in a Service: all must match.
    pub fn from_labels(labels: &Map) -> Selector {
        let requirement = |(key, value): (&str, &Tree)| Requirement {
            key: Str::new(key),
            operator: Equals,
            values: vec![Str::new(value.as_str().unwrap_or(""))],
            number: 0,
        };
        Selector::of(labels.iter().map(requirement).collect())
    }

    fn of(mut requirements: Vec<Requirement>) -> Selector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Selector { requirements, nothing: false }
    }

    /// Whether it matches all objects.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it matches no object.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The requirements, all of which must match.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether labels in any order match.
    pub fn matches<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> bool {
        self.matches_with(|key| labels.clone().find(|(name, _)| *name == key).map(|(_, value)| value))
    }

    /// The labels of an object, from its tree.
    pub fn matches_map(&self, labels: &Map) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Tree::as_str))
    }

    /// Whether labels match, by a lookup of their values.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// The only value that a label may have, if there is one; allows index lookups.
    pub fn exact(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, &requirement.values[..]) {
            (Equals | DoubleEquals | In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, &self.requirements)
    }
}

fn join(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

fn expression_of(expression: &Tree) -> Result<Requirement, Error> {
    let operator = match expression.str("operator") {
        "In" => In,
        "NotIn" => NotIn,
        "Exists" => Exists,
        "DoesNotExist" => DoesNotExist,
        other => return Err(Error(format!("{other:?} is not a valid label selector operator"))),
    };
    let values = expression.list("values").iter().filter_map(Tree::as_str).map(Str::new).collect();
    Requirement::new(expression.str("key"), operator, values)
}

/// A word, or one of the operators `= == != ! > < ( ) ,`; empty at the end.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let length = match rest.find(|c| is_space(c) || is_sign(c)) {
            Some(0) if rest.starts_with("==") || rest.starts_with("!=") => 2,
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start_matches(is_space);
    }
    tokens
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_sign(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or("")
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, Error> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(requirements);
        }
        if !starts_requirement(self.peek()) {
            return Err(found(self.peek(), ", expected: !, identifier, or 'end of string'"));
        }
        loop {
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|e| Error(format!("unable to parse requirement: {e}")))?);
            match self.next() {
                "" => return Ok(requirements),
                "," if starts_requirement(self.peek()) => {}
                "," => return Err(found(self.peek(), ", expected: identifier after ','")),
                other => return Err(found(other, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let mut key = self.next();
        let absent = key == "!";
        if absent {
            key = self.next();
        }
        if !is_word(key) {
            return Err(found(key, ", expected: identifier"));
        }
        if let Some(problem) = key_problem("<nil>", key) {
            return Err(Error(problem));
        }
        if absent {
            return Requirement::new(key, DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), "" | ",") {
            return Requirement::new(key, Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = if matches!(operator, In | NotIn) { self.values()? } else { vec![self.value()?] };
        Requirement::new(key, operator, sorted(values))
    }

    fn operator(&mut self) -> Result<Operator, Error> {
        Ok(match self.next() {
            "in" => In,
            "notin" => NotIn,
            "=" => Equals,
            "==" => DoubleEquals,
            "!=" => NotEquals,
            ">" => GreaterThan,
            "<" => LessThan,
            other => return Err(found(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn value(&mut self) -> Result<Str, Error> {
        if matches!(self.peek(), "" | ",") {
            return Ok(Str::default());
        }
        match self.next() {
            word if is_word(word) => Ok(Str::new(word)),
            other => Err(found(other, ", expected: identifier")),
        }
    }

    /// `(a,b)`; an empty position is the empty value.
    fn values(&mut self) -> Result<Vec<Str>, Error> {
        match self.next() {
            "(" => {}
            other => return Err(found(other, " expected: '('")),
        }
        match self.peek() {
            "," | ")" => {}
            word if is_word(word) => {}
            other => return Err(found(other, ", expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        loop {
            values.push(if is_word(self.peek()) { Str::new(self.next()) } else { Str::default() });
            let after_word = values.last().is_some_and(|value| !value.is_empty());
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other if after_word => return Err(found(other, ", expected: ',' or ')'")),
                other => return Err(found(other, ", expected: ',', or identifier")),
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(is_sign)
}

fn starts_requirement(token: &str) -> bool {
    token == "!" || is_word(token)
}

fn found(token: &str, expected: &str) -> Error {
    Error(format!("found '{token}'{expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{list, tree};

    const LABELS: [(&str, &str); 3] = [("tier", "front"), ("n", "3"), ("empty", "")];

    #[test]
    fn label_selectors_match() {
        let cases = [
            ("", true),
            ("tier=front", true),
            ("tier==front", true),
            ("tier!=front", false),
            ("other!=x", true),
            ("tier in (front,back)", true),
            ("tier notin (front)", false),
            ("tier", true),
            ("!tier", false),
            ("!other", true),
            ("n>2", true),
            ("n<3", false),
            ("tier>2", false),
            ("n=3,tier=front", true),
            ("tier in ()", false),
            ("empty in ()", true),
            ("empty in (,a)", true),
            ("empty in (a,,b)", true),
            ("empty=", true),
            ("empty=,tier", true),
            (" n in ( 1 , 3 ) , tier ", true),
            ("in in (in)", false),
        ];
        for (text, want) in cases {
            let selector = Selector::parse(text).expect(text);
            assert_eq!(selector.matches(LABELS.into_iter()), want, "{text}");
            assert_eq!(Selector::parse(&selector.to_string()), Ok(selector), "{text}");
        }
        assert_eq!(Selector::parse("b in (z,y,y),a").expect("valid").to_string(), "a,b in (y,z)");
    }

    #[test]
    fn selector_errors_match_upstream() {
        let long = "x".repeat(64);
        let cases = [
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a b=c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("tier=front,", "found '', expected: identifier after ','"),
            ("tier in front", "unable to parse requirement: found 'front' expected: '('"),
            (
                "n>abc",
                "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("tier=bad value", "found 'value', expected: ',' or 'end of string'"),
            ("/x=y", "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty"),
            ("tier=(a)", "unable to parse requirement: found '(', expected: identifier"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ];
        for (text, want) in cases {
            assert_eq!(Selector::parse(text).expect_err(text).to_string(), want);
        }
        let message = Selector::parse(&format!("{long}=a")).expect_err("too long").to_string();
        assert!(message.ends_with("name part must be no more than 63 bytes"), "{message}");
    }

    #[test]
    fn selector_objects() {
        let object = tree! {
            "matchLabels" => tree! { "tier" => "front" },
            "matchExpressions" => list![tree! { "key" => "n", "operator" => "In", "values" => list!["3", "4"] }],
        };
        let selector = Selector::from_object(&object).expect("valid");
        assert!(selector.matches(LABELS.into_iter()));
        assert_eq!(selector.to_string(), "n in (3,4),tier=front");
        assert_eq!(selector.exact("tier"), Some("front"));
        assert!(!Selector::from_object(&Tree::Null).expect("valid").matches(LABELS.into_iter()));
        assert!(Selector::from_object(&Tree::map_new()).expect("valid").matches(LABELS.into_iter()));
        let bad = tree! { "matchExpressions" => list![tree! { "key" => "n", "operator" => "Bad" }] };
        let message = Selector::from_object(&bad).expect_err("bad operator").to_string();
        assert_eq!(message, "\"Bad\" is not a valid label selector operator");
    }
}
