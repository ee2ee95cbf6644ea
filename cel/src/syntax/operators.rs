//! The names of operators as functions.

use super::token::Kind;

pub(crate) const CONDITIONAL: &str = "_?_:_";
pub(crate) const AND: &str = "_&&_";
pub(crate) const OR: &str = "_||_";
pub(crate) const NOT: &str = "!_";
pub(crate) const NEGATE: &str = "-_";
pub(crate) const EQUALS: &str = "_==_";
pub(crate) const NOT_EQUALS: &str = "_!=_";
pub(crate) const LESS: &str = "_<_";
pub(crate) const LESS_EQUALS: &str = "_<=_";
pub(crate) const GREATER: &str = "_>_";
pub(crate) const GREATER_EQUALS: &str = "_>=_";
pub(crate) const ADD: &str = "_+_";
pub(crate) const SUBTRACT: &str = "_-_";
pub(crate) const MULTIPLY: &str = "_*_";
pub(crate) const DIVIDE: &str = "_/_";
pub(crate) const MODULO: &str = "_%_";
pub(crate) const IN: &str = "@in";
pub(crate) const INDEX: &str = "_[_]";
pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
pub(crate) const OPTIONAL_SELECT: &str = "_?._";
pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// The operator of a relation.
pub(crate) fn relation(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Equals => EQUALS,
        Kind::NotEquals => NOT_EQUALS,
        Kind::In => IN,
        Kind::Less => LESS,
        Kind::LessEquals => LESS_EQUALS,
        Kind::GreaterEquals => GREATER_EQUALS,
        Kind::Greater => GREATER,
        _ => return None,
    })
}

/// An arithmetic operator with its precedence.
pub(crate) fn calculation(kind: Kind) -> Option<(&'static str, u8)> {
    Some(match kind {
        Kind::Star => (MULTIPLY, 2),
        Kind::Slash => (DIVIDE, 2),
        Kind::Percent => (MODULO, 2),
        Kind::Plus => (ADD, 1),
        Kind::Minus => (SUBTRACT, 1),
        _ => return None,
    })
}
