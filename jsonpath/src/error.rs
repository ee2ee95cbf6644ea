//! Errors of evaluation, with upstream's texts.

/// An expression that does not fit its object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0} is not found")]
    NotFound(String),
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds { index: i64, length: i64 },
    #[error("starting index {start} is greater than ending index {end}")]
    Reversed { start: i64, end: i64 },
    #[error("step must be > 0")]
    Step,
    #[error("can only compare one element at a time")]
    SeveralOperands,
    #[error("unrecognized filter operator {0}")]
    UnknownOperator(String),
    #[error("invalid type for comparison")]
    IncomparableType,
    #[error("incompatible types for comparison")]
    IncompatibleTypes,
    #[error("unrecognized identifier {0}")]
    UnknownIdentifier(String),
    #[error("not in range, nothing to end")]
    NotInRange,
    #[error("the expression visits too many values")]
    TooManyValues,
    #[error("ranges are nested too deeply")]
    TooDeep,
}
