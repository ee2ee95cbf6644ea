//! Nodes to values.

use std::borrow::Cow;

use api::Tree;
use api::patch::printed;

use crate::error::EvalError;
use crate::parse::{Node, Slice};
use crate::{Found, JsonPath, compare};

/// Ranges in ranges beyond this are rejected.
const MAX_RANGES: usize = 64;

type Values<'a> = Vec<Found<'a>>;

/// A filter whose operand fails to evaluate still sees the values that were left.
type Evaluated<'a> = Result<Values<'a>, (EvalError, Values<'a>)>;

pub(crate) fn find<'a>(path: &'a JsonPath, tree: &'a Tree) -> Result<Vec<Values<'a>>, EvalError> {
    let mut evaluation = Evaluation {
        nodes: &path.nodes,
        allow_missing_keys: path.allow_missing_keys,
        steps_left: path.max_steps,
        starting: 0,
        open: 0,
        ending: 0,
        last_end: None,
        results: Vec::new(),
    };
    evaluation.run(0, &Cow::Borrowed(tree), true)?;
    Ok(evaluation.results)
}

struct Evaluation<'a> {
    nodes: &'a [Node],
    allow_missing_keys: bool,
    steps_left: usize,
    /// Ranges whose body has not begun yet.
    starting: usize,
    /// Ranges whose body is being evaluated.
    open: usize,
    ending: usize,
    last_end: Option<usize>,
    results: Vec<Values<'a>>,
}

impl<'a> Evaluation<'a> {
    /// Evaluates the nodes from an index on; a range evaluates the nodes after it for each of its values.
    fn run(&mut self, start: usize, value: &Found<'a>, keeps: bool) -> Result<(), EvalError> {
        if self.open > MAX_RANGES {
            return Err(EvalError::TooDeep);
        }
        let mut at = start;
        while let Some(node) = self.nodes.get(at) {
            let results = self.eval(node, vec![value.clone()]).map_err(|(error, _)| error)?;
            if self.ending > 0 && self.ending <= self.open {
                self.ending -= 1;
                self.last_end = Some(at);
                return Ok(());
            }
            if self.starting > 0 {
                self.run_range(at, results, keeps)?;
                at = self.last_end.filter(|end| *end > at).unwrap_or(at);
            } else if keeps {
                self.results.push(results);
            }
            at += 1;
        }
        Ok(())
    }

    fn run_range(&mut self, at: usize, values: Values<'a>, keeps: bool) -> Result<(), EvalError> {
        self.starting -= 1;
        self.open += 1;
        if values.is_empty() {
            // Finds the end of the range. Its expressions are evaluated, and may fail.
            self.run(at + 1, &Cow::Owned(Tree::Null), false)?;
        }
        for value in values {
            self.run(at + 1, &value, keeps)?;
        }
        self.open -= 1;
        Ok(())
    }

    fn count(&mut self, steps: usize) -> Result<(), (EvalError, Values<'a>)> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or_else(|| (EvalError::TooManyValues, Vec::new()))?;
        Ok(())
    }

    fn eval_list(&mut self, nodes: &'a [Node], input: Values<'a>) -> Evaluated<'a> {
        nodes.iter().try_fold(input, |input, node| self.eval(node, input))
    }

    fn eval(&mut self, node: &'a Node, input: Values<'a>) -> Evaluated<'a> {
        self.count(1 + input.len())?;
        match node {
            Node::List(nodes) => self.eval_list(nodes, input),
            Node::Literal(tree) => Ok(vec![Cow::Borrowed(tree)]),
            Node::Constant(tree) => Ok(input.iter().map(|_| Cow::Borrowed(tree)).collect()),
            Node::Field(name) => self.eval_field(name, input),
            Node::Slice(slice) => eval_slice(slice, input),
            Node::Filter { left, operator, right } => self.eval_filter(left, operator.as_deref(), right, input),
            Node::Wildcard => {
                let children: Values = input.iter().flat_map(children).collect();
                self.count(children.len())?;
                Ok(children)
            }
            Node::Recursive => {
                let mut out = Vec::new();
                input.into_iter().try_for_each(|value| self.descend(value, &mut out))?;
                Ok(out)
            }
            Node::Union(parts) => self.eval_union(parts, input),
            Node::Identifier(name) => self.eval_identifier(name, input),
        }
    }

    fn eval_field(&mut self, name: &str, input: Values<'a>) -> Evaluated<'a> {
        if input.is_empty() {
            return Ok(input);
        }
        let found: Values = input.iter().filter_map(|value| field(value, name)).collect();
        if found.is_empty() && !self.allow_missing_keys {
            return Err((EvalError::NotFound(name.to_string()), found));
        }
        Ok(found)
    }

    fn eval_union(&mut self, parts: &'a [Vec<Node>], input: Values<'a>) -> Evaluated<'a> {
        let mut out = Vec::new();
        for part in parts {
            match self.eval_list(part, input.clone()) {
                Ok(found) => out.extend(found),
                Err((error, _)) => return Err((error, input)),
            }
        }
        Ok(out)
    }

    fn eval_identifier(&mut self, name: &str, input: Values<'a>) -> Evaluated<'a> {
        match name {
            "range" => {
                self.starting += 1;
                Ok(input)
            }
            "end" if self.open > 0 => {
                self.ending += 1;
                Ok(Vec::new())
            }
            "end" => Err((EvalError::NotInRange, Vec::new())),
            _ => Err((EvalError::UnknownIdentifier(name.to_string()), input)),
        }
    }

    /// Every value below that has children, and the value itself.
    fn descend(&mut self, value: Found<'a>, out: &mut Values<'a>) -> Result<(), (EvalError, Values<'a>)> {
        self.count(1)?;
        if let Tree::Str(text) = value.as_ref() {
            // The bytes of a string are its children; they have none.
            if !text.is_empty() {
                out.push(value);
            }
            return Ok(());
        }
        let below = children(&value);
        if !below.is_empty() {
            out.push(value);
        }
        below.into_iter().try_for_each(|child| self.descend(child, out))
    }

    fn eval_filter(
        &mut self,
        left: &'a [Node],
        operator: Option<&str>,
        right: &'a [Node],
        input: Values<'a>,
    ) -> Evaluated<'a> {
        let mut out = Vec::new();
        for value in &input {
            let Some(items) = items(value) else {
                return Err((EvalError::NotFilterable(printed(value)), input));
            };
            for item in items {
                match self.passes(&item, left, operator, right) {
                    Ok(true) => out.push(item),
                    Ok(false) => {}
                    Err(error) => return Err((error, input)),
                }
            }
        }
        Ok(out)
    }

    fn passes(
        &mut self,
        item: &Found<'a>,
        left: &'a [Node],
        operator: Option<&str>,
        right: &'a [Node],
    ) -> Result<bool, EvalError> {
        let left = self.eval_list(left, vec![item.clone()]);
        let Some(operator) = operator else {
            // Whatever was found before an error counts as existing.
            return match left {
                Err((EvalError::TooManyValues, _)) => Err(EvalError::TooManyValues),
                Ok(found) | Err((_, found)) => Ok(!found.is_empty()),
            };
        };
        let Some(left) = single(left)? else { return Ok(false) };
        let Some(right) = single(self.eval_list(right, vec![item.clone()]))? else { return Ok(false) };
        compare::compare(&left, operator, &right)
    }
}

fn single(found: Evaluated) -> Result<Option<Found>, EvalError> {
    let mut found = found.map_err(|(error, _)| error)?.into_iter();
    let first = found.next();
    if found.next().is_some() { Err(EvalError::SeveralOperands) } else { Ok(first) }
}

fn field<'a>(value: &Found<'a>, name: &str) -> Option<Found<'a>> {
    match value {
        Cow::Borrowed(tree) => tree.get(name).map(Cow::Borrowed),
        Cow::Owned(tree) => tree.get(name).cloned().map(Cow::Owned),
    }
}

fn items<'a>(value: &Found<'a>) -> Option<Values<'a>> {
    match value {
        Cow::Borrowed(tree) => tree.as_list().map(|items| items.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(tree) => tree.as_list().map(|items| items.iter().cloned().map(Cow::Owned).collect()),
    }
}

/// The values of a map in the order of its keys, the items of a list, or the bytes of a string.
fn children<'a>(value: &Found<'a>) -> Values<'a> {
    match value {
        Cow::Borrowed(Tree::Map(map)) => map.iter().map(|(_, value)| Cow::Borrowed(value)).collect(),
        Cow::Owned(Tree::Map(map)) => map.iter().map(|(_, value)| Cow::Owned(value.clone())).collect(),
        value => match value.as_ref() {
            Tree::Str(text) => text.bytes().map(|byte| Cow::Owned(Tree::Int(byte.into()))).collect(),
            _ => items(value).unwrap_or_default(),
        },
    }
}

fn eval_slice<'a>(slice: &Slice, input: Values<'a>) -> Evaluated<'a> {
    let mut out = Vec::new();
    for value in input.iter().filter(|value| !value.is_null()) {
        let Some(items) = items(value) else {
            return Err((EvalError::NotAList(go_type(value)), input));
        };
        match bounds(slice, items.len() as i64) {
            Ok(None) => return Ok(out),
            Ok(Some((start, end, step))) => out.extend(items.into_iter().take(end).skip(start).step_by(step)),
            Err(error) => return Err((error, input)),
        }
    }
    Ok(out)
}

/// Start, end and step; None selects nothing.
fn bounds(slice: &Slice, length: i64) -> Result<Option<(usize, usize, usize)>, EvalError> {
    let first = slice.start.unwrap_or(0);
    let start = if first < 0 { first.saturating_add(length) } else { first };
    let end = if slice.is_index { first.saturating_add(1) } else { slice.end.unwrap_or(length) };
    let end = if end < 0 || (end == 0 && slice.is_index) { end.saturating_add(length) } else { end };
    if start == end {
        return Ok(None);
    }
    if start >= length || start < 0 {
        return Err(EvalError::OutOfBounds { index: start, length });
    }
    if end > length || end < 0 {
        return Err(EvalError::OutOfBounds { index: end - 1, length });
    }
    if start > end {
        return Err(EvalError::Reversed { start, end });
    }
    let step = usize::try_from(slice.step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(EvalError::Step)?;
    Ok(Some((start as usize, end as usize, step)))
}

fn go_type(value: &Tree) -> &'static str {
    match value {
        Tree::Null => "<nil>",
        Tree::Bool(_) => "bool",
        Tree::Int(_) => "int64",
        Tree::Float(_) => "float64",
        Tree::Str(_) => "string",
        Tree::List(_) => "[]interface {}",
        Tree::Map(_) => "map[string]interface {}",
    }
}
