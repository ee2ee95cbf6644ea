//! The type checker: resolves names and overloads, and infers the type of each expression.

mod aggregates;
mod literals;

use std::sync::Arc;

use crate::library::{DECLARATIONS, Overload};
use crate::scope::Scope;
use crate::syntax::ast::{Ast, Expr, ExprId, Literal};
use crate::syntax::{Issue, Issues, Source, operators};
use crate::types::{Substitutions, Type};

/// The target of a name or a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reference {
    Variable(Arc<str>),
    /// A name of a type.
    Type(Type),
    Overloads(Vec<&'static str>),
}

/// An expression with the types and references of its nodes.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ast: Ast,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
}

impl Checked {
    /// The type of a node.
    pub(crate) fn type_of(&self, id: ExprId) -> &Type {
        self.types[id.index()].as_ref().unwrap_or(&Type::Dyn)
    }

    pub(crate) fn reference(&self, id: ExprId) -> Option<&Reference> {
        self.references[id.index()].as_ref()
    }

    /// The overloads that a call can have.
    pub(crate) fn overloads(&self, id: ExprId) -> &[&'static str] {
        match self.reference(id) {
            Some(Reference::Overloads(ids)) => ids,
            _ => &[],
        }
    }

    /// Whether the expression reads a variable.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        let is_it = |reference: &Reference| matches!(reference, Reference::Variable(name) if &**name == variable);
        self.references.iter().flatten().any(is_it)
    }
}

/// Checks an expression, and then the literal arguments of functions.
pub(crate) fn check(ast: Ast, source: &Source<'_>, env: &Scope) -> Result<Checked, Issues> {
    let Some(root) = ast.root else { return Err(Issues::new(Vec::new())) };
    let length = ast.len();
    let mut checker = Checker {
        env,
        source,
        checked: Checked { ast, types: vec![None; length], references: vec![None; length] },
        substitutions: Substitutions::default(),
        scopes: Vec::new(),
        free: 0,
        errors: Vec::new(),
    };
    checker.visit(root);
    let Checker { mut checked, substitutions, mut errors, .. } = checker;
    for of in checked.types.iter_mut().flatten() {
        *of = substitutions.apply(of, true);
    }
    if errors.is_empty() {
        errors = literals::check(&checked, root, source);
    }
    if errors.is_empty() { Ok(checked) } else { Err(Issues::new(errors)) }
}

struct Checker<'c> {
    env: &'c Scope,
    source: &'c Source<'c>,
    checked: Checked,
    substitutions: Substitutions,
    /// The variables of comprehensions, the innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    free: usize,
    errors: Vec<Issue>,
}

/// Nodes.
impl Checker<'_> {
    fn visit(&mut self, id: ExprId) {
        let expr = self.checked.ast.expr(id).clone();
        let of = match expr {
            Expr::Unspecified => Type::Error,
            Expr::Literal(literal) => literal_type(&literal),
            Expr::Ident(name) => self.visit_ident(id, &name),
            Expr::Select { operand, field, test } => self.visit_select(id, operand, &field, test),
            Expr::Call { function, target, args } => self.visit_call(id, &function, target, &args),
            Expr::List { elements, optionals } => self.visit_list(&elements, &optionals),
            Expr::Map(entries) => self.visit_map(&entries),
            Expr::Struct { name, fields } => self.visit_struct(id, &name, &fields),
            Expr::Comprehension(comprehension) => self.visit_comprehension(&comprehension),
        };
        self.checked.types[id.index()] = Some(of);
    }

    fn get(&self, id: ExprId) -> Type {
        self.checked.types[id.index()].clone().unwrap_or(Type::Error)
    }

    fn report(&mut self, id: ExprId, message: String) {
        let offset = self.checked.ast.offset(id);
        self.report_at(offset, message);
    }

    fn report_at(&mut self, offset: u32, message: String) {
        self.errors.push(self.source.error(Some(offset), message));
    }

    fn report_mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn report_undeclared(&mut self, id: ExprId, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn refer(&mut self, id: ExprId, reference: Reference) {
        self.checked.references[id.index()] = Some(reference);
    }

    fn new_variable(&mut self) -> Type {
        let variable = Type::param(&format!("_var{}", self.free));
        self.free += 1;
        variable
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Names.
impl Checker<'_> {
    fn find_local(&self, name: &str) -> Option<Type> {
        self.scopes.iter().rev().find(|(variable, _)| &**variable == name).map(|(_, of)| of.clone())
    }

    /// A variable of the environment, or a type.
    fn find_global(&self, name: &str) -> Option<(Type, Reference)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(of) = self.env.find_variable(name) {
            return Some((of.clone(), Reference::Variable(name.into())));
        }
        let of = self.env.find_type(name)?;
        Some((Type::type_of(of.clone()), Reference::Type(of)))
    }

    fn visit_ident(&mut self, id: ExprId, name: &str) -> Type {
        if let Some(of) = self.find_local(name) {
            return of;
        }
        match self.find_global(name) {
            Some((of, reference)) => {
                self.refer(id, reference);
                of
            }
            None => self.report_undeclared(id, name),
        }
    }

    fn visit_select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = self.qualified_name(id)
            && let Some((of, reference)) = self.find_global(&name)
        {
            self.refer(id, reference);
            return of;
        }
        let of = self.select_field(id, operand, field, false);
        let of = if test { Type::Bool } else { of };
        self.substitutions.apply(&of, false)
    }

    /// The name that selections of a name form, if its first part is no variable of a comprehension.
    fn qualified_name(&self, id: ExprId) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = id;
        loop {
            match self.checked.ast.expr(at) {
                Expr::Select { operand, field, test: false } => {
                    parts.push(&**field);
                    at = *operand;
                }
                Expr::Ident(name) if self.find_local(name).is_none() => {
                    parts.push(name);
                    break;
                }
                _ => return None,
            }
        }
        parts.reverse();
        Some(parts.join("."))
    }

    fn select_field(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        self.visit(operand);
        let of = self.substitutions.apply(&self.get(operand), false);
        let (target, is_optional) = match of.optional_value() {
            Some(value) => (value.clone(), true),
            None => (of, false),
        };
        let result = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(name) => self.find_field(self.checked.ast.offset(id), name, field),
            Type::Param(_) => {
                self.substitutions.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    self.report(id, format!("type '{target}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn find_field(&mut self, offset: u32, object: &str, field: &str) -> Type {
        if !self.env.has_object(object) {
            self.report_at(offset, format!("unexpected failed resolution of '{object}'"));
            return Type::Error;
        }
        match self.env.find_field(object, field) {
            Some(of) => of,
            None => {
                self.report_at(offset, format!("undefined field '{field}'"));
                Type::Error
            }
        }
    }
}

/// Calls.
impl Checker<'_> {
    fn visit_call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> Type {
        if function == operators::OPTIONAL_SELECT {
            return self.visit_optional_select(id, args);
        }
        args.iter().for_each(|arg| self.visit(*arg));
        let Some(target) = target else { return self.resolve_or_report(id, function, None, args) };
        if let Some(prefix) = self.plain_name(target) {
            let name = format!("{prefix}.{function}");
            let name = name.strip_prefix('.').unwrap_or(&name);
            if DECLARATIONS.find(name, self.env.libraries()).is_some() {
                let call = Expr::Call { function: name.into(), target: None, args: args.to_vec() };
                self.checked.ast.set(id, call);
                return self.resolve_or_report(id, name, None, args);
            }
        }
        self.visit(target);
        self.resolve_or_report(id, function, Some(target), args)
    }

    /// The name that an expression spells, whatever it refers to.
    fn plain_name(&self, id: ExprId) -> Option<String> {
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.plain_name(*operand)?)),
            _ => None,
        }
    }

    fn visit_optional_select(&mut self, id: ExprId, args: &[ExprId]) -> Type {
        let [operand, field] = args else { return Type::Error };
        let Expr::Literal(Literal::String(field)) = self.checked.ast.expr(*field).clone() else { return Type::Error };
        let of = self.select_field(id, *operand, &field, true);
        self.refer(id, Reference::Overloads(vec!["select_optional_field"]));
        self.substitutions.apply(&of, false)
    }

    fn resolve_or_report(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> Type {
        let name = function.strip_prefix('.').unwrap_or(function);
        let libraries = self.env.libraries();
        let Some(overloads) = DECLARATIONS.find(name, libraries) else { return self.report_undeclared(id, function) };
        if name.len() < function.len() {
            let call = Expr::Call { function: name.into(), target, args: args.to_vec() };
            self.checked.ast.set(id, call);
        }
        if matches!(name, operators::AND | operators::OR) {
            return self.resolve_logical(id, name, args);
        }
        let types: Vec<Type> = target.iter().chain(args).map(|arg| self.get(*arg)).collect();
        let candidates = overloads.filter(|overload| overload.member == target.is_some());
        match self.resolve(candidates, &types) {
            Some((of, ids)) => {
                self.refer(id, Reference::Overloads(ids));
                of
            }
            None => {
                self.report_overload(id, name, &types, target.is_some());
                Type::Error
            }
        }
    }

    fn resolve_logical(&mut self, id: ExprId, name: &str, args: &[ExprId]) -> Type {
        let mut result = Type::Bool;
        for arg in args {
            let of = self.get(*arg);
            if !self.substitutions.assign(&of, &Type::Bool) {
                self.report_mismatch(*arg, &Type::Bool, &of);
                result = Type::Error;
            }
        }
        let overload = if name == operators::AND { "logical_and" } else { "logical_or" };
        self.refer(id, Reference::Overloads(vec![overload]));
        result
    }

    /// The type and the ids of the overloads that accept arguments of these types.
    fn resolve<'d>(
        &mut self,
        candidates: impl Iterator<Item = &'d Overload>,
        types: &[Type],
    ) -> Option<(Type, Vec<&'static str>)> {
        let mut found: Option<(Type, Vec<&'static str>)> = None;
        for overload in candidates {
            let mut fresh = Substitutions::default();
            for param in &overload.type_params {
                let variable = self.new_variable();
                fresh.insert(param, variable);
            }
            let params: Vec<Type> = overload.params.iter().map(|param| fresh.apply(param, false)).collect();
            if !self.substitutions.assign_all(types, &params) {
                continue;
            }
            let result = self.substitutions.apply(&fresh.apply(&overload.result, false), false);
            found = Some(match found {
                None => (result, vec![overload.id]),
                Some((previous, mut ids)) => {
                    ids.push(overload.id);
                    (if previous.is_dyn() || previous == result { previous } else { Type::Dyn }, ids)
                }
            });
        }
        found
    }

    fn report_overload(&mut self, id: ExprId, name: &str, types: &[Type], member: bool) {
        let mut texts: Vec<String> = types.iter().map(|of| self.substitutions.apply(of, true).to_string()).collect();
        let target = if member { format!("{}.", texts.remove(0)) } else { String::new() };
        let message = format!("found no matching overload for '{name}' applied to '{target}({})'", texts.join(", "));
        self.report(id, message);
    }
}
