//! The functions: a table of overloads and an implementation for each library, as in Kubernetes' environments. An
//! implementation gets its target and arguments and checks their types itself.

mod authorization;
pub(crate) mod conversions;
mod formats;
pub(crate) mod formatting;
mod lists;
mod messages;
mod network;
mod optionals;
mod quantities;
pub(crate) mod regex;
mod semvers;
mod sets;
mod signature;
mod standard;
mod strings;
mod urls;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::Type;
use crate::value::{CostTracker, EvalError, Value};

pub(crate) use formats::find_constant;
pub(crate) use messages::{build_message, find_message};
pub(crate) use optionals::insert_into;
pub(crate) use signature::Overload;
use signature::Row;

/// A database of time zones: evaluation does not read any by itself.
pub trait TimeZones: Send + Sync {
    /// The offset of a zone from UTC, in seconds to the east, at a time in Unix seconds.
    fn offset(&self, zone: &str, seconds: i64) -> Option<i64>;
}

/// The context of a function besides its arguments.
pub(crate) struct Call<'c> {
    pub(crate) tracker: &'c CostTracker<'c>,
    pub(crate) zones: Option<&'c dyn TimeZones>,
}

impl<'c> Call<'c> {
    pub(crate) fn new(tracker: &'c CostTracker<'c>, zones: Option<&'c dyn TimeZones>) -> Call<'c> {
        Call { tracker, zones }
    }
}

/// The implementation of a function.
pub(crate) type Function = for<'a> fn(&Call<'_>, &[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// Strings and bytes that a function builds are at most so long, since some cost less than they build.
pub(crate) const MAX_LENGTH: usize = 16 << 20;

pub(crate) fn check_length(length: usize) -> Result<(), EvalError> {
    if length > MAX_LENGTH { Err(EvalError::failed("result is too large")) } else { Ok(()) }
}

fn no_overload<'a>() -> Result<Value<'a>, EvalError> {
    Err(EvalError::overload())
}

/// A set of functions that an environment has or has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    /// The language itself, and the libraries of all environments of Kubernetes 1.36.
    Base,
    /// `includes`, which expressions can use from 1.37 on.
    Includes,
    /// `jsonpatch.escapeKey`.
    JsonPatch,
}

/// The overloads of a function, by the library that has them.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    functions: HashMap<&'static str, Vec<(Library, Overload)>>,
}

impl Declarations {
    fn add(&mut self, library: Library, rows: &[Row]) {
        for row in rows {
            self.functions.entry(row.0).or_default().push((library, Overload::read(row)));
        }
    }

    /// The overloads of a function in an environment with some libraries.
    pub(crate) fn find<'d>(
        &'d self,
        name: &str,
        libraries: &'d [Library],
    ) -> Option<impl Iterator<Item = &'d Overload> + use<'d>> {
        let overloads = self.functions.get(name)?;
        let mut found = overloads.iter().filter(|(library, _)| libraries.contains(library)).peekable();
        found.peek()?;
        Some(found.map(|(_, overload)| overload))
    }
}

/// All functions.
pub(crate) static DECLARATIONS: LazyLock<Declarations> = LazyLock::new(|| {
    let mut declarations = Declarations::default();
    let base = [
        standard::ROWS,
        &standard::comparison_rows(),
        conversions::ROWS,
        strings::ROWS,
        lists::ROWS,
        &lists::typed_rows(),
        optionals::ROWS,
        sets::ROWS,
        regex::ROWS,
        urls::ROWS,
        quantities::ROWS,
        network::ROWS,
        semvers::ROWS,
        formats::ROWS,
        &formats::constant_rows(),
        authorization::ROWS,
    ];
    base.into_iter().for_each(|rows| declarations.add(Library::Base, rows));
    declarations.add(Library::Includes, lists::INCLUDES);
    declarations.add(Library::JsonPatch, strings::JSON_PATCH);
    declarations
});

/// The implementation of a function. Operators that do not evaluate all of their operands have none.
pub(crate) fn find_function(name: &str) -> Option<Function> {
    let find = [
        standard::find,
        conversions::find,
        strings::find,
        lists::find,
        optionals::find,
        sets::find,
        regex::find,
        urls::find,
        quantities::find,
        network::find,
        semvers::find,
        formats::find,
        authorization::find,
    ];
    find.into_iter().find_map(|find| find(name))
}

/// The types that expressions can name.
pub(crate) fn find_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" | "net.CIDR" => Type::opaque(name),
        _ => return None,
    })
}
