//! Lists, objects and comprehensions.

use super::Checker;
use crate::library::find_message;
use crate::syntax::ast::{Comprehension, Expr, ExprId, MapEntry, StructField};
use crate::types::{Type, most_general};

impl Checker<'_> {
    /// The common type of previous items and this one.
    pub(super) fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        // Literals of several types are refused later, except as arguments of `format`.
        match self.substitutions.assign(&previous, &current) {
            true => most_general(&previous, &current).clone(),
            false => Type::Dyn,
        }
    }

    /// The type of an optional value.
    pub(super) fn visit_optional(&mut self, id: ExprId, optional: bool) -> Type {
        self.visit(id);
        let of = self.get(id);
        if !optional {
            return of;
        }
        match of.optional_value() {
            Some(value) => value.clone(),
            None => {
                if !of.is_dyn() {
                    self.report_mismatch(id, &Type::optional(of.clone()), &of);
                }
                of
            }
        }
    }

    pub(super) fn visit_list(&mut self, elements: &[ExprId], optionals: &[usize]) -> Type {
        let mut item = None;
        for (at, element) in elements.iter().enumerate() {
            let of = self.visit_optional(*element, optionals.binary_search(&at).is_ok());
            item = Some(self.join(item.take(), of));
        }
        let item = item.unwrap_or_else(|| self.new_variable());
        Type::list(item)
    }

    pub(super) fn visit_map(&mut self, entries: &[MapEntry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.visit(entry.key);
            let key = self.get(entry.key);
            keys = Some(self.join(keys.take(), key));
            let value = self.visit_optional(entry.value, entry.optional);
            values = Some(self.join(values.take(), value));
        }
        match (keys, values) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => Type::map(self.new_variable(), self.new_variable()),
        }
    }

    pub(super) fn visit_struct(&mut self, id: ExprId, name: &str, fields: &[StructField]) -> Type {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let message = find_message(plain);
        let found = message.as_ref().map(|(of, _)| of.clone()).or_else(|| self.env.find_type(plain));
        let Some(of) = found else { return self.report_undeclared(id, name) };
        let is_object = matches!(of, Type::Object(_));
        if !is_object && message.is_none() {
            self.report(id, format!("'{of}' is not a message type"));
        }
        self.checked.ast.set(id, Expr::Struct { name: plain.into(), fields: fields.to_vec() });
        for field in fields {
            let declared = match &message {
                Some((_, declared)) => {
                    declared.iter().find(|(name, _)| **name == *field.name).map(|(_, of)| of.clone())
                }
                None if is_object => self.env.find_field(plain, &field.name),
                None => Some(Type::Error),
            };
            self.visit_field(field, declared);
        }
        if is_object || message.is_some() { of } else { Type::Error }
    }

    fn visit_field(&mut self, field: &StructField, declared: Option<Type>) {
        let value = self.visit_optional(field.value, field.optional);
        let name = &field.name;
        let Some(declared) = declared else {
            return self.report_at(field.offset, format!("undefined field '{name}'"));
        };
        if !self.substitutions.assign(&declared, &value) {
            let message = format!("expected type of field '{name}' is '{declared}' but provided type is '{value}'");
            self.report_at(field.offset, message);
        }
    }

    pub(super) fn visit_comprehension(&mut self, fold: &Comprehension) -> Type {
        self.visit(fold.range);
        self.visit(fold.init);
        let range = self.substitutions.apply(&self.get(fold.range), false);
        let accumulator = self.get(fold.init);
        let (first, second) = self.iteration_types(fold, &range);
        self.scopes.push((fold.accumulator.clone(), accumulator.clone()));
        let depth = self.scopes.len();
        self.scopes.push((fold.variable.clone(), first));
        if let Some(variable) = &fold.variable2 {
            self.scopes.push((variable.clone(), second));
        }
        self.visit(fold.condition);
        self.assert_type(fold.condition, &Type::Bool);
        self.visit(fold.step);
        self.assert_type(fold.step, &accumulator);
        self.scopes.truncate(depth);
        self.visit(fold.result);
        self.scopes.truncate(depth - 1);
        self.substitutions.apply(&self.get(fold.result), false)
    }

    /// The types of the variables of a loop.
    fn iteration_types(&mut self, fold: &Comprehension, range: &Type) -> (Type, Type) {
        let has_two = fold.variable2.is_some();
        match range {
            Type::List(item) if has_two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Error),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitutions.assign(&Type::Dyn, range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn assert_type(&mut self, id: ExprId, expected: &Type) {
        let found = self.get(id);
        if !self.substitutions.assign(expected, &found) {
            self.report_mismatch(id, expected, &found);
        }
    }
}
