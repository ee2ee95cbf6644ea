//! From a checked expression to its plan. Constants are folded where upstream folds them, since that changes costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::node::{Attribute, Base, Bind, Body, CallNode, EntryNode, FieldNode, Fold, Node, Qualifier, QualifierKey};
use crate::check::{Checked, Reference};
use crate::cost::{self, CallCost};
use crate::library::regex::{Regex, takes_pattern};
use crate::library::{Call, conversions, find_constant, find_function};
use crate::syntax::ast::{Comprehension, Expr, ExprId, Literal, MapEntry, StructField};
use crate::syntax::operators as op;
use crate::value::{CostTracker, EvalError, Key, Map, Value};

/// Plans the expression; also the number of its local variables.
pub(super) fn plan(checked: &Checked) -> Result<(Node, usize), EvalError> {
    let Some(root) = checked.ast.root else { return Err(EvalError::overload()) };
    let mut planner = Planner { checked, locals: Vec::new(), slots: 0 };
    let node = planner.plan(root)?;
    Ok((node, planner.slots))
}

struct Planner<'p> {
    checked: &'p Checked,
    /// The variables in scope, the innermost last, with their slots.
    locals: Vec<(Arc<str>, usize)>,
    slots: usize,
}

type Planned = Result<Node, EvalError>;

/// Nodes.
impl Planner<'_> {
    fn plan(&mut self, id: ExprId) -> Planned {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Unspecified => Err(EvalError::overload()),
            Expr::Literal(literal) => Ok(Node::Const(constant(literal))),
            Expr::Ident(name) => self.plan_ident(id, name),
            Expr::Select { operand, field, test } => self.plan_select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.plan_call(id, function, *target, args),
            Expr::List { elements, optionals } => {
                let elements = self.plan_all(elements.iter().copied())?;
                Ok(fold_constant(Node::List { elements, optionals: optionals.clone() }))
            }
            Expr::Map(entries) => self.plan_map(entries),
            Expr::Struct { name, fields } => self.plan_object(name, fields),
            Expr::Comprehension(fold) => self.plan_fold(fold),
        }
    }

    fn plan_map(&mut self, entries: &[MapEntry]) -> Planned {
        let plan = |entry: &MapEntry| {
            let (key, value) = (self.plan(entry.key)?, self.plan(entry.value)?);
            Ok(EntryNode { key, value, optional: entry.optional })
        };
        Ok(fold_constant(Node::Map(entries.iter().map(plan).collect::<Result<_, EvalError>>()?)))
    }

    fn plan_object(&mut self, name: &Arc<str>, fields: &[StructField]) -> Planned {
        let plan = |field: &StructField| {
            let value = self.plan(field.value)?;
            Ok(FieldNode { name: field.name.clone(), value, optional: field.optional })
        };
        let fields = fields.iter().map(plan).collect::<Result<_, EvalError>>()?;
        Ok(Node::Object { name: name.clone(), fields })
    }

    fn plan_all(&mut self, ids: impl Iterator<Item = ExprId>) -> Result<Vec<Node>, EvalError> {
        ids.map(|id| self.plan(id)).collect()
    }

    fn plan_ident(&mut self, id: ExprId, name: &str) -> Planned {
        if self.checked.reference(id).is_some() {
            return Ok(self.plan_reference(id));
        }
        let local = self.locals.iter().rev().find(|(variable, _)| &**variable == name);
        let base = match local {
            Some((_, slot)) => Base::Local(*slot),
            None => Base::Variable(name.into()),
        };
        Ok(attribute(base))
    }

    fn plan_reference(&self, id: ExprId) -> Node {
        match self.checked.reference(id) {
            Some(Reference::Variable(name)) => attribute(Base::Variable(name.clone())),
            Some(Reference::Type(of)) => Node::Const(Value::Type(of.clone())),
            _ => Node::Const(Value::Null),
        }
    }

    fn plan_select(&mut self, id: ExprId, operand: ExprId, field: &Arc<str>, test: bool) -> Planned {
        if self.checked.reference(id).is_some() {
            return Ok(self.plan_reference(id));
        }
        let operand = self.plan(operand)?;
        let key = QualifierKey::Const(Value::string(field.clone()));
        Ok(qualify(operand, Qualifier { key, optional: false }, test))
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::string(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn attribute(base: Base) -> Node {
    Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test: false }))
}

/// Adds a qualifier to an attribute, or to a value, which is an attribute then.
fn qualify(operand: Node, qualifier: Qualifier, test: bool) -> Node {
    let mut attribute = match operand {
        Node::Attribute(attribute) if !attribute.test => attribute,
        node => Box::new(Attribute { base: Base::Value(node), qualifiers: Vec::new(), test: false }),
    };
    attribute.qualifiers.push(qualifier);
    attribute.test = test;
    Node::Attribute(attribute)
}

/// The attribute of a branch of a conditional.
fn branch(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) => *attribute,
        node => Attribute { base: Base::Value(node), qualifiers: Vec::new(), test: false },
    }
}

/// Lists and maps of constants are constants.
fn fold_constant(node: Node) -> Node {
    let value = |node: &Node| match node {
        Node::Const(value) => Some(value.clone()),
        _ => None,
    };
    let folded = match &node {
        Node::List { elements, optionals } if optionals.is_empty() => {
            elements.iter().map(value).collect::<Option<Vec<_>>>().map(Value::list)
        }
        Node::Map(entries) if entries.iter().all(|entry| !entry.optional) => {
            let entry = |entry: &EntryNode| Some((Key::of(&value(&entry.key)?)?, value(&entry.value)?));
            entries.iter().map(entry).collect::<Option<_>>().map(|entries| Value::Map(Map::from_entries(entries)))
        }
        _ => None,
    };
    folded.map_or(node, Node::Const)
}

/// Calls.
impl Planner<'_> {
    fn plan_call(&mut self, id: ExprId, function: &Arc<str>, target: Option<ExprId>, args: &[ExprId]) -> Planned {
        let mut args = self.plan_all(target.into_iter().chain(args.iter().copied()))?;
        let overloads = self.checked.overloads(id);
        let overload = if let [only] = overloads { only } else { "" };
        match (&**function, args.len()) {
            (op::CONDITIONAL, 3) => {
                let (no, yes) = (args.pop(), args.pop());
                let (Some(condition), Some(yes), Some(no)) = (args.pop(), yes, no) else { unreachable_call() };
                Ok(attribute(Base::Conditional(Box::new((condition, branch(yes), branch(no))))))
            }
            (op::NOT_STRICTLY_FALSE, 1) => Ok(Node::NotStrictlyFalse(Box::new(args.remove(0)))),
            (_, 2) => {
                let (second, first) = (args.pop(), args.pop());
                let (Some(first), Some(second)) = (first, second) else { unreachable_call() };
                self.plan_binary(function, overload, first, second)
            }
            _ => self.plan_function(function, overload, args),
        }
    }

    fn plan_binary(&mut self, function: &Arc<str>, overload: &str, first: Node, second: Node) -> Planned {
        match &**function {
            op::AND => Ok(Node::And(Box::new((first, second)))),
            op::OR => Ok(Node::Or(Box::new((first, second)))),
            op::EQUALS => Ok(Node::Equal { operands: Box::new((first, second)), negated: false }),
            op::NOT_EQUALS => Ok(Node::Equal { operands: Box::new((first, second)), negated: true }),
            op::INDEX => Ok(index(first, second, false)),
            op::OPTIONAL_INDEX | op::OPTIONAL_SELECT => Ok(index(first, second, true)),
            "or" if !overload.is_empty() => Ok(Node::OptionalOr { operands: Box::new((first, second)), unwrap: false }),
            "orValue" if !overload.is_empty() => {
                Ok(Node::OptionalOr { operands: Box::new((first, second)), unwrap: true })
            }
            op::IN if overload == "in_list" => match constant_set(&second) {
                Some(set) if set.is_empty() => Ok(Node::Const(Value::Bool(false))),
                Some(set) => Ok(Node::InSet(Box::new((first, set)))),
                None => self.plan_function(function, overload, vec![first, second]),
            },
            _ => self.plan_function(function, overload, vec![first, second]),
        }
    }

    fn plan_function(&mut self, name: &Arc<str>, overload: &str, args: Vec<Node>) -> Planned {
        if args.is_empty()
            && let Some(value) = find_constant(name)
        {
            // The constant is a call without arguments, which costs one.
            return Ok(self.call(name, overload, |_, _| Err(EvalError::overload()), args, None, Some(value)));
        }
        let function = match (&**name, overload) {
            ("sum", "list_double_sum_double") => find_function("sum_double"),
            ("sum", "list_uint_sum_uint") => find_function("sum_uint"),
            ("sum", "list_duration_sum_duration") => find_function("sum_duration"),
            _ => find_function(name),
        };
        let function = function.ok_or_else(|| EvalError::NoSuchOverload((&**name).into()))?;
        if let [Node::Const(value)] = &args[..]
            && conversions::is_conversion(name)
        {
            let tracker = CostTracker::without_cost_limit();
            return function(&Call::new(&tracker, None), std::slice::from_ref(value)).map(Node::Const);
        }
        let regex = match args.get(1) {
            Some(Node::Const(Value::String(pattern))) if takes_pattern(name) => {
                Some(Regex::new(pattern).map_err(|error| EvalError::failed(error.to_string()))?)
            }
            _ => None,
        };
        Ok(self.call(name, overload, function, args, regex, None))
    }

    fn call(
        &self,
        name: &Arc<str>,
        overload: &str,
        function: crate::library::Function,
        args: Vec<Node>,
        regex: Option<Regex>,
        value: Option<Value<'static>>,
    ) -> Node {
        let cost = CallCost::of(name, overload);
        Node::Call(Box::new(CallNode { name: name.clone(), function, args, cost, regex, value }))
    }
}

fn unreachable_call() -> ! {
    unreachable!("the number of arguments was matched")
}

fn index(operand: Node, key: Node, optional: bool) -> Node {
    let key = match key {
        Node::Const(value) => QualifierKey::Const(value),
        Node::Attribute(attribute) => QualifierKey::Attribute(*attribute),
        node => QualifierKey::Value(node),
    };
    qualify(operand, Qualifier { key, optional }, false)
}

/// The items of a constant list, if all of them can be keys.
fn constant_set(list: &Node) -> Option<BTreeSet<Key<'static>>> {
    let Node::Const(Value::List(list)) = list else { return None };
    list.iter().map(|item| Key::of(&item.ok()?)).collect()
}

/// Comprehensions.
impl Planner<'_> {
    fn new_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    fn plan_fold(&mut self, fold: &Comprehension) -> Planned {
        let init = self.plan(fold.init)?;
        let range = self.plan(fold.range)?;
        let accumulator = self.new_slot();
        let depth = self.locals.len();
        self.locals.push((fold.accumulator.clone(), accumulator));
        if self.is_bind(fold) {
            let result = self.plan(fold.result)?;
            self.locals.truncate(depth);
            return Ok(Node::Bind(Box::new(Bind { slot: accumulator, init, result })));
        }
        let variable = self.new_slot();
        self.locals.push((fold.variable.clone(), variable));
        let variable2 = fold.variable2.as_ref().map(|name| {
            let slot = self.new_slot();
            self.locals.push((name.clone(), slot));
            slot
        });
        let condition = self.plan(fold.condition)?;
        let step = self.plan(fold.step)?;
        self.locals.truncate(depth + 1);
        let result = self.plan(fold.result)?;
        self.locals.truncate(depth);
        let body = plan_body(accumulator, init, condition, step, result);
        Ok(Node::Fold(Box::new(Fold { range, variable, variable2, body })))
    }

    fn is_bind(&self, fold: &Comprehension) -> bool {
        let ast = &self.checked.ast;
        matches!(ast.expr(fold.range), Expr::List { elements, .. } if elements.is_empty())
            && matches!(ast.expr(fold.condition), Expr::Literal(Literal::Bool(false)))
    }
}

/// Whether a node is the accumulator alone.
fn is_local(node: &Node, slot: usize) -> bool {
    matches!(node, Node::Attribute(attribute) if is_local_attribute(attribute, slot))
}

fn is_local_attribute(attribute: &Attribute, slot: usize) -> bool {
    matches!(attribute.base, Base::Local(own) if own == slot) && attribute.qualifiers.is_empty()
}

fn plan_body(accumulator: usize, init: Node, condition: Node, step: Node, result: Node) -> Body {
    let starts_with = |value: bool| matches!(init, Node::Const(Value::Bool(own)) if own == value);
    let returns_it = is_local(&result, accumulator);
    match step {
        Node::And(operands) if returns_it && starts_with(true) && is_local(&operands.0, accumulator) => {
            Body::All(operands.1)
        }
        Node::Or(operands) if returns_it && starts_with(false) && is_local(&operands.0, accumulator) => {
            Body::Exists(operands.1)
        }
        step if returns_it => match collect(accumulator, step) {
            Ok(body) => body,
            Err(step) => Body::General { accumulator, init, condition, step, result },
        },
        step => Body::General { accumulator, init, condition, step, result },
    }
}

/// The body of a step that adds to the accumulator, perhaps under a condition.
fn collect(accumulator: usize, step: Node) -> Result<Body, Node> {
    let Node::Attribute(attribute) = step else { return add(accumulator, None, step).map_err(|(_, step)| step) };
    match *attribute {
        Attribute { base: Base::Conditional(parts), qualifiers, test } if qualifiers.is_empty() => {
            let (condition, yes, no) = *parts;
            let rebuild = |condition, yes, no| {
                let base = Base::Conditional(Box::new((condition, yes, no)));
                Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test }))
            };
            match yes {
                Attribute { base: Base::Value(added), qualifiers, test: yes_test }
                    if qualifiers.is_empty() && is_local_attribute(&no, accumulator) =>
                {
                    add(accumulator, Some(condition), added).map_err(|(condition, added)| {
                        let yes = Attribute { base: Base::Value(added), qualifiers: Vec::new(), test: yes_test };
                        rebuild(condition.unwrap_or(Node::Const(Value::Bool(true))), yes, no)
                    })
                }
                yes => Err(rebuild(condition, yes, no)),
            }
        }
        attribute => Err(Node::Attribute(Box::new(attribute))),
    }
}

fn add(accumulator: usize, filter: Option<Node>, step: Node) -> Result<Body, (Option<Node>, Node)> {
    match step {
        Node::Call(call) if call.args.first().is_some_and(|first| is_local(first, accumulator)) => {
            let mut call = call;
            match (&*call.name, call.args.len()) {
                (op::ADD, 2) => match call.args.pop() {
                    Some(Node::List { mut elements, optionals }) if elements.len() == 1 && optionals.is_empty() => {
                        // The accumulator, the list and the sum.
                        Ok(Body::Append { filter, element: elements.remove(0), cost: 1 + cost::LIST + 1 })
                    }
                    Some(Node::Const(Value::List(list))) if list.len() == 1 => match list.get(0) {
                        Some(Ok(value)) => Ok(Body::Append { filter, element: Node::Const(value), cost: 2 }),
                        _ => Err((filter, Node::Const(Value::Null))),
                    },
                    other => {
                        call.args.extend(other);
                        Err((filter, Node::Call(call)))
                    }
                },
                (op::MAP_INSERT, 2 | 3) => {
                    call.args.remove(0);
                    Ok(Body::Insert { filter, args: call.args })
                }
                _ => Err((filter, Node::Call(call))),
            }
        }
        step => Err((filter, step)),
    }
}
