//! The macros: calls that expand to other expressions, mostly to comprehensions.

use std::sync::Arc;

use super::ast::{Comprehension, Expr, ExprId, Literal};
use super::operators;
use super::parser::Parser;

/// The name of the variable that comprehensions accumulate in; no identifier can be equal to it.
const ACCUMULATOR: &str = "@result";
/// Its former name, which is still refused.
const OLD_ACCUMULATOR: &str = "__result__";
/// The name of the list that is sorted.
const SORT_INPUT: &str = "@__sortBy_input__";
/// The variable of a comprehension that only binds its accumulator.
const UNUSED: &str = "#unused";

/// The macros besides those of every environment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Macros {
    /// `cel.bind(name, value, expression)`.
    pub(crate) bind: bool,
}

/// An error of a macro's argument.
struct Misuse(ExprId, String);

type Expansion = Result<ExprId, Misuse>;

/// The expansion of a call if it is a macro. Its errors are reported.
pub(super) fn expand(
    parser: &mut Parser<'_>,
    function: &str,
    target: Option<ExprId>,
    args: &[ExprId],
    offset: u32,
) -> Option<ExprId> {
    let macros = parser.macros();
    let mut expander = Expander { parser, offset };
    let expansion = match target {
        None if function == "has" && args.len() == 1 => expander.has(args[0]),
        None => return None,
        Some(target) if macros.bind && is_bind(&expander, function, target, args) => expander.bind(args),
        Some(target) => expander.receiver(function, target, args)?,
    };
    Some(expansion.unwrap_or_else(|Misuse(at, message)| {
        let position = parser.ast.offset(at);
        parser.report(Some(position), message);
        parser.ast.push(Expr::Unspecified, position)
    }))
}

fn is_bind(expander: &Expander<'_, '_>, function: &str, target: ExprId, args: &[ExprId]) -> bool {
    let is_namespace = matches!(expander.parser.ast.expr(target), Expr::Ident(name) if &**name == "cel");
    function == "bind" && args.len() == 3 && is_namespace
}

struct Expander<'e, 'p> {
    parser: &'e mut Parser<'p>,
    offset: u32,
}

/// The variables of a loop.
struct Variables(Arc<str>, Option<Arc<str>>);

/// The computation of a loop.
struct Loop {
    init: ExprId,
    condition: ExprId,
    step: ExprId,
    result: ExprId,
}

/// The macros.
impl Expander<'_, '_> {
    fn receiver(&mut self, function: &str, target: ExprId, args: &[ExprId]) -> Option<Expansion> {
        Some(match (function, args.len()) {
            ("all", 2 | 3) => self.quantify(target, args, Self::all),
            ("exists", 2 | 3) => self.quantify(target, args, Self::exists),
            ("exists_one", 2 | 3) | ("existsOne", 3) => self.quantify(target, args, Self::exists_one),
            ("map", 2 | 3) => self.map(target, args),
            ("filter", 2) => self.filter(target, args),
            ("transformList", 3 | 4) => self.transform(target, args, Output::List),
            ("transformMap", 3 | 4) => self.transform(target, args, Output::Map),
            ("transformMapEntry", 3 | 4) => self.transform(target, args, Output::MapEntry),
            ("optMap", 2) => self.optional_map(target, args, true),
            ("optFlatMap", 2) => self.optional_map(target, args, false),
            ("sortBy", 2) => self.sort_by(target, args),
            _ => return None,
        })
    }

    fn has(&mut self, arg: ExprId) -> Expansion {
        match self.parser.ast.expr(arg) {
            Expr::Select { operand, field, .. } => {
                let test = Expr::Select { operand: *operand, field: field.clone(), test: true };
                Ok(self.push(test))
            }
            _ => Err(Misuse(arg, "invalid argument to has() macro".into())),
        }
    }

    fn quantify(&mut self, target: ExprId, args: &[ExprId], body: fn(&mut Self, ExprId) -> Loop) -> Expansion {
        let (names, predicate) = args.split_at(args.len() - 1);
        let variables = self.variables(names, "argument must be a simple name")?;
        let body = body(self, predicate[0]);
        Ok(self.fold(target, variables, body))
    }

    fn all(&mut self, predicate: ExprId) -> Loop {
        let init = self.literal(Literal::Bool(true));
        let accu = self.accumulator();
        let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![accu]);
        let accu = self.accumulator();
        let step = self.call(operators::AND, vec![accu, predicate]);
        Loop { init, condition, step, result: self.accumulator() }
    }

    fn exists(&mut self, predicate: ExprId) -> Loop {
        let init = self.literal(Literal::Bool(false));
        let accu = self.accumulator();
        let negated = self.call(operators::NOT, vec![accu]);
        let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![negated]);
        let accu = self.accumulator();
        let step = self.call(operators::OR, vec![accu, predicate]);
        Loop { init, condition, step, result: self.accumulator() }
    }

    fn exists_one(&mut self, predicate: ExprId) -> Loop {
        let init = self.literal(Literal::Int(0));
        let condition = self.literal(Literal::Bool(true));
        let (accu, one) = (self.accumulator(), self.literal(Literal::Int(1)));
        let sum = self.call(operators::ADD, vec![accu, one]);
        let step = self.choose(predicate, sum);
        let (accu, one) = (self.accumulator(), self.literal(Literal::Int(1)));
        let result = self.call(operators::EQUALS, vec![accu, one]);
        Loop { init, condition, step, result }
    }

    fn map(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        let variables = self.variables(&args[..1], "argument is not an identifier")?;
        let appended = self.append(args[args.len() - 1]);
        let step = if args.len() == 3 { self.choose(args[1], appended) } else { appended };
        let init = self.list(vec![]);
        Ok(self.collect(target, variables, init, step))
    }

    fn filter(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        let variables = self.variables(&args[..1], "argument is not an identifier")?;
        let appended = self.append(args[0]);
        let step = self.choose(args[1], appended);
        let init = self.list(vec![]);
        Ok(self.collect(target, variables, init, step))
    }

    /// `transformList`, `transformMap` and `transformMapEntry`, with or without a filter.
    fn transform(&mut self, target: ExprId, args: &[ExprId], output: Output) -> Expansion {
        let variables = self.variables(&args[..2], "argument must be a simple name")?;
        let value = args[args.len() - 1];
        let mut step = match output {
            Output::List => self.append(value),
            Output::Map => {
                let (accu, key) = (self.accumulator(), self.push(Expr::Ident(variables.0.clone())));
                self.call(operators::MAP_INSERT, vec![accu, key, value])
            }
            Output::MapEntry => {
                let accu = self.accumulator();
                self.call(operators::MAP_INSERT, vec![accu, value])
            }
        };
        if args.len() == 4 {
            step = self.choose(args[2], step);
        }
        let init = if output == Output::List { self.list(vec![]) } else { self.push(Expr::Map(Vec::new())) };
        Ok(self.collect(target, variables, init, step))
    }

    fn optional_map(&mut self, target: ExprId, args: &[ExprId], wrap: bool) -> Expansion {
        let name = match self.parser.ast.expr(args[0]) {
            Expr::Ident(name) => name.clone(),
            _ => {
                let function = if wrap { "optMap" } else { "optFlatMap" };
                return Err(Misuse(args[0], format!("{function}() variable name must be a simple identifier")));
            }
        };
        let present = self.member_call("hasValue", target, vec![]);
        let copy = self.parser.ast.copy(target);
        let value = self.member_call("value", copy, vec![]);
        let mut bound = self.bind_to(name, value, args[1]);
        if wrap {
            bound = self.call("optional.of", vec![bound]);
        }
        let none = self.call("optional.none", vec![]);
        Ok(self.call(operators::CONDITIONAL, vec![present, bound, none]))
    }

    fn bind(&mut self, args: &[ExprId]) -> Expansion {
        match self.parser.ast.expr(args[0]) {
            Expr::Ident(name) => {
                let name = name.clone();
                Ok(self.bind_to(name, args[1], args[2]))
            }
            _ => Err(Misuse(args[0], "cel.bind() variable names must be simple identifiers".into())),
        }
    }

    fn sort_by(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        let sortable = matches!(
            self.parser.ast.expr(target),
            Expr::List { .. } | Expr::Select { .. } | Expr::Ident(_) | Expr::Comprehension(_) | Expr::Call { .. }
        );
        if !sortable {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(Misuse(target, message.into()));
        }
        let (input, keys) = (self.push(Expr::Ident(SORT_INPUT.into())), self.push(Expr::Ident(SORT_INPUT.into())));
        let keys = self.map(keys, args)?;
        let sorted = self.member_call("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind_to(SORT_INPUT.into(), target, sorted))
    }
}

/// The result of `transform…`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    List,
    Map,
    MapEntry,
}

/// Parts of expansions.
impl Expander<'_, '_> {
    fn push(&mut self, expr: Expr) -> ExprId {
        self.parser.ast.push(expr, self.offset)
    }

    fn literal(&mut self, literal: Literal) -> ExprId {
        self.push(Expr::Literal(literal))
    }

    fn list(&mut self, elements: Vec<ExprId>) -> ExprId {
        self.push(Expr::List { elements, optionals: vec![] })
    }

    fn accumulator(&mut self) -> ExprId {
        self.push(Expr::Ident(ACCUMULATOR.into()))
    }

    fn call(&mut self, function: &str, args: Vec<ExprId>) -> ExprId {
        self.push(Expr::Call { function: function.into(), target: None, args })
    }

    fn member_call(&mut self, function: &str, target: ExprId, args: Vec<ExprId>) -> ExprId {
        self.push(Expr::Call { function: function.into(), target: Some(target), args })
    }

    /// The accumulator with one more element.
    fn append(&mut self, element: ExprId) -> ExprId {
        let (accu, list) = (self.accumulator(), self.list(vec![element]));
        self.call(operators::ADD, vec![accu, list])
    }

    /// The new value if the condition holds, the accumulator as it is otherwise.
    fn choose(&mut self, condition: ExprId, value: ExprId) -> ExprId {
        let accu = self.accumulator();
        self.call(operators::CONDITIONAL, vec![condition, value, accu])
    }

    fn collect(&mut self, target: ExprId, variables: Variables, init: ExprId, step: ExprId) -> ExprId {
        let condition = self.literal(Literal::Bool(true));
        let result = self.accumulator();
        self.fold(target, variables, Loop { init, condition, step, result })
    }

    fn fold(&mut self, range: ExprId, variables: Variables, body: Loop) -> ExprId {
        let Variables(variable, variable2) = variables;
        let Loop { init, condition, step, result } = body;
        let accumulator = ACCUMULATOR.into();
        let fold = Comprehension { range, variable, variable2, accumulator, init, condition, step, result };
        self.push(Expr::Comprehension(Box::new(fold)))
    }

    /// A comprehension over nothing, whose accumulator is a variable of `result`.
    fn bind_to(&mut self, accumulator: Arc<str>, init: ExprId, result: ExprId) -> ExprId {
        let range = self.list(vec![]);
        let condition = self.literal(Literal::Bool(false));
        let step = self.push(Expr::Ident(accumulator.clone()));
        let variable = UNUSED.into();
        let fold = Comprehension { range, variable, variable2: None, accumulator, init, condition, step, result };
        self.push(Expr::Comprehension(Box::new(fold)))
    }

    fn variables(&mut self, args: &[ExprId], not_a_name: &str) -> Result<Variables, Misuse> {
        let mut names = Vec::with_capacity(2);
        for arg in args {
            match self.parser.ast.expr(*arg) {
                Expr::Ident(name) => names.push(name.clone()),
                _ => return Err(Misuse(*arg, not_a_name.to_owned())),
            }
        }
        if names.len() == 2 && names[0] == names[1] {
            return Err(Misuse(args[1], format!("duplicate variable name: {}", names[0])));
        }
        let taken = names.iter().position(|name| [ACCUMULATOR, OLD_ACCUMULATOR].contains(&&**name));
        if let Some(at) = taken {
            return Err(Misuse(args[at], "iteration variable overwrites accumulator variable".into()));
        }
        let second = names.get(1).cloned();
        Ok(Variables(names[0].clone(), second))
    }
}
