//! The estimated cost of an expression: the least and the most that an evaluation can cost, from the sizes that values
//! can have.

mod calls;
mod range;

use std::collections::HashMap;
use std::sync::Arc;

use crate::check::Checked;
use crate::cost;
use crate::schema::{DeclType, Declaration};
use crate::syntax::ast::{Comprehension, Expr, ExprId, Literal, MapEntry, StructField};
use crate::types::Type;

pub use range::{CostEstimate, SizeEstimate};

/// The sizes of variables and their parts.
pub trait SizeEstimator {
    /// The size of what a path leads to: a variable, fields, and `@items`, `@keys` or `@values` of lists and maps.
    fn estimate_size(&self, path: &[Arc<str>]) -> Option<SizeEstimate>;
}

/// Nothing is known of sizes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSizes;

impl SizeEstimator for NoSizes {
    fn estimate_size(&self, _: &[Arc<str>]) -> Option<SizeEstimate> {
        None
    }
}

/// All variables have a declared type, with its maximum sizes.
#[derive(Debug, Clone, Copy)]
pub struct DeclaredSizes<'d> {
    root: &'d DeclType,
}

impl<'d> DeclaredSizes<'d> {
    /// The sizes of the values of a declared type.
    pub fn new(root: &'d DeclType) -> DeclaredSizes<'d> {
        DeclaredSizes { root }
    }
}

impl SizeEstimator for DeclaredSizes<'_> {
    fn estimate_size(&self, path: &[Arc<str>]) -> Option<SizeEstimate> {
        let (_, parts) = path.split_first()?;
        let mut at = self.root;
        for part in parts {
            at = match &**part {
                "@items" | "@values" => at.element()?,
                // Keys are strings without a maximum length.
                "@keys" if matches!(at.declaration(), Declaration::Map(_)) => {
                    return (Some(part) == parts.last()).then_some(SizeEstimate { min: 0, max: 0 });
                }
                field => at.field(field)?,
            };
        }
        Some(SizeEstimate { min: 0, max: at.max_elements() })
    }
}

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(checked: &Checked, sizes: &dyn SizeEstimator) -> CostEstimate {
    let mut estimator = Estimator {
        checked,
        sizes,
        paths: HashMap::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    checked.ast.root.map_or(CostEstimate::fixed(0), |root| estimator.visit(root))
}

type Path = Vec<Arc<str>>;

/// The sizes of a container's keys and values.
#[derive(Debug, Clone, Copy)]
struct EntrySize {
    is_list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

impl EntrySize {
    fn union(self, other: EntrySize) -> EntrySize {
        EntrySize { is_list: self.is_list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}

struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<SizeEstimate>,
    entry: Option<EntrySize>,
}

struct Estimator<'e> {
    checked: &'e Checked,
    sizes: &'e dyn SizeEstimator,
    paths: HashMap<ExprId, Path>,
    computed: HashMap<ExprId, SizeEstimate>,
    entries: HashMap<ExprId, EntrySize>,
    locals: Vec<Local>,
}

/// An argument of a call, for its cost.
struct Argument {
    id: ExprId,
    /// Empty if the sizes do not contain it.
    path: Path,
    size: Option<SizeEstimate>,
}

/// Nodes.
impl Estimator<'_> {
    fn visit(&mut self, id: ExprId) -> CostEstimate {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) => CostEstimate::fixed(0),
            Expr::Ident(name) => self.visit_ident(id, name),
            // A name with dots, which upstream takes for one variable.
            Expr::Select { field, .. } if checked.reference(id).is_some() => {
                self.paths.insert(id, vec![field.clone()]);
                CostEstimate::fixed(1)
            }
            Expr::Select { operand, test: true, .. } => self.visit(*operand),
            Expr::Select { operand, field, .. } => self.visit_select(id, *operand, field),
            Expr::Call { function, target, args } => self.visit_call(id, function, *target, args),
            Expr::List { elements, .. } => self.visit_list(id, elements),
            Expr::Map(entries) => self.visit_map(id, entries),
            Expr::Struct { fields, .. } => self.visit_struct(fields),
            Expr::Comprehension(fold) if self.is_bind(fold) => self.visit_bind(id, fold),
            Expr::Comprehension(fold) => self.visit_fold(id, fold),
        }
    }

    fn visit_ident(&mut self, id: ExprId, name: &Arc<str>) -> CostEstimate {
        let path = self.find_local(name).map_or_else(|| vec![name.clone()], |local| local.path.clone());
        self.paths.insert(id, path);
        CostEstimate::fixed(1)
    }

    fn visit_select(&mut self, id: ExprId, operand: ExprId, field: &Arc<str>) -> CostEstimate {
        let cost = self.visit(operand);
        let mut path = self.path(operand);
        path.push(field.clone());
        self.paths.insert(id, path);
        let selects = matches!(self.checked.type_of(operand), Type::Map(_) | Type::Object(_) | Type::Param(_));
        cost.add(CostEstimate::fixed(u64::from(selects)))
    }

    fn visit_map(&mut self, id: ExprId, entries: &[MapEntry]) -> CostEstimate {
        let mut sum = CostEstimate::fixed(cost::MAP);
        let (mut key, mut value) = (None, None);
        for entry in entries {
            sum = sum.add(self.visit(entry.key)).add(self.visit(entry.value));
            key = Some(widen(key, self.size_or_unknown(entry.key)));
            value = Some(widen(value, self.size_or_unknown(entry.value)));
        }
        let none = SizeEstimate { min: 0, max: 0 };
        let entry = EntrySize { is_list: false, key: key.unwrap_or(none), value: value.unwrap_or(none) };
        self.entries.insert(id, entry);
        sum
    }

    fn visit_struct(&mut self, fields: &[StructField]) -> CostEstimate {
        let object = CostEstimate::fixed(cost::OBJECT);
        fields.iter().fold(object, |sum, field| sum.add(self.visit(field.value)))
    }

    fn visit_list(&mut self, id: ExprId, elements: &[ExprId]) -> CostEstimate {
        let mut sum = CostEstimate::fixed(cost::LIST);
        let mut item = None;
        for element in elements {
            sum = sum.add(self.visit(*element));
            item = Some(widen(item, self.size_or_unknown(*element)));
        }
        let value = item.unwrap_or(SizeEstimate { min: 0, max: 0 });
        self.entries.insert(id, EntrySize { is_list: true, key: SizeEstimate::fixed(1), value });
        sum
    }

    fn is_bind(&self, fold: &Comprehension) -> bool {
        let ast = &self.checked.ast;
        matches!(ast.expr(fold.range), Expr::List { elements, .. } if elements.is_empty())
            && matches!(ast.expr(fold.condition), Expr::Literal(Literal::Bool(false)))
    }

    fn visit_bind(&mut self, id: ExprId, fold: &Comprehension) -> CostEstimate {
        let sum = self.visit(fold.range).add(self.visit(fold.init));
        self.push_accumulator(fold);
        let sum = sum.add(self.visit(fold.result));
        self.locals.pop();
        self.copy_sizes(id, fold.result);
        sum
    }

    fn copy_sizes(&mut self, to: ExprId, from: ExprId) {
        if let Some(size) = self.size(from) {
            self.computed.insert(to, size);
        }
        if let Some(entry) = self.entry_size(from) {
            self.entries.insert(to, entry);
        }
    }

    fn push_accumulator(&mut self, fold: &Comprehension) {
        let (path, entry, size) = (self.path(fold.init), self.entry_size(fold.init), self.size(fold.init));
        self.locals.push(Local { name: fold.accumulator.clone(), path, size, entry });
    }

    fn visit_fold(&mut self, id: ExprId, fold: &Comprehension) -> CostEstimate {
        let mut sum = self.visit(fold.range).add(self.visit(fold.init));
        self.push_accumulator(fold);
        let depth = self.locals.len();
        self.push_variables(fold);
        let iteration = self.visit(fold.condition).add(self.visit(fold.step));
        self.locals.truncate(depth);
        sum = sum.add(self.visit(fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(fold.range);
        sum = sum.add(count.multiply_cost(iteration));
        match self.checked.ast.expr(fold.init) {
            Expr::Literal(_) => {
                if let Some(size) = self.size(fold.init) {
                    self.computed.insert(id, size);
                }
            }
            Expr::List { .. } | Expr::Map(_) => {
                self.computed.insert(id, count);
                if let Some(entry) = self.entry_size(fold.step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    /// The variables of a loop are the items of its range, or keys and values.
    fn push_variables(&mut self, fold: &Comprehension) {
        let entry = self.entry_size(fold.range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.type_of(fold.range), Type::List(_)),
        };
        let (key, value) = if is_list { ("@indices", "@items") } else { ("@keys", "@values") };
        let path = self.path(fold.range);
        let mut push = |name: &Arc<str>, part: &str, size: Option<SizeEstimate>| {
            let path = path.iter().cloned().chain([Arc::from(part)]).collect();
            self.locals.push(Local { name: name.clone(), path, size, entry: None });
        };
        let (key_size, value_size) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        match &fold.variable2 {
            Some(second) => {
                push(&fold.variable, key, key_size);
                push(second, value, value_size);
            }
            None if is_list => push(&fold.variable, value, value_size),
            None => push(&fold.variable, key, key_size),
        }
    }
}

fn widen(previous: Option<SizeEstimate>, size: SizeEstimate) -> SizeEstimate {
    previous.map_or(size, |previous| previous.union(size))
}

/// Sizes.
impl Estimator<'_> {
    fn find_local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn path(&self, id: ExprId) -> Path {
        if let Expr::Ident(name) = self.checked.ast.expr(id)
            && let Some(local) = self.find_local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn size_or_unknown(&mut self, id: ExprId) -> SizeEstimate {
        self.size(id).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn size(&mut self, id: ExprId) -> Option<SizeEstimate> {
        if let Some(size) = self.computed.get(&id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(self.checked.ast.expr(id)) {
            return Some(SizeEstimate::fixed(size));
        }
        let path = self.path(id);
        if let Some(size) = self.estimate_path(&path) {
            self.computed.insert(id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(id)) {
            return Some(SizeEstimate::fixed(1));
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.find_local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn estimate_path(&self, path: &[Arc<str>]) -> Option<SizeEstimate> {
        if path.is_empty() { None } else { self.sizes.estimate_size(path) }
    }

    fn entry_size(&self, id: ExprId) -> Option<EntrySize> {
        if let Some(entry) = self.entries.get(&id) {
            return Some(*entry);
        }
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.find_local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn argument(&mut self, id: ExprId) -> Argument {
        let mut path = self.path(id);
        if path.first().is_some_and(|first| matches!(&**first, "@result" | "__result__")) {
            path.clear();
        }
        Argument { id, path, size: self.size(id) }
    }

    /// The size of an argument, or the declared size at its path.
    fn argument_size(&self, argument: &Argument) -> SizeEstimate {
        argument.size.or_else(|| self.estimate_path(&argument.path)).unwrap_or(SizeEstimate::UNKNOWN)
    }
}

fn literal_size(expr: &Expr) -> Option<u64> {
    let size = match expr {
        Expr::Literal(Literal::String(text)) => text.chars().count(),
        Expr::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Expr::Literal(_) => 1,
        Expr::List { elements, .. } => elements.len(),
        Expr::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        _ => of.optional_value().is_some_and(is_scalar),
    }
}
