//! The evaluation of a plan. It counts what upstream's evaluator counts, at the same places.

mod attributes;
mod folds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::{CallNode, EntryNode, FieldNode, Node};
use super::{Activation, Program};
use crate::cost;
use crate::library::{Call, build_message, regex};
use crate::value::{CostTracker, EvalError, Key, Map, Object, Value, equal};

use attributes::display;

pub(super) struct Evaluator<'e, 'a, 'p> {
    activation: &'e dyn Activation<'a>,
    tracker: &'e CostTracker<'e>,
    call: Call<'e>,
    slots: Vec<Slot<'a, 'p>>,
}

/// A local variable.
enum Slot<'a, 'p> {
    Empty,
    /// The variable is evaluated when it is used.
    Lazy(&'p Node),
    Ready(Eval<'a>),
}

type Eval<'a> = Result<Value<'a>, EvalError>;

impl<'e, 'a, 'p> Evaluator<'e, 'a, 'p> {
    pub(super) fn new(program: &'p Program, activation: &'e dyn Activation<'a>, tracker: &'e CostTracker<'e>) -> Self
    where
        'p: 'e,
    {
        let call = Call::new(tracker, program.zones.as_deref());
        let slots = std::iter::repeat_with(|| Slot::Empty).take(program.slots).collect();
        Evaluator { activation, tracker, call, slots }
    }

    /// Each kind of node has its own function: the stack frame of this function is needed at every level.
    pub(super) fn eval(&mut self, node: &'p Node) -> Eval<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.eval_attribute(attribute),
            Node::And(operands) => self.eval_logical(operands, false),
            Node::Or(operands) => self.eval_logical(operands, true),
            Node::Equal { operands, negated } => self.eval_equal(operands, *negated),
            Node::InSet(parts) => self.eval_in_set(parts),
            Node::OptionalOr { operands, unwrap } => self.eval_optional_or(operands, *unwrap),
            Node::NotStrictlyFalse(operand) => self.eval_not_strictly_false(operand),
            Node::Call(call) => self.eval_call(call),
            Node::List { elements, optionals } => self.eval_list(elements, optionals),
            Node::Map(entries) => self.eval_map(entries),
            Node::Object { name, fields } => self.eval_object(name, fields),
            Node::Fold(fold) => self.eval_fold(fold),
            Node::Bind(bind) => {
                self.slots[bind.slot] = Slot::Lazy(&bind.init);
                self.eval(&bind.result)
            }
        }
    }

    fn eval_in_set(&mut self, parts: &'p (Node, BTreeSet<Key<'static>>)) -> Eval<'a> {
        let value = self.eval(&parts.0)?;
        Ok(Value::Bool(Key::of(&value).is_some_and(|key| parts.1.contains(&key))))
    }

    fn eval_optional_or(&mut self, operands: &'p (Node, Node), unwrap: bool) -> Eval<'a> {
        match self.eval(&operands.0)? {
            Value::Optional(None) => self.eval(&operands.1),
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            value @ Value::Optional(_) => Ok(value),
            _ => Err(EvalError::overload()),
        }
    }

    fn eval_not_strictly_false(&mut self, operand: &'p Node) -> Eval<'a> {
        let value = self.eval(operand);
        self.tracker.charge(1)?;
        match value {
            Err(error) if error.is_cancelled() => Err(error),
            Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
            _ => Ok(Value::Bool(true)),
        }
    }

    /// `&&` and `||`: if one operand decides, errors of the other one do not matter.
    fn eval_logical(&mut self, operands: &'p (Node, Node), decisive: bool) -> Eval<'a> {
        let first = as_logical(self.eval(&operands.0));
        match first {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Err(error) if error.is_cancelled() => return Err(error),
            _ => {}
        }
        let second = as_logical(self.eval(&operands.1));
        combine(first, second, decisive).map(Value::Bool)
    }

    fn eval_equal(&mut self, operands: &'p (Node, Node), negated: bool) -> Eval<'a> {
        let (first, second) = (self.eval(&operands.0), self.eval(&operands.1));
        let (first, second) = self.both(first, second)?;
        let args = [first, second];
        self.tracker.charge(cost::CallCost::Equality { operator: !negated }.compute(&args))?;
        match equal(&args[0], &args[1], self.tracker) {
            Ok(value) => Ok(Value::Bool(value != negated)),
            // Values that cannot be compared are different.
            Err(error) if negated && !error.is_cancelled() => Ok(Value::Bool(true)),
            Err(error) => Err(error),
        }
    }

    /// Two operands; if one of them is an error, the call still costs.
    fn both(&mut self, first: Eval<'a>, second: Eval<'a>) -> Result<(Value<'a>, Value<'a>), EvalError> {
        match (first, second) {
            (Ok(first), Ok(second)) => Ok((first, second)),
            (Err(error), _) | (_, Err(error)) => {
                if !error.is_cancelled() {
                    self.tracker.charge(1)?;
                }
                Err(error)
            }
        }
    }
}

fn as_logical(value: Eval<'_>) -> Result<bool, EvalError> {
    match value {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(_) => Err(EvalError::overload()),
        Err(error) => Err(error),
    }
}

/// The result of a logical operator, of which the first error is kept unless a value decides.
fn combine(first: Result<bool, EvalError>, second: Result<bool, EvalError>, decisive: bool) -> Result<bool, EvalError> {
    match (first, second) {
        (Err(error), _) if error.is_cancelled() => Err(error),
        (_, Err(error)) if error.is_cancelled() => Err(error),
        (Ok(first), _) if first == decisive => Ok(decisive),
        (_, Ok(second)) if second == decisive => Ok(decisive),
        (Err(error), _) | (_, Err(error)) => Err(error),
        _ => Ok(!decisive),
    }
}

/// Calls and aggregates.
impl<'a, 'p> Evaluator<'_, 'a, 'p> {
    fn eval_call(&mut self, call: &'p CallNode) -> Eval<'a> {
        match &call.args[..] {
            [] => self.eval_constant(call),
            [only] => self.eval_unary(call, only),
            [first, second] => self.eval_binary(call, first, second),
            args => {
                let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                self.invoke(call, &args)
            }
        }
    }

    fn eval_constant(&mut self, call: &'p CallNode) -> Eval<'a> {
        self.tracker.charge(1)?;
        match &call.value {
            Some(value) => Ok(value.clone()),
            None => (call.function)(&self.call, &[]),
        }
    }

    fn eval_unary(&mut self, call: &'p CallNode, only: &'p Node) -> Eval<'a> {
        match self.eval(only) {
            Ok(arg) => self.invoke(call, &[arg]),
            Err(error) => {
                if !error.is_cancelled() {
                    self.tracker.charge(1)?;
                }
                Err(error)
            }
        }
    }

    fn eval_binary(&mut self, call: &'p CallNode, first: &'p Node, second: &'p Node) -> Eval<'a> {
        let (first, second) = (self.eval(first), self.eval(second));
        let (first, second) = self.both(first, second)?;
        self.invoke(call, &[first, second])
    }

    fn invoke(&mut self, call: &'p CallNode, args: &[Value<'a>]) -> Eval<'a> {
        if let (true, Some(Value::List(list))) = (call.cost.is_traversal(), args.first()) {
            self.tracker.step(list.len())?;
        }
        if !call.cost.needs_result() {
            self.tracker.charge(call.cost.compute(args))?;
        }
        let result = match &call.regex {
            Some(compiled) => regex::call_with(&self.call, &call.name, compiled, args),
            None => (call.function)(&self.call, args),
        };
        match result {
            Ok(value) if call.cost.needs_result() => {
                let value = [value];
                self.tracker.charge(call.cost.compute(&value))?;
                let [value] = value;
                Ok(value)
            }
            Err(EvalError::NoSuchOverload(detail)) if detail.is_empty() => Err(no_overload(call, args)),
            result => result,
        }
    }

    fn eval_list(&mut self, elements: &'p [Node], optionals: &[usize]) -> Eval<'a> {
        let mut items = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let value = self.eval(element)?;
            match value {
                Value::Optional(value) if optionals.binary_search(&at).is_ok() => {
                    items.extend(value.map(|value| (*value).clone()))
                }
                value if optionals.binary_search(&at).is_ok() => {
                    let message = "cannot initialize optional list element from non-optional value ";
                    return Err(EvalError::failed(format!("{message}{}", display(&value))));
                }
                value => items.push(value),
            }
        }
        self.tracker.charge(cost::LIST)?;
        Ok(Value::list(items))
    }

    fn eval_map(&mut self, entries: &'p [EntryNode]) -> Eval<'a> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let (key, value) = (self.eval(&entry.key)?, self.eval(&entry.value)?);
            let Some(found) = Key::of(&key) else {
                return Err(EvalError::failed(format!("unsupported key type: {}", key.type_of().name())));
            };
            match unwrap_optional(value, entry.optional, || display(&key))? {
                Some(value) => map.insert(found, value),
                None => map.remove(&found),
            };
        }
        self.tracker.charge(cost::MAP)?;
        Ok(Value::Map(Map::from_entries(map)))
    }

    fn eval_object(&mut self, name: &Arc<str>, fields: &'p [FieldNode]) -> Eval<'a> {
        let mut values = BTreeMap::new();
        for field in fields {
            let value = self.eval(&field.value)?;
            match unwrap_optional(value, field.optional, || field.name.to_string())? {
                Some(value) => values.insert(field.name.clone(), value),
                None => values.remove(&field.name),
            };
        }
        self.tracker.charge(cost::OBJECT)?;
        if let Some(value) = build_message(name, |field| values.get(field).cloned()) {
            return value;
        }
        let object = Object { type_name: name.clone(), fields: values.into_iter().collect() };
        Ok(Value::Object(Arc::new(object)))
    }
}

/// Operators have no name in the message, functions have it with the types of their arguments.
fn no_overload(call: &CallNode, args: &[Value<'_>]) -> EvalError {
    if call.name.contains(['_', '@']) {
        return EvalError::overload();
    }
    let types: Vec<String> = args.iter().map(|arg| arg.type_of().name().to_owned()).collect();
    EvalError::NoSuchOverload(format!("{}({})", call.name, types.join(", ")).into())
}

/// The value of an optional entry, which is omitted if it has none.
fn unwrap_optional<'a>(
    value: Value<'a>,
    optional: bool,
    name: impl Fn() -> String,
) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(value) => Ok(value.map(|value| (*value).clone())),
        value => {
            let message =
                format!("cannot initialize optional entry '{}' from non-optional value {}", name(), display(&value));
            Err(EvalError::failed(message))
        }
    }
}
