//! Comparisons of filters, by the rules of Go's templates: only values of one type are comparable.

use std::cmp::Ordering;

use api::Tree;

use crate::error::EvalError;

pub(crate) fn compare(left: &Tree, operator: &str, right: &Tree) -> Result<bool, EvalError> {
    match operator {
        "==" => is_equal(left, right),
        "!=" => is_equal(left, right).map(|equal| !equal),
        "<" => order(left, right).map(|order| order == Some(Ordering::Less)),
        // The negation of "less" and of "less or equal", also for NaN.
        ">=" => order(left, right).map(|order| order != Some(Ordering::Less)),
        "<=" => order(left, right).map(|order| order.is_some_and(Ordering::is_le)),
        ">" => order(left, right).map(|order| !order.is_some_and(Ordering::is_le)),
        _ => Err(EvalError::UnknownOperator(operator.to_string())),
    }
}

fn is_equal(left: &Tree, right: &Tree) -> Result<bool, EvalError> {
    check_scalar(left)?;
    check_scalar(right)?;
    if std::mem::discriminant(left) != std::mem::discriminant(right) {
        return Err(EvalError::IncompatibleTypes);
    }
    Ok(left == right)
}

fn order(left: &Tree, right: &Tree) -> Result<Option<Ordering>, EvalError> {
    check_scalar(left)?;
    check_scalar(right)?;
    match (left, right) {
        (Tree::Int(left), Tree::Int(right)) => Ok(Some(left.cmp(right))),
        (Tree::Float(left), Tree::Float(right)) => Ok(left.partial_cmp(right)),
        (Tree::Str(left), Tree::Str(right)) => Ok(Some(left.cmp(right))),
        (Tree::Bool(_), Tree::Bool(_)) => Err(EvalError::IncomparableType),
        _ => Err(EvalError::IncompatibleTypes),
    }
}

fn check_scalar(value: &Tree) -> Result<(), EvalError> {
    match value {
        Tree::Null | Tree::List(_) | Tree::Map(_) => Err(EvalError::IncomparableType),
        _ => Ok(()),
    }
}
