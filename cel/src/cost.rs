//! The run-time costs of calls, from the sizes of their arguments.

use crate::syntax::operators as op;
use crate::value::{Opaque, Value};

/// The cost of a list that an expression builds.
pub(crate) const LIST: u64 = 10;
/// The cost of a map that an expression builds.
pub(crate) const MAP: u64 = 30;
/// The cost of an object that an expression builds.
pub(crate) const OBJECT: u64 = 40;
/// The cost of an authorization check.
pub(crate) const CHECK: u64 = 350_000;
/// The cost of a character of a string.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// The cost of a character of a regular expression.
pub(crate) const REGEX_FACTOR: f64 = 0.25;

/// How a call's cost is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CallCost {
    Fixed(u64),
    /// The size of an argument times a factor, rounded up.
    Size(usize, f64),
    /// The smaller of two sizes.
    Equality {
        operator: bool,
    },
    /// The sum of two sizes.
    Concat,
    InList,
    Regex,
    Contains,
    /// All strings in the first argument.
    Traversal,
    Selector,
    /// The size of the result.
    Join,
    ContainsIp {
        parses: bool,
    },
    ContainsCidr {
        parses: bool,
    },
    Validate,
    Range,
    Slice,
    Copy,
    Flatten,
    /// The square of the size of a list.
    SelfCompare(usize),
    Sets(f64),
}

impl CallCost {
    /// The cost by function, and by overload if only one is a candidate.
    pub(crate) fn of(function: &str, overload: &str) -> CallCost {
        CallCost::of_overload(overload).unwrap_or_else(|| CallCost::of_function(function, overload))
    }

    /// Overloads that have costs of their own whatever their function is.
    fn of_overload(overload: &str) -> Option<CallCost> {
        Some(match overload {
            "list_slice" => CallCost::Slice,
            "list_flatten" | "list_flatten_int" => CallCost::Flatten,
            "lists_range" => CallCost::Range,
            "list_reverse" => CallCost::Copy,
            "list_distinct" => CallCost::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => CallCost::Sets(1.0),
            "list_sets_equivalent_list" => CallCost::Sets(2.0),
            _ if overload.ends_with("_sort") => CallCost::SelfCompare(0),
            _ if overload.ends_with("_sortByAssociatedKeys") => CallCost::SelfCompare(1),
            _ => return None,
        })
    }

    fn of_function(function: &str, overload: &str) -> CallCost {
        match function {
            "check" => CallCost::Fixed(CHECK),
            "fieldSelector" | "labelSelector" => CallCost::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => CallCost::Traversal,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => CallCost::Size(0, STRING_FACTOR),
            "replace" | "split" | "ip.isCanonical" => CallCost::Size(0, 2.0 * STRING_FACTOR),
            "join" => CallCost::Join,
            "find" | "findAll" => CallCost::Regex,
            "ip" if overload == "cidr_ip" => CallCost::Fixed(1),
            "ip" => CallCost::Size(0, STRING_FACTOR),
            "containsIP" => CallCost::ContainsIp { parses: overload == "cidr_contains_ip_string" },
            "containsCIDR" => CallCost::ContainsCidr { parses: overload == "cidr_contains_cidr_string" },
            "validate" => CallCost::Validate,
            op::EQUALS => CallCost::Equality { operator: true },
            op::NOT_EQUALS => CallCost::Equality { operator: false },
            _ => CallCost::of_standard(overload),
        }
    }

    fn of_standard(overload: &str) -> CallCost {
        match overload {
            "starts_with_string" | "ends_with_string" => CallCost::Size(1, STRING_FACTOR),
            "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => {
                CallCost::Size(0, STRING_FACTOR)
            }
            "in_list" => CallCost::InList,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => CallCost::Equality { operator: false },
            "add_string" | "add_bytes" => CallCost::Concat,
            "matches" | "matches_string" => CallCost::Regex,
            "contains_string" => CallCost::Contains,
            _ => CallCost::Fixed(1),
        }
    }

    /// Whether a call goes through its first argument although that may cost nothing, as short strings do.
    pub(crate) fn is_traversal(self) -> bool {
        matches!(self, CallCost::Traversal | CallCost::Join)
    }

    /// Whether the cost is only known with the result.
    pub(crate) fn needs_result(self) -> bool {
        self == CallCost::Join
    }

    /// The cost of a call with its arguments, or with its result if it needs it.
    pub(crate) fn compute(self, args: &[Value<'_>]) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::size);
        match self {
            CallCost::Fixed(cost) => cost,
            CallCost::Size(at, factor) => scale(size(at), factor),
            CallCost::Equality { operator: true } if matches!(args[0], Value::Opaque(_)) => 1,
            CallCost::Equality { .. } => scale(inner_size(&args[0]).min(inner_size(&args[1])), STRING_FACTOR),
            CallCost::Concat => scale(size(0) + size(1), STRING_FACTOR),
            CallCost::InList => size(1),
            CallCost::Regex => scale(size(0) + 1, STRING_FACTOR).saturating_mul(scale(size(1), REGEX_FACTOR)),
            CallCost::Contains => scale(size(0), STRING_FACTOR).saturating_mul(scale(size(1), STRING_FACTOR)),
            CallCost::Traversal => traverse(&args[0]),
            CallCost::Selector => selector(size(1)),
            CallCost::Join => scale(size(0), 2.0 * STRING_FACTOR),
            CallCost::ContainsIp { parses } => {
                let other = if parses { scale(size(1), STRING_FACTOR) } else { 0 };
                scale(2 * size(0), STRING_FACTOR) + other
            }
            CallCost::ContainsCidr { parses } => {
                let other = if parses { scale(size(1), STRING_FACTOR) } else { 0 };
                scale(2 * size(0), STRING_FACTOR) + scale(size(0), STRING_FACTOR) + 1 + other
            }
            CallCost::Validate => validate(args),
            _ => self.compute_list(args),
        }
    }

    /// The cost of functions that build lists or compare all items of two lists.
    fn compute_list(self, args: &[Value<'_>]) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::size);
        let number = |at: usize| match args.get(at) {
            Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
            _ => 1,
        };
        let built = match self {
            CallCost::Sets(factor) => return 1 + ((size(0).saturating_mul(size(1))) as f64 * factor) as u64,
            CallCost::Range => number(0),
            CallCost::Slice => number(2).min(size(0)).saturating_sub(number(1)),
            CallCost::Copy => size(0),
            CallCost::Flatten if args.len() == 2 => size(0).saturating_mul(number(1)),
            CallCost::Flatten => size(0),
            CallCost::SelfCompare(at) => self_compare(&args[at]),
            _ => 0,
        };
        built.saturating_add(1 + LIST)
    }
}

/// The cost of sorting or deduplicating a list.
fn self_compare(list: &Value<'_>) -> u64 {
    let Value::List(list) = list else { return 0 };
    let length = list.len() as u64;
    let is_text = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let factor = if is_text { 2.0 + STRING_FACTOR } else { 2.0 };
    (length.saturating_mul(length) as f64 * factor) as u64
}

/// A size times a factor, rounded up.
pub(crate) fn scale(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn inner_size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(value)) => inner_size(value),
        _ => value.size(),
    }
}

fn traverse(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Value::List(list) => list.iter().map(|item| item.map_or(1, |item| traverse(&item))).sum(),
        Value::Map(map) => {
            let entry = |key: Value<'_>| {
                let value = map.find(&key).ok().flatten();
                traverse(&key) + value.map_or(1, |value| traverse(&value))
            };
            map.keys().into_iter().map(entry).sum()
        }
        _ => 1,
    }
}

/// Parsing a selector, and the requirements that it can have.
pub(crate) fn selector(length: u64) -> u64 {
    let requirements = scale(length, 0.5);
    LIST + scale(length, STRING_FACTOR) + requirements.saturating_mul(LIST + OBJECT)
}

fn validate(args: &[Value<'_>]) -> u64 {
    let [Value::Opaque(Opaque::Format(format)), text] = args else { return 1 };
    scale(text.size() + 1, STRING_FACTOR).saturating_mul(scale(format.regex_size, REGEX_FACTOR))
}
