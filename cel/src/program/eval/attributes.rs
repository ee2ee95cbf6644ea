//! Variables and values with selections of their parts.

use super::super::node::{Attribute, Base, Qualifier, QualifierKey};
use super::{Eval, Evaluator, Slot};
use crate::value::{EvalError, Value};

impl<'a, 'p> Evaluator<'_, 'a, 'p> {
    pub(super) fn eval_attribute(&mut self, attribute: &'p Attribute) -> Eval<'a> {
        let value = self.resolve(attribute);
        let conditional = matches!(attribute.base, Base::Conditional(_));
        match (conditional, attribute.test) {
            (false, false) => self.tracker.charge(1)?,
            (true, true) => self.tracker.refund(1),
            _ => {}
        }
        let value = value?;
        match (attribute.test, &value) {
            (true, Value::Optional(present)) => Ok(Value::Bool(present.is_some())),
            _ => Ok(value),
        }
    }

    /// The value of an attribute without the cost of reading it; its qualifiers do cost.
    fn resolve(&mut self, attribute: &'p Attribute) -> Eval<'a> {
        let base = match &attribute.base {
            Base::Variable(name) => {
                if let Some(value) = self.resolve_field(name, attribute) {
                    self.tracker.charge(1)?;
                    return self.qualify(value?, attribute, 1);
                }
                match self.activation.resolve(name) {
                    Some(value) => value?,
                    None => return Err(EvalError::NoSuchAttribute((&**name).into())),
                }
            }
            Base::Local(slot) => self.read_slot(*slot)?,
            Base::Value(node) => self.eval(node)?,
            Base::Conditional(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.resolve(&parts.1)?,
                Value::Bool(false) => self.resolve(&parts.2)?,
                _ => return Err(EvalError::overload()),
            },
        };
        self.qualify(base, attribute, 0)
    }

    /// The first field of a variable, if it is computed when it is read.
    fn resolve_field(&mut self, variable: &str, attribute: &'p Attribute) -> Option<Eval<'a>> {
        let first = attribute.qualifiers.first().filter(|first| !first.optional)?;
        let is_test = attribute.test && attribute.qualifiers.len() == 1;
        match &first.key {
            QualifierKey::Const(Value::String(field)) if !is_test => self.activation.resolve_field(variable, field),
            _ => None,
        }
    }

    fn read_slot(&mut self, slot: usize) -> Eval<'a> {
        match &self.slots[slot] {
            Slot::Ready(value) => value.clone(),
            Slot::Empty => Err(EvalError::overload()),
            Slot::Lazy(init) => {
                let value = self.eval(init);
                self.slots[slot] = Slot::Ready(value.clone());
                value
            }
        }
    }

    /// Applies the qualifiers from an index on.
    fn qualify(&mut self, base: Value<'a>, attribute: &'p Attribute, from: usize) -> Eval<'a> {
        if attribute.qualifiers.len() == from {
            return Ok(base);
        }
        let (mut value, mut optional) = match base {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            value => (value, false),
        };
        let last = attribute.qualifiers.len() - 1;
        for (at, qualifier) in attribute.qualifiers.iter().enumerate().skip(from) {
            optional |= qualifier.optional;
            let is_test = attribute.test && at == last;
            let selection = self.apply(&value, qualifier);
            if !optional || matches!(selection, Ok(Selection::Found(_))) {
                self.tracker.charge(1)?;
            }
            value = match selection? {
                found if is_test => Value::Bool(matches!(found, Selection::Found(_))),
                Selection::Found(found) => found,
                Selection::Missing(_) if optional => return Ok(Value::Optional(None)),
                Selection::Missing(error) => return Err(error),
            };
        }
        if optional && !attribute.test { Ok(Value::some(value)) } else { Ok(value) }
    }

    /// The part of a value that a qualifier selects.
    fn apply(&mut self, value: &Value<'a>, qualifier: &'p Qualifier) -> Result<Selection<'a>, EvalError> {
        match &qualifier.key {
            QualifierKey::Const(key) => select(value, key),
            QualifierKey::Attribute(attribute) => {
                let key = self.resolve(attribute)?;
                select(value, &key)
            }
            QualifierKey::Value(node) => {
                let key = self.eval(node)?;
                select(value, &key)
            }
        }
    }
}

/// A part of a value.
enum Selection<'a> {
    Found(Value<'a>),
    /// There is none, with the error that this is unless it is tested for.
    Missing(EvalError),
}

/// A key as messages show it.
pub(super) fn display(value: &Value<'_>) -> String {
    match crate::library::conversions::to_string(value) {
        Ok(Value::String(text)) => text.to_string(),
        _ => format!("{value:?}"),
    }
}

/// A number that can be an index.
fn as_index(key: &Value<'_>) -> Option<i64> {
    match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) if index.fract() == 0.0 => Some(*index as i64),
        _ => None,
    }
}

fn select<'a>(value: &Value<'a>, key: &Value<'a>) -> Result<Selection<'a>, EvalError> {
    let found = match value {
        Value::Map(map) => map.select(key)?,
        Value::List(list) => {
            let index = as_index(key).ok_or_else(|| {
                EvalError::failed(format!("unsupported index type '{}' in list", key.type_of().name()))
            })?;
            return match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                Some(item) => item.map(Selection::Found),
                None => Ok(Selection::Missing(EvalError::IndexOutOfBounds(index))),
            };
        }
        Value::Object(object) => {
            let field = object.fields.iter().find(|(name, _)| key.as_str() == Some(&**name));
            field.map(|(_, value)| value.clone())
        }
        _ => None,
    };
    Ok(match found {
        Some(found) => Selection::Found(found),
        None => Selection::Missing(EvalError::NoSuchKey(display(key).into())),
    })
}
