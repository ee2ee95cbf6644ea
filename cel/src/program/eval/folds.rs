//! Comprehensions.

use std::collections::BTreeMap;

use super::super::node::{Body, Fold, Node};
use super::{Eval, Evaluator, Slot, as_logical, combine};
use crate::limits::CHECK_FREQUENCY;
use crate::value::{EvalError, List, Map, Value};

impl<'a, 'p> Evaluator<'_, 'a, 'p> {
    pub(super) fn eval_fold(&mut self, fold: &'p Fold) -> Eval<'a> {
        let range = self.eval(&fold.range)?;
        if let Value::Map(map) = &range {
            // Its keys are collected.
            self.tracker.step(map.len())?;
        }
        let range = Range::of(&range)?;
        match &fold.body {
            Body::All(predicate) => self.quantify(fold, &range, predicate, false),
            Body::Exists(predicate) => self.quantify(fold, &range, predicate, true),
            Body::Append { filter, element, cost } => self.append(fold, &range, filter.as_ref(), element, *cost),
            Body::Insert { filter, args } => self.insert(fold, &range, filter.as_ref(), args),
            Body::General { accumulator, init, condition, step, result } => {
                self.slots[*accumulator] = Slot::Lazy(init);
                for at in 0..range.len() {
                    self.next_item(fold, &range, at)?;
                    let condition = self.eval(condition);
                    match condition {
                        Ok(Value::Bool(false)) => break,
                        Err(error) if error.is_cancelled() => return Err(error),
                        _ => {}
                    }
                    let value = self.eval(step);
                    if let Err(error) = &value
                        && error.is_cancelled()
                    {
                        return value;
                    }
                    self.slots[*accumulator] = Slot::Ready(value);
                }
                self.eval(result)
            }
        }
    }

    /// Sets the variables of the loop.
    fn next_item(&mut self, fold: &Fold, range: &Range<'a>, at: usize) -> Result<(), EvalError> {
        self.tracker.step(1)?;
        if (at as u64 + 1).is_multiple_of(CHECK_FREQUENCY) {
            self.tracker.check_interrupt()?;
        }
        match fold.variable2 {
            None => self.slots[fold.variable] = Slot::Ready(range.item(at)),
            Some(second) => {
                self.slots[fold.variable] = Slot::Ready(Ok(range.key(at)));
                self.slots[second] = Slot::Ready(range.value(at));
            }
        }
        Ok(())
    }

    /// `all` and `exists`: the accumulator is read in the condition, in the step, and as the result.
    fn quantify(&mut self, fold: &'p Fold, range: &Range<'a>, predicate: &'p Node, decisive: bool) -> Eval<'a> {
        let condition_cost = if decisive { 3 } else { 2 };
        let mut result = Ok(!decisive);
        for at in 0..range.len() {
            self.next_item(fold, range, at)?;
            self.tracker.charge(condition_cost)?;
            if result == Ok(decisive) {
                break;
            }
            self.tracker.charge(1)?;
            let value = as_logical(self.eval(predicate));
            result = combine(result, value, decisive);
            if let Err(error) = &result
                && error.is_cancelled()
            {
                return Err(error.clone());
            }
        }
        self.tracker.charge(1)?;
        result.map(Value::Bool)
    }

    fn passes(&mut self, filter: Option<&'p Node>) -> Result<bool, EvalError> {
        let Some(filter) = filter else { return Ok(true) };
        match self.eval(filter)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvalError::overload()),
        }
    }

    fn append(
        &mut self,
        fold: &'p Fold,
        range: &Range<'a>,
        filter: Option<&'p Node>,
        element: &'p Node,
        cost: u64,
    ) -> Eval<'a> {
        let mut items = Vec::new();
        for at in 0..range.len() {
            self.next_item(fold, range, at)?;
            if self.passes(filter)? {
                let item = self.eval(element)?;
                self.tracker.charge(cost)?;
                items.push(item);
            }
        }
        self.tracker.charge(1)?;
        Ok(Value::list(items))
    }

    fn insert(&mut self, fold: &'p Fold, range: &Range<'a>, filter: Option<&'p Node>, args: &'p [Node]) -> Eval<'a> {
        let mut map = Map::from_entries(BTreeMap::new());
        for at in 0..range.len() {
            self.next_item(fold, range, at)?;
            if self.passes(filter)? {
                let entry = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                // The accumulator and the call.
                self.tracker.charge(2)?;
                crate::library::insert_into(&mut map, &entry)?;
            }
        }
        self.tracker.charge(1)?;
        Ok(Value::Map(map))
    }
}

/// The range of a loop.
enum Range<'a> {
    List(List<'a>),
    Map(Map<'a>, Vec<Value<'a>>),
}

impl<'a> Range<'a> {
    fn of(value: &Value<'a>) -> Result<Range<'a>, EvalError> {
        match value {
            Value::List(list) => Ok(Range::List(list.clone())),
            Value::Map(map) => Ok(Range::Map(map.clone(), map.keys())),
            other => {
                let name = other.type_of();
                Err(EvalError::failed(format!("got '{}', expected iterable type", name.name())))
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Map(_, keys) => keys.len(),
        }
    }

    /// The variable of a loop with one: an item or a key.
    fn item(&self, at: usize) -> Eval<'a> {
        match self {
            Range::List(_) => self.value(at),
            Range::Map(..) => Ok(self.key(at)),
        }
    }

    fn key(&self, at: usize) -> Value<'a> {
        match self {
            Range::List(_) => Value::Int(i64::try_from(at).unwrap_or(i64::MAX)),
            Range::Map(_, keys) => keys[at].clone(),
        }
    }

    fn value(&self, at: usize) -> Eval<'a> {
        let missing = || Err(EvalError::overload());
        match self {
            Range::List(list) => list.get(at).unwrap_or_else(missing),
            Range::Map(map, keys) => map.find(&keys[at])?.map_or_else(missing, Ok),
        }
    }
}
