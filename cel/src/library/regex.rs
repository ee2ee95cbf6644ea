//! Regular expressions with the syntax of Go, which is that of RE2. They are matched in linear time.

use std::sync::Arc;

use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;

use super::{Call, Function, no_overload};
use crate::library::signature::Row;
use crate::value::{CostTracker, EvalError, Value};

mod translate;

pub(crate) use translate::RegexError;

/// The memory of a compiled expression.
const MAX_SIZE: usize = 4 << 20;
/// The number of visited states for one step of work.
const STATES_PER_STEP: usize = 64;

pub(super) const ROWS: &[Row] = &[
    ("find", "string_find_string", "string.(string) -> string"),
    ("findAll", "string_find_all_string", "string.(string) -> list<string>"),
    ("findAll", "string_find_all_string_int", "string.(string, int) -> list<string>"),
];

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Regex(Arc<PikeVM>);

impl Regex {
    pub(crate) fn new(pattern: &str) -> Result<Regex, RegexError> {
        let translated = translate::translate(pattern)?;
        let config = thompson::Config::new().nfa_size_limit(Some(MAX_SIZE)).which_captures(WhichCaptures::Implicit);
        let vm = PikeVM::builder().syntax(syntax::Config::new().nest_limit(1000)).thompson(config).build(&translated);
        vm.map(|vm| Regex(Arc::new(vm))).map_err(|_| RegexError::too_large(pattern))
    }

    fn charge(&self, text: &str, tracker: &CostTracker<'_>) -> Result<Cache, EvalError> {
        let states = self.0.get_nfa().states().len();
        tracker.step(states.saturating_mul(text.len() + 1) / STATES_PER_STEP)?;
        Ok(self.0.create_cache())
    }

    pub(crate) fn is_match(&self, text: &str, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
        let mut cache = self.charge(text, tracker)?;
        Ok(self.0.is_match(&mut cache, text))
    }

    fn find_all<'a>(&self, text: &str, limit: usize, tracker: &CostTracker<'_>) -> Result<Vec<Value<'a>>, EvalError> {
        let mut cache = self.charge(text, tracker)?;
        let found = self.0.find_iter(&mut cache, text).take(limit);
        Ok(found.map(|found| Value::string(&text[found.range()])).collect())
    }
}

/// A call with the pattern as its second argument, compiled before if it is a constant.
pub(crate) fn call_with<'a>(
    call: &Call<'_>,
    name: &str,
    regex: &Regex,
    args: &[Value<'a>],
) -> Result<Value<'a>, EvalError> {
    let Value::String(text) = &args[0] else { return no_overload() };
    match name {
        "matches" => regex.is_match(text, call.tracker).map(Value::Bool),
        "find" => {
            let found = regex.find_all(text, 1, call.tracker)?;
            Ok(found.into_iter().next().unwrap_or_else(|| Value::from("")))
        }
        _ => {
            let limit = match args.get(2) {
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            regex.find_all(text, limit, call.tracker).map(Value::list)
        }
    }
}

/// Whether the second argument of a function is a pattern.
pub(crate) fn takes_pattern(name: &str) -> bool {
    matches!(name, "matches" | "find" | "findAll")
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "matches" => |call, args| compile(call, "matches", args),
        "find" => |call, args| compile(call, "find", args),
        "findAll" => |call, args| compile(call, "findAll", args),
        _ => return None,
    })
}

fn compile<'a>(call: &Call<'_>, name: &str, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let Some(Value::String(pattern)) = args.get(1) else { return no_overload() };
    call.tracker.step(pattern.len().saturating_mul(64))?;
    let regex = Regex::new(pattern).map_err(|error| {
        let prefix = if name == "matches" { "" } else { "Illegal regex: " };
        EvalError::failed(format!("{prefix}{error}"))
    })?;
    // Short patterns can have many states.
    call.tracker.step(regex.0.get_nfa().states().len().saturating_mul(16))?;
    call_with(call, name, &regex, args)
}
