//! The plan of an expression: what is evaluated, with names and functions resolved.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cost::CallCost;
use crate::library::Function;
use crate::library::regex::Regex;
use crate::value::{Key, Value};

/// A planned expression.
#[derive(Debug)]
pub(super) enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Equal {
        operands: Box<(Node, Node)>,
        negated: bool,
    },
    /// Whether a value is in a set of constants.
    InSet(Box<(Node, BTreeSet<Key<'static>>)>),
    /// `or` and `orValue`: the second operand is only evaluated if the first one has no value.
    OptionalOr {
        operands: Box<(Node, Node)>,
        unwrap: bool,
    },
    NotStrictlyFalse(Box<Node>),
    Call(Box<CallNode>),
    List {
        elements: Vec<Node>,
        optionals: Vec<usize>,
    },
    Map(Vec<EntryNode>),
    Object {
        name: Arc<str>,
        fields: Vec<FieldNode>,
    },
    Fold(Box<Fold>),
    /// A variable of the expression's own, which is evaluated when it is used.
    Bind(Box<Bind>),
}

/// A variable or value, and selections of its parts. Their costs differ from those of calls.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
    /// Whether the last qualifier is only tested for presence.
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) enum Base {
    Variable(Arc<str>),
    /// A variable of a comprehension.
    Local(usize),
    Value(Node),
    /// One of two attributes.
    Conditional(Box<(Node, Attribute, Attribute)>),
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKey {
    Const(Value<'static>),
    /// An attribute, which as a key does not cost what it costs as a value.
    Attribute(Attribute),
    Value(Node),
}

pub(super) struct CallNode {
    pub(super) name: Arc<str>,
    pub(super) function: Function,
    pub(super) args: Vec<Node>,
    pub(super) cost: CallCost,
    /// The constant pattern of a regular expression.
    pub(super) regex: Option<Regex>,
    /// The value of a function without arguments that is a constant.
    pub(super) value: Option<Value<'static>>,
}

impl std::fmt::Debug for CallNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallNode").field("name", &self.name).field("args", &self.args).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct EntryNode {
    pub(super) key: Node,
    pub(super) value: Node,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct FieldNode {
    pub(super) name: Arc<str>,
    pub(super) value: Node,
    pub(super) optional: bool,
}

/// A loop over a list or map.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) variable: usize,
    pub(super) variable2: Option<usize>,
    pub(super) body: Body,
}

/// The computation of a loop. The loops of macros need no accumulator value.
#[derive(Debug)]
pub(super) enum Body {
    All(Node),
    Exists(Node),
    /// Appends an item to a list if the condition is true. The cost is that of one append.
    Append {
        filter: Option<Node>,
        element: Node,
        cost: u64,
    },
    /// The same for a map.
    Insert {
        filter: Option<Node>,
        args: Vec<Node>,
    },
    General {
        accumulator: usize,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    },
}

#[derive(Debug)]
pub(super) struct Bind {
    pub(super) slot: usize,
    pub(super) init: Node,
    pub(super) result: Node,
}
