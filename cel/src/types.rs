//! The types of CEL and their assignability, with type parameters.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A type of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Known at run time only.
    Dyn,
    /// The type of an expression that has an error.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a type, with the type if it is known.
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with declared fields, or a type of the libraries that is one.
    Object(Arc<str>),
    /// A type that only functions understand.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A type parameter of a function, or a type that is not yet known.
    Param(Arc<str>),
}

/// The name of optional types.
const OPTIONAL: &str = "optional_type";

impl Type {
    /// The type of lists of an item type.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// The type of maps.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// The type of objects with this name.
    pub fn object(name: &str) -> Type {
        Type::Object(name.into())
    }

    /// A type without parameters that only functions use.
    pub fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), Arc::new([]))
    }

    /// The type of optional values.
    pub fn optional(value: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    pub(crate) fn param(name: &str) -> Type {
        Type::Param(name.into())
    }

    pub(crate) fn type_of(of: Type) -> Type {
        Type::Type(Some(Arc::new(of)))
    }

    /// The value's type of an optional type.
    pub(crate) fn optional_value(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The name of the type at run time: what `type(x)` prints.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Error => "!error!",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type(_) => "type",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Object(name) | Type::Opaque(name, _) | Type::Param(name) => name,
        }
    }

    fn params(&self) -> &[Type] {
        match self {
            Type::List(item) => std::slice::from_ref(item),
            Type::Type(Some(of)) => std::slice::from_ref(of),
            Type::Opaque(_, params) => params,
            _ => &[],
        }
    }

    /// Whether two types have the same name, whatever their parameters are.
    fn same_constructor(&self, other: &Type) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.name() == other.name()
    }

    /// Whether the types are equal, where type parameters equal each other.
    pub(crate) fn is_equivalent(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Param(_), Type::Param(_)) => true,
            (Type::Map(a), Type::Map(b)) => a.0.is_equivalent(&b.0) && a.1.is_equivalent(&b.1),
            _ => {
                let (mine, theirs) = (self.params(), other.params());
                self.same_constructor(other)
                    && mine.len() == theirs.len()
                    && mine.iter().zip(theirs).all(|(a, b)| a.is_equivalent(b))
            }
        }
    }
}

/// As error messages show it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Null => f.write_str("null"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            _ => {
                f.write_str(self.name())?;
                write_params(f, self.params())
            }
        }
    }
}

fn write_params(f: &mut fmt::Formatter<'_>, params: &[Type]) -> fmt::Result {
    if params.is_empty() {
        return Ok(());
    }
    for (at, param) in params.iter().enumerate() {
        f.write_str(if at == 0 { "(" } else { ", " })?;
        write!(f, "{param}")?;
    }
    f.write_str(")")
}

/// The types of the type parameters. Failed trials are rolled back: long expressions copy nothing.
#[derive(Debug, Default)]
pub(crate) struct Substitutions {
    types: HashMap<Arc<str>, Type>,
    log: Vec<(Arc<str>, Option<Type>)>,
}

impl Substitutions {
    pub(crate) fn insert(&mut self, param: &str, to: Type) {
        let key: Arc<str> = param.into();
        let previous = self.types.insert(key.clone(), to);
        self.log.push((key, previous));
    }

    fn roll_back(&mut self) {
        while let Some((key, previous)) = self.log.pop() {
            match previous {
                Some(previous) => self.types.insert(key, previous),
                None => self.types.remove(&key),
            };
        }
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        if let Type::Param(name) = of { self.types.get(name) } else { None }
    }

    /// The type with its parameters replaced; unknown parameters become dyn if `to_dyn`.
    pub(crate) fn apply(&self, of: &Type, to_dyn: bool) -> Type {
        if let Some(found) = self.find(of) {
            return self.apply(found, to_dyn);
        }
        match of {
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(item) => Type::list(self.apply(item, to_dyn)),
            Type::Map(pair) => Type::map(self.apply(&pair.0, to_dyn), self.apply(&pair.1, to_dyn)),
            Type::Type(Some(inner)) => Type::type_of(self.apply(inner, to_dyn)),
            Type::Opaque(name, params) => {
                Type::Opaque(name.clone(), params.iter().map(|param| self.apply(param, to_dyn)).collect())
            }
            other => other.clone(),
        }
    }

    /// Whether a value of type `from` can be used as `to`; if so, what follows for the parameters is kept.
    pub(crate) fn assign(&mut self, to: &Type, from: &Type) -> bool {
        self.assign_all(std::slice::from_ref(to), std::slice::from_ref(from))
    }

    /// The same for the arguments of a call.
    pub(crate) fn assign_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        self.log.clear();
        let assignable = self.try_assign_all(to, from);
        if !assignable {
            self.roll_back();
        }
        assignable
    }

    fn try_assign_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        to.len() == from.len() && to.iter().zip(from).all(|(a, b)| self.try_assign(a, b))
    }

    fn try_assign(&mut self, a: &Type, b: &Type) -> bool {
        if matches!(b, Type::Param(_)) {
            let (valid, substituted) = self.substitute(a, b);
            if valid || substituted {
                return valid;
            }
        }
        if matches!(a, Type::Param(_)) {
            return self.substitute(b, a).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.try_assign(a, b),
            (Type::Map(a), Type::Map(b)) => self.try_assign(&a.0, &b.0) && self.try_assign(&a.1, &b.1),
            (Type::Opaque(a, mine), Type::Opaque(b, theirs)) => a == b && self.try_assign_all(mine, theirs),
            _ => a == b,
        }
    }

    /// Substitutes the type for the parameter: whether it can, and whether it had a substitution.
    fn substitute(&mut self, to: &Type, param: &Type) -> (bool, bool) {
        if to == param {
            return (true, true);
        }
        if let Some(found) = self.find(param).cloned() {
            return (self.generalize(to, param, &found), true);
        }
        let free = !self.refers(param, to);
        if free {
            self.insert(param.name(), to.clone());
        }
        (free, false)
    }

    fn generalize(&mut self, to: &Type, param: &Type, found: &Type) -> bool {
        if to == found {
            return true;
        }
        let assignable = self.try_assign(to, found);
        if assignable {
            let general = most_general(to, found).clone();
            if !self.refers(param, &general) {
                self.insert(param.name(), general);
            }
        }
        assignable
    }

    /// Whether `within` contains the parameter.
    fn refers(&self, param: &Type, within: &Type) -> bool {
        if param == within {
            return true;
        }
        match within {
            Type::Param(_) => self.find(within).is_some_and(|found| self.refers(param, found)),
            Type::Map(pair) => self.refers(param, &pair.0) || self.refers(param, &pair.1),
            _ => within.params().iter().any(|inner| self.refers(param, inner)),
        }
    }
}

fn is_nullable(of: &Type) -> bool {
    matches!(of, Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp)
}

pub(crate) fn most_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if is_equal_or_less_specific(a, b) { a } else { b }
}

fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(a, mine), Type::Opaque(b, theirs)) => {
            let compare = |(a, b): (&Type, &Type)| is_equal_or_less_specific(a, b);
            a == b && mine.len() == theirs.len() && mine.iter().zip(theirs.iter()).all(compare)
        }
        _ => a == b,
    }
}
