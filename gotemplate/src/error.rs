//! Errors with Go's texts.

/// A template that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {name}:{line}: {message}")]
pub struct ParseError {
    pub name: String,
    pub line: usize,
    pub message: String,
}

/// An execution that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {location}: executing {} at <{context}>: {failure}", api::quote::go_quote(.template))]
pub struct ExecError {
    /// Name, line and column.
    pub location: String,
    /// The name of the template that was being executed.
    pub template: String,
    /// The source of the expression.
    pub context: String,
    #[source]
    pub failure: Failure,
}

/// Why an execution failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("nil data; no entry for key {}", api::quote::go_quote(.0))]
    NilData(String),
    #[error("map has no entry for key {}", api::quote::go_quote(.0))]
    NoEntry(String),
    #[error("nil pointer evaluating {ty}.{field}")]
    NilPointer { ty: &'static str, field: String },
    #[error("can't evaluate field {field} in type {ty}")]
    NoField { field: String, ty: &'static str },
    #[error("{0} is not a method but has arguments")]
    ArgumentsOfField(String),
    #[error("can't give argument to non-function {0}")]
    NotAFunction(String),
    #[error("nil is not a command")]
    NilCommand,
    #[error("{0} overflows int")]
    Overflow(String),
    #[error("undefined variable: {0}")]
    UndefinedVariable(String),
    #[error("template {} not defined", api::quote::go_quote(.0))]
    UndefinedTemplate(String),
    #[error("exceeded maximum template depth ({0})")]
    TooDeep(usize),
    #[error("range can't iterate over {0}")]
    NotIterable(String),
    #[error("can't use {0} to iterate over more than one variable")]
    OneVariable(String),
    #[error("wrong number of args for {name}: want {at_least}{want} got {got}")]
    ArgumentCount { name: &'static str, at_least: &'static str, want: usize, got: usize },
    #[error("cannot assign nil to {0}")]
    NilArgument(&'static str),
    #[error("expected {expected}; found {found}")]
    WrongLiteral { expected: &'static str, found: String },
    #[error("invalid value; expected {0}")]
    InvalidValue(&'static str),
    #[error("wrong type for value; expected {expected}; got {got}")]
    WrongType { expected: &'static str, got: &'static str },
    #[error("error calling {name}: {error}")]
    Call { name: &'static str, error: CallError },
    #[error("the template takes too many steps")]
    TooManySteps,
    #[error("the template writes too much")]
    TooMuchOutput,
}

/// A function that returned an error. The two that mention `reflect` are panics of Go, which its templates report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("index of untyped nil")]
    IndexOfNil,
    #[error("index of nil pointer")]
    IndexOfNilPointer,
    #[error("slice of untyped nil")]
    SliceOfNil,
    #[error("too many slice indexes: {0}")]
    TooManySliceIndexes(usize),
    #[error("cannot 3-index slice a string")]
    ThreeIndexesOfString,
    #[error("can't slice item of type {0}")]
    NotSliceable(&'static str),
    #[error("invalid slice index: {0} > {1}")]
    SliceOrder(i64, i64),
    #[error("can't index item of type {0}")]
    NotIndexable(&'static str),
    #[error("cannot index slice/array with nil")]
    IndexIsNil,
    #[error("cannot index slice/array with type {0}")]
    IndexType(&'static str),
    #[error("index out of range: {0}")]
    OutOfRange(i64),
    #[error("reflect: {0} index out of range")]
    ReflectOutOfRange(&'static str),
    #[error("value is nil; should be of type string")]
    KeyIsNil,
    #[error("value has type {0}; should be string")]
    KeyType(&'static str),
    #[error("len of nil pointer")]
    LengthOfNil,
    #[error("len of type {0}")]
    NoLength(&'static str),
    #[error("reflect: call of reflect.Value.Type on zero Value")]
    ReflectZeroValue,
    #[error("call of nil")]
    CallOfNil,
    #[error("non-function {name} of type {ty}")]
    NonFunction { name: String, ty: &'static str },
    #[error("missing argument for comparison")]
    NoComparison,
    #[error("invalid type for comparison")]
    BadComparisonType,
    #[error("incompatible types for comparison")]
    BadComparison,
    #[error("non-comparable type {0}: {1}")]
    NotComparable(String, &'static str),
    #[error("non-comparable types {0}: {1}, {2}: {3}")]
    NotComparableTypes(String, &'static str, &'static str, String),
    #[error("base64 decode failed: {0}")]
    Base64(#[from] api::base64::DecodeError),
    #[error("the result is too long")]
    TooLong,
}
