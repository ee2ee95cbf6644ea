//! Evaluates the rules of an object. All of them share a budget; what has not changed since the stored object may stay
//! invalid, with a warning.

use api::field::{Errors, Path, Value as Shown};
use api::{Str, Tree};
use cel::{Budget, EvalError, Evaluation, Program, Value};

use super::{Rule, RuleSet};

const EXHAUSTED: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// Whether an evaluation should stop, because its result is not needed any more.
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

/// How rules are evaluated.
#[derive(Clone, Copy, Default)]
pub(crate) struct EvaluationOptions<'a> {
    /// Errors of unchanged values become warnings.
    pub ratchets: bool,
    pub interrupt: Option<Interrupt<'a>>,
}

/// Evaluates all rules for a value; `old` is the stored one.
pub(crate) fn evaluate(
    set: &RuleSet,
    value: &Tree,
    old: Option<&Tree>,
    options: EvaluationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut evaluator = Evaluator::new(options.interrupt, errors);
    let ratchet = if options.ratchets { Ratchet { own: Some((value, old)), parent: None } } else { Ratchet::default() };
    // The rest is not evaluated once the budget is used up.
    let _ = evaluator.node(set, Subject { value, old, ratchet }, path);
}

/// Validation ratcheting: the values whose equality decides whether an error becomes a warning.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    own: Option<(&'a Tree, Option<&'a Tree>)>,
    parent: Option<(&'a Tree, Option<&'a Tree>)>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(&self) -> bool {
        self.own.or(self.parent).is_some_and(|(new, old)| old == Some(new))
    }

    fn below(&self, new: &'a Tree, old: Option<&'a Tree>) -> Ratchet<'a> {
        match self.own {
            None => *self,
            Some(own) => Ratchet { own: old.map(|old| (new, Some(old))), parent: Some(own) },
        }
    }
}

/// A value with the stored one, and how validation ratcheting treats them.
#[derive(Clone, Copy)]
struct Subject<'a> {
    value: &'a Tree,
    old: Option<&'a Tree>,
    ratchet: Ratchet<'a>,
}

impl<'a> Subject<'a> {
    /// An item or a field of the value.
    fn child(&self, value: &'a Tree, old: Option<&'a Tree>) -> Subject<'a> {
        Subject { value, old, ratchet: self.ratchet.below(value, old) }
    }
}

/// The cost budget or the time is used up.
struct BudgetExhausted;

struct Evaluator<'a> {
    /// The remaining cost budget of the object.
    left: u64,
    /// The remaining steps of the object.
    steps: u64,
    interrupt: Option<Interrupt<'a>>,
    errors: &'a mut Errors,
}

impl<'a> Evaluator<'a> {
    fn new(interrupt: Option<Interrupt<'a>>, errors: &'a mut Errors) -> Evaluator<'a> {
        Evaluator { left: cel::limits::RUNTIME_COST_BUDGET, steps: cel::limits::MAX_STEPS, interrupt, errors }
    }

    fn run<'v>(&mut self, program: &Program, activation: &[(&str, Value<'v>); 2]) -> Evaluation<'v> {
        let budget = Budget::default().steps(self.steps);
        let budget = match self.interrupt {
            Some(interrupt) => budget.interrupt(interrupt),
            None => budget,
        };
        let evaluation = program.evaluate(activation, budget);
        self.steps = self.steps.saturating_sub(evaluation.steps);
        evaluation
    }

    fn node(&mut self, set: &RuleSet, subject: Subject<'_>, path: &Path<'_>) -> Result<(), BudgetExhausted> {
        if subject.value.is_null() {
            return Ok(());
        }
        let subject = Subject { old: subject.old.filter(|old| !old.is_null()), ..subject };
        self.rules(set, subject, path)?;
        match subject.value {
            Tree::List(items) => self.items(set, items, subject, path),
            Tree::Map(_) => self.fields(set, subject, path),
            _ => Ok(()),
        }
    }

    fn items(
        &mut self,
        set: &RuleSet,
        items: &[Tree],
        subject: Subject<'_>,
        path: &Path<'_>,
    ) -> Result<(), BudgetExhausted> {
        let Some(inner) = &set.items else { return Ok(()) };
        for (index, item) in items.iter().enumerate() {
            let old = subject.old.and_then(|old| correlated(item, old, &set.list_keys));
            self.node(inner, subject.child(item, old), &path.index(index))?;
        }
        Ok(())
    }

    fn fields(&mut self, set: &RuleSet, subject: Subject<'_>, path: &Path<'_>) -> Result<(), BudgetExhausted> {
        let old_field = |name: &str| subject.old.and_then(|old| old.get(name));
        if let Some(inner) = &set.additional {
            for (name, value) in subject.value.as_map().into_iter().flat_map(|map| map.iter()) {
                self.node(inner, subject.child(value, old_field(name)), &path.key(name))?;
            }
        }
        for (name, inner) in &set.properties {
            if let Some(value) = subject.value.get(name) {
                self.node(inner, subject.child(value, old_field(name)), &path.field(name))?;
            }
        }
        Ok(())
    }

    fn rules(&mut self, set: &RuleSet, subject: Subject<'_>, path: &Path<'_>) -> Result<(), BudgetExhausted> {
        for rule in &set.rules {
            if self.left == 0 {
                self.errors.invalid(path, set.ty.as_str(), EXHAUSTED);
                return Err(BudgetExhausted);
            }
            self.rule(rule, set, subject, path)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        rule: &Rule,
        set: &RuleSet,
        subject: Subject<'_>,
        path: &Path<'_>,
    ) -> Result<(), BudgetExhausted> {
        if let Some(error) = &rule.compiled.error {
            self.errors.invalid(path, set.ty.as_str(), &format!("rule compile error: {error}"));
            return Ok(());
        }
        let Some(program) = &rule.compiled.program else { return Ok(()) };
        if rule.compiled.uses_old_self && subject.old.is_none() && !rule.is_optional {
            return Ok(());
        }
        let result = match activation(set, subject, rule.is_optional) {
            Ok(activation) => self.evaluate_program(program, &activation, set, path)?,
            Err(error) => Err(error),
        };
        match result {
            Ok(true) => Ok(()),
            Ok(false) => self.report(rule, set, subject, path),
            Err(error) => self.fail(rule, set, &error, path),
        }
    }

    fn evaluate_program(
        &mut self,
        program: &Program,
        activation: &[(&str, Value<'_>); 2],
        set: &RuleSet,
        path: &Path<'_>,
    ) -> Result<Result<bool, EvalError>, BudgetExhausted> {
        let evaluation = self.run(program, activation);
        let Some(left) = self.left.checked_sub(evaluation.cost) else {
            self.errors.invalid(path, set.ty.as_str(), EXHAUSTED);
            return Err(BudgetExhausted);
        };
        self.left = left;
        Ok(evaluation.result.map(|value| value.as_bool() == Some(true)))
    }

    fn fail(&mut self, rule: &Rule, set: &RuleSet, error: &EvalError, path: &Path<'_>) -> Result<(), BudgetExhausted> {
        let (shown, text) = (shown_rule(rule), error.to_string());
        if matches!(error, EvalError::NoSuchOverload(_) | EvalError::UnsupportedArgument) {
            let why = format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            );
            self.errors.invalid(path, set.ty.as_str(), &why);
            return Ok(());
        }
        if matches!(error, EvalError::CostLimitExceeded) {
            let why = format!(
                "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            );
            self.errors.invalid(path, set.ty.as_str(), &why);
            return Err(BudgetExhausted);
        }
        self.errors.invalid(path, set.ty.as_str(), &format!("{text} evaluating rule: {shown}"));
        if matches!(error, EvalError::Interrupted) { Err(BudgetExhausted) } else { Ok(()) }
    }

    fn report(
        &mut self,
        rule: &Rule,
        set: &RuleSet,
        subject: Subject<'_>,
        path: &Path<'_>,
    ) -> Result<(), BudgetExhausted> {
        let mut found = Errors::new();
        let at = match rule.compiled.field_path.as_str() {
            "" => *path,
            below => path.field(below),
        };
        let message = self.message(rule, set, subject, &at, &mut found);
        if let Ok(message) = &message {
            add_error(rule, set, subject.value, message, &at, &mut found);
        }
        let is_ratcheted = !rule.compiled.uses_old_self && subject.ratchet.is_unchanged();
        for error in found.iter() {
            if is_ratcheted {
                self.errors.warn(error.to_string());
            } else {
                self.errors.push(error.clone());
            }
        }
        message.map(drop)
    }

    /// The message of a violated rule: the result of its message expression, if it is usable.
    fn message(
        &mut self,
        rule: &Rule,
        set: &RuleSet,
        subject: Subject<'_>,
        path: &Path<'_>,
        found: &mut Errors,
    ) -> Result<String, BudgetExhausted> {
        let default = || match rule.message.trim() {
            "" => format!("failed rule: {}", rule.text.trim()),
            message => message.to_string(),
        };
        let Some(program) = &rule.compiled.message else { return Ok(default()) };
        let Ok(activation) = activation(set, subject, rule.is_optional) else { return Ok(default()) };
        let evaluation = self.run(program, &activation);
        let expression = rule.message_expression.as_str();
        let why = match (&evaluation.result, self.left.checked_sub(evaluation.cost)) {
            (Err(EvalError::CostLimitExceeded), _) => {
                format!("no further validation rules will be run due to call cost exceeds limit for messageExpression: {expression:?}")
            }
            (Err(EvalError::Interrupted), _) => {
                format!("no further validation rules will be run due to an interruption of messageExpression: {expression:?}")
            }
            (_, None) => "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_string(),
            (result, Some(left)) => {
                self.left = left;
                let text = result.as_ref().ok().and_then(Value::as_str).map(str::trim).unwrap_or("").to_string();
                let is_usable =
                    !text.is_empty() && !text.contains('\n') && text.len() <= cel::limits::MAX_EVALUATED_MESSAGE_LENGTH;
                return Ok(if is_usable { text } else { default() });
            }
        };
        found.invalid(path, set.ty.as_str(), &why);
        Err(BudgetExhausted)
    }
}

fn activation<'a>(
    set: &'a RuleSet,
    subject: Subject<'a>,
    is_optional: bool,
) -> Result<[(&'static str, Value<'a>); 2], EvalError> {
    let this = Value::read(subject.value, Some(&set.schema))?;
    let old = subject.old.map(|old| Value::read(old, Some(&set.schema))).transpose()?;
    let old = match (is_optional, old) {
        (true, Some(old)) => Value::some(old),
        (true, None) => Value::Optional(None),
        (false, old) => old.unwrap_or(Value::Null),
    };
    Ok([("self", this), ("oldSelf", old)])
}

fn shown_rule(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() }
}

/// Compound values are not shown.
fn add_error(rule: &Rule, set: &RuleSet, value: &Tree, message: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_compound = matches!(set.ty.as_str(), "object" | "array");
    match rule.reason.as_str() {
        "FieldValueForbidden" => errors.forbidden(path, message),
        "FieldValueRequired" => errors.required(path, message),
        "FieldValueDuplicate" if is_compound => errors.duplicate_omitted(path),
        "FieldValueDuplicate" => errors.duplicate(path, value),
        _ if is_compound => errors.invalid_omitted(path, message),
        _ => errors.invalid(path, Shown::from(value), message),
    }
}

fn correlated<'a>(item: &Tree, old: &'a Tree, keys: &[Str]) -> Option<&'a Tree> {
    let is_same = |other: &&Tree| keys.iter().all(|key| item.get(key) == other.get(key));
    let mut found = old.as_list()?.iter().filter(|_| !keys.is_empty()).filter(is_same);
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests;
