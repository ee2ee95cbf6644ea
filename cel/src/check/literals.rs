//! Checks of literals: lists and maps have items of one type, and literal arguments of some functions are valid.

use super::Checked;
use crate::library::formatting::{self, FormatError};
use crate::library::regex::Regex;
use crate::library::{Call, find_function};
use crate::syntax::ast::{Expr, ExprId, Literal};
use crate::syntax::{Issue, Source};
use crate::types::Type;
use crate::value::{CostTracker, Value};

pub(super) fn check(checked: &Checked, root: ExprId, source: &Source<'_>) -> Vec<Issue> {
    let mut literals = Literals { checked, source, errors: Vec::new() };
    literals.visit(root, false);
    literals.errors
}

struct Literals<'c> {
    checked: &'c Checked,
    source: &'c Source<'c>,
    errors: Vec<Issue>,
}

impl Literals<'_> {
    fn report(&mut self, id: ExprId, message: String) {
        let offset = self.checked.ast.offset(id);
        self.errors.push(self.source.error(Some(offset), message));
    }

    /// Visits a node. Items of `format` may have different types.
    fn visit(&mut self, id: ExprId, exempt: bool) {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => self.visit(*operand, exempt),
            Expr::Call { function, target, args } => {
                let exempt = exempt || &**function == "format";
                self.check_call(id, function, *target, args);
                target.iter().chain(args).for_each(|child| self.visit(*child, exempt));
            }
            Expr::List { elements, optionals } => {
                if !exempt {
                    self.check_list(elements, optionals);
                }
                elements.iter().for_each(|element| self.visit(*element, exempt));
            }
            Expr::Map(entries) => {
                if !exempt {
                    self.check_items(entries.iter().map(|entry| (entry.key, false)), false);
                    self.check_items(entries.iter().map(|entry| (entry.value, entry.optional)), false);
                }
                entries.iter().flat_map(|entry| [entry.key, entry.value]).for_each(|child| self.visit(child, exempt));
            }
            Expr::Struct { fields, .. } => fields.iter().for_each(|field| self.visit(field.value, exempt)),
            Expr::Comprehension(fold) => {
                for child in [fold.range, fold.init, fold.condition, fold.step, fold.result] {
                    self.visit(child, exempt);
                }
            }
        }
    }

    fn check_list(&mut self, elements: &[ExprId], optionals: &[usize]) {
        let items = elements.iter().enumerate().map(|(at, element)| (*element, optionals.binary_search(&at).is_ok()));
        self.check_items(items, true);
    }

    /// All items have the type of the first one.
    fn check_items(&mut self, items: impl Iterator<Item = (ExprId, bool)>, only_first: bool) {
        let mut expected: Option<&Type> = None;
        let checked = self.checked;
        for (id, optional) in items {
            let own = checked.type_of(id);
            let own = if optional { own.optional_value().unwrap_or(own) } else { own };
            match expected {
                None => expected = Some(own),
                Some(expected) if !expected.is_equivalent(own) => {
                    self.report(id, format!("expected type '{expected}' but found '{own}'"));
                    if only_first {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn check_call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) {
        let Some(first) = args.first() else { return };
        let literal = match self.checked.ast.expr(*first) {
            Expr::Literal(literal) => Some(literal),
            _ => None,
        };
        let valid = match (function, literal) {
            ("duration" | "timestamp", Some(literal)) => converts(function, literal),
            ("matches", Some(Literal::String(pattern))) => Regex::new(pattern).is_ok(),
            ("format", None) => return self.check_format(id, target, *first),
            _ => return,
        };
        if !valid {
            self.report(*first, format!("invalid {function} argument"));
        }
    }

    fn check_format(&mut self, id: ExprId, target: Option<ExprId>, list: ExprId) {
        let checked = self.checked;
        let (Some(target), Expr::List { elements, .. }) = (target, checked.ast.expr(list)) else { return };
        let Expr::Literal(Literal::String(format)) = checked.ast.expr(target) else { return };
        let mut culprit = id;
        let walked = formatting::walk(format, elements.len(), |index, clause| {
            match self.find_unformattable(elements[index], clause) {
                None => Ok(String::new()),
                Some(part) => {
                    culprit = part;
                    Err(clause.refuse(checked.type_of(part)))
                }
            }
        });
        match walked {
            Ok((_, used)) if elements.len() > used => {
                let count = elements.len();
                let message = format!("too many arguments supplied to string.format (expected {used}, got {count})");
                self.report(id, message);
            }
            Ok(_) => {}
            Err(error @ FormatError::Argument(_)) => self.report(culprit, error.to_string()),
            Err(error) => self.report(id, error.to_string()),
        }
    }

    /// The part of an argument that a clause cannot format; items of literals are looked at too.
    fn find_unformattable(&self, id: ExprId, clause: formatting::Clause) -> Option<ExprId> {
        if !clause.accepts(self.checked.type_of(id)) {
            return Some(id);
        }
        if clause != formatting::Clause::String {
            return None;
        }
        match self.checked.ast.expr(id) {
            Expr::List { elements, .. } => elements.iter().find_map(|item| self.find_unformattable(*item, clause)),
            Expr::Map(entries) => entries
                .iter()
                .flat_map(|entry| [entry.key, entry.value])
                .find_map(|item| self.find_unformattable(item, clause)),
            _ => None,
        }
    }
}

/// Whether a conversion accepts a literal.
fn converts(function: &str, literal: &Literal) -> bool {
    let value = match literal {
        Literal::String(text) => Value::string(text.clone()),
        Literal::Int(value) => Value::Int(*value),
        _ => return false,
    };
    let tracker = CostTracker::without_cost_limit();
    find_function(function).is_some_and(|convert| convert(&Call::new(&tracker, None), &[value]).is_ok())
}
