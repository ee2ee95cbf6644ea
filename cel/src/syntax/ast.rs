//! The syntax tree: nodes in one vector, which avoids recursion when deep trees are dropped.

use std::sync::Arc;

use super::operators;

/// A node of an [`Ast`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExprId(u32);

impl ExprId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct StructField {
    pub(crate) name: Arc<str>,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
    /// The position of its colon.
    pub(crate) offset: u32,
}

/// A loop: `accu` starts as `init`; while `condition` holds, `step` of each item of `range` is its next value.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub(crate) range: ExprId,
    pub(crate) variable: Arc<str>,
    /// With it, `variable` is the key or index, and this is the value.
    pub(crate) variable2: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) init: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

#[derive(Debug, Clone)]
pub(crate) enum Expr {
    /// The placeholder for an error.
    Unspecified,
    Literal(Literal),
    Ident(Arc<str>),
    /// A field of an operand, or with `test` whether it is present.
    Select {
        operand: ExprId,
        field: Arc<str>,
        test: bool,
    },
    Call {
        function: Arc<str>,
        target: Option<ExprId>,
        args: Vec<ExprId>,
    },
    List {
        elements: Vec<ExprId>,
        /// The indices of optional elements, which are omitted if they have no value.
        optionals: Vec<usize>,
    },
    Map(Vec<MapEntry>),
    Struct {
        name: Arc<str>,
        fields: Vec<StructField>,
    },
    Comprehension(Box<Comprehension>),
}

/// Macros copy their targets; a chain of them doubles the tree with each link.
const MAX_NODES: usize = 1 << 18;

/// An expression, and the offset of each of its nodes in the text.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    nodes: Vec<(Expr, u32)>,
    pub(crate) root: Option<ExprId>,
}

impl Ast {
    pub(crate) fn push(&mut self, expr: Expr, offset: u32) -> ExprId {
        let id = ExprId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push((expr, offset));
        id
    }

    pub(crate) fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id.index()].0
    }

    pub(crate) fn set(&mut self, id: ExprId, expr: Expr) {
        self.nodes[id.index()].0 = expr;
    }

    pub(crate) fn offset(&self, id: ExprId) -> u32 {
        self.nodes[id.index()].1
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether macros expanded to more nodes than are allowed.
    pub(crate) fn is_too_large(&self) -> bool {
        self.nodes.len() >= MAX_NODES
    }

    /// Whether a node of the tree selects a field of a variable, or tests for it.
    pub(crate) fn selects_field(&self, variable: &str, field: &str) -> bool {
        let is_variable = |id: ExprId| matches!(self.expr(id), Expr::Ident(name) if &**name == variable);
        let is_field = |id: ExprId| matches!(self.expr(id), Expr::Literal(Literal::String(name)) if &**name == field);
        let mut pending: Vec<ExprId> = self.root.into_iter().collect();
        while let Some(id) = pending.pop() {
            let found = match self.expr(id) {
                Expr::Select { operand, field: name, .. } => &**name == field && is_variable(*operand),
                Expr::Call { function, target: None, args } if &**function == operators::OPTIONAL_SELECT => {
                    matches!(args[..], [operand, name] if is_variable(operand) && is_field(name))
                }
                _ => false,
            };
            if found {
                return true;
            }
            for_each_child(self.expr(id), |child| pending.push(child));
        }
        false
    }

    /// The depth of the tree. Children come before their parents.
    pub(crate) fn depth(&self) -> usize {
        let mut depths = vec![0usize; self.nodes.len()];
        for (at, (expr, _)) in self.nodes.iter().enumerate() {
            let mut deepest = 0;
            for_each_child(expr, |child| deepest = deepest.max(depths[child.index()]));
            depths[at] = deepest + 1;
        }
        self.root.map_or(0, |root| depths[root.index()])
    }

    /// A copy of an expression, with the offsets of the original.
    pub(crate) fn copy(&mut self, id: ExprId) -> ExprId {
        if self.is_too_large() {
            return id;
        }
        let offset = self.offset(id);
        let mut expr = self.expr(id).clone();
        self.copy_children(&mut expr);
        self.push(expr, offset)
    }

    fn copy_children(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => *operand = self.copy(*operand),
            Expr::Call { target, args, .. } => {
                *target = target.map(|target| self.copy(target));
                args.iter_mut().for_each(|arg| *arg = self.copy(*arg));
            }
            Expr::List { elements, .. } => elements.iter_mut().for_each(|item| *item = self.copy(*item)),
            Expr::Map(entries) => entries.iter_mut().for_each(|entry| {
                entry.key = self.copy(entry.key);
                entry.value = self.copy(entry.value);
            }),
            Expr::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.value = self.copy(field.value)),
            Expr::Comprehension(comprehension) => {
                let Comprehension { range, init, condition, step, result, .. } = &mut **comprehension;
                for child in [range, init, condition, step, result] {
                    *child = self.copy(*child);
                }
            }
        }
    }
}

fn for_each_child(expr: &Expr, mut visit: impl FnMut(ExprId)) {
    match expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select { operand, .. } => visit(*operand),
        Expr::Call { target, args, .. } => target.iter().chain(args).for_each(|child| visit(*child)),
        Expr::List { elements, .. } => elements.iter().for_each(|child| visit(*child)),
        Expr::Map(entries) => entries.iter().flat_map(|entry| [entry.key, entry.value]).for_each(visit),
        Expr::Struct { fields, .. } => fields.iter().for_each(|field| visit(field.value)),
        Expr::Comprehension(fold) => {
            [fold.range, fold.init, fold.condition, fold.step, fold.result].into_iter().for_each(visit);
        }
    }
}
