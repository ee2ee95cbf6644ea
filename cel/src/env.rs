//! Environments: the variables, types and functions that expressions of one kind can use.

use std::sync::Arc;

use crate::check;
use crate::library::{Library, TimeZones};
use crate::program::Program;
use crate::schema::DeclType;
use crate::scope::Scope;
use crate::syntax::ast::Ast;
use crate::syntax::{Issues, Macros, Source, parse};
use crate::types::Type;

/// Which functions expressions can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expressions {
    /// Expressions of a request: they can only use what the previous version has, so that it can be rolled back to.
    #[default]
    New,
    /// Expressions that are stored: they can use all functions.
    Stored,
}

/// The environment of an expression. Build one with [`Env::new`] and the methods that add to it.
#[derive(Clone)]
pub struct Env {
    scope: Scope,
    macros: Macros,
    zones: Option<Arc<dyn TimeZones>>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Env {
    /// The environment of all expressions of Kubernetes 1.37, without variables.
    pub fn new(expressions: Expressions) -> Env {
        let libraries = match expressions {
            Expressions::New => vec![Library::Base],
            Expressions::Stored => vec![Library::Base, Library::Includes],
        };
        Env { scope: Scope::new(libraries), macros: Macros::default(), zones: None }
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, of: Type) -> Env {
        self.scope.add_variable(name, of);
        self
    }

    /// Adds a variable of a declared type, and its objects' types. Objects need names: [`DeclType::with_name`].
    #[must_use]
    pub fn declared_variable(self, name: &str, of: &DeclType) -> Env {
        let cel = of.cel_type().clone();
        self.declared_type(of).variable(name, cel)
    }

    /// Adds a declared type and the types of its fields.
    #[must_use]
    pub fn declared_type(mut self, of: &DeclType) -> Env {
        self.scope.add_types(&Arc::new(of.clone()));
        self
    }

    /// Adds what mutating policies have: `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey`.
    #[must_use]
    pub fn mutation(mut self) -> Env {
        self.scope.add_mutation();
        self
    }

    /// Adds `cel.bind`, which device selectors have.
    #[must_use]
    pub fn bindings(mut self) -> Env {
        self.macros.bind = true;
        self
    }

    /// The time zones of `getHours('Europe/Berlin')`; without them only UTC and offsets are known.
    #[must_use]
    pub fn time_zones(mut self, zones: Arc<dyn TimeZones>) -> Env {
        self.zones = Some(zones);
        self
    }

    /// Parses, checks and plans an expression.
    pub fn compile(&self, text: &str) -> Result<Program, Issues> {
        let ast = parse(text, self.macros)?;
        if ast.depth() <= SHALLOW {
            return self.check_and_plan(ast, text);
        }
        self.compile_deep(ast, text)
    }

    fn check_and_plan(&self, ast: Ast, text: &str) -> Result<Program, Issues> {
        let checked = check::check(ast, &Source::new(text), &self.scope)?;
        Ok(Program::new(checked, self.zones.clone()))
    }

    /// Compiles a deep tree on a stack that is large enough, since the caller's may not be.
    fn compile_deep(&self, ast: Ast, text: &str) -> Result<Program, Issues> {
        let fail = || Issues::new(vec![Source::new(text).error(None, "no stack to compile a deep expression")]);
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(DEEP_STACK);
            let spawned = builder.spawn_scoped(scope, || self.check_and_plan(ast, text)).map_err(|_| fail())?;
            spawned.join().unwrap_or_else(|_| Err(fail()))
        })
    }
}

/// The depth up to which an expression is compiled on the stack of the caller.
const SHALLOW: usize = 64;
/// The stack for deeper expressions.
const DEEP_STACK: usize = 16 << 20;
