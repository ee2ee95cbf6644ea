//! Flags in upstream's form, from one table: each is honoured, or rejected by its name; no flag is accepted and
//! ignored.

pub(crate) mod gates;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod values;

use crate::error::{Error, Result};

/// Why the value of a flag is rejected: an error of its parser, or a text with the supported values.
pub(crate) type FlagError = Box<dyn std::error::Error + Send + Sync>;

/// Why an argument is refused.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("unknown argument {0:?}")]
    NotAFlag(String),
    #[error("unknown flag: --{0}")]
    Unknown(String),
    #[error("--{0} needs a value")]
    NoValue(&'static str),
    #[error("invalid flag --{flag}: {source}")]
    Refused { flag: &'static str, source: FlagError },
}

/// A flag of a component with the flags `F`.
pub struct Flag<F: 'static> {
    pub name: &'static str,
    pub help: &'static str,
    /// A switch is true without a value.
    pub switch: bool,
    pub state: State<F>,
}

/// Whether a flag is supported.
pub enum State<F> {
    /// Parses a value; the error explains why it is invalid.
    Honoured(fn(&mut F, &str) -> Result<(), FlagError>),
    /// Rejected, with the reason.
    Unfinished(&'static str),
}

/// A flag with a value.
pub const fn flag<F>(
    name: &'static str,
    help: &'static str,
    take: fn(&mut F, &str) -> Result<(), FlagError>,
) -> Flag<F> {
    Flag { name, help, switch: false, state: State::Honoured(take) }
}

pub(crate) const fn switch<F>(
    name: &'static str,
    help: &'static str,
    take: fn(&mut F, &str) -> Result<(), FlagError>,
) -> Flag<F> {
    Flag { name, help, switch: true, state: State::Honoured(take) }
}

pub(crate) const fn unfinished<F>(name: &'static str, missing: &'static str) -> Flag<F> {
    Flag { name, help: "", switch: false, state: State::Unfinished(missing) }
}

/// A flag whose value is parsed by a function and stored in a field.
macro_rules! field {
    ($name:literal, $help:literal, $read:path, $($place:tt)+) => {
        $crate::flags::flag($name, $help, |flags, value| {
            flags.$($place)+ = $read(value)?;
            Ok(())
        })
    };
}

macro_rules! on_off {
    ($name:literal, $help:literal, $($place:tt)+) => {
        $crate::flags::switch($name, $help, |flags, value| {
            flags.$($place)+ = $crate::flags::values::boolean(value)?;
            Ok(())
        })
    };
}

macro_rules! file {
    ($name:literal, $help:literal, $($place:tt)+) => {
        $crate::flags::flag($name, $help, |flags, value| {
            flags.$($place)+ = Some(value.into()).filter(|_| !value.is_empty());
            Ok(())
        })
    };
}

/// `--feature-gates` of a component.
macro_rules! feature_gates {
    ($gates:expr) => {
        $crate::flags::flag(
            "feature-gates",
            "feature gates; a gate can only be given its built-in value",
            |_, value| Ok($crate::flags::gates::check($gates, value)?),
        )
    };
}

/// A flag that accepts only its built-in value.
macro_rules! fixed {
    ($sort:ident, $name:literal, $value:literal, $why:expr) => {
        $crate::flags::$sort($name, concat!("only ", $value), |_, value| {
            let read = $crate::flags::values::duration;
            let same = value == $value || matches!((read(value), read($value)), (Ok(a), Ok(b)) if a == b);
            if same { Ok(()) } else { Err($why.into()) }
        })
    };
}

/// Reads `--name=value`, `--name value` and `--switch`. All errors are reported together.
pub(crate) fn parse<F: Default>(parts: &[&'static [Flag<F>]], arguments: &[String]) -> Result<F> {
    parse_noting(parts, arguments).map(|(flags, _)| flags)
}

/// Parses arguments, and returns the names of the flags that were set.
pub(crate) fn parse_noting<F: Default>(
    parts: &[&'static [Flag<F>]],
    arguments: &[String],
) -> Result<(F, Vec<&'static str>)> {
    let mut flags = F::default();
    let (mut errors, mut given_names) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let Some((name, given)) = split(argument) else {
            errors.push(ArgumentError::NotAFlag(argument.clone()).to_string());
            continue;
        };
        let Some(flag) = parts.iter().copied().flatten().find(|flag| flag.name == name) else {
            errors.push(ArgumentError::Unknown(name.to_string()).to_string());
            continue;
        };
        let value = match given {
            Some(value) => Some(value),
            None if flag.switch => Some("true"),
            None => rest.next_if(|next| split(next).is_none()).map(String::as_str),
        };
        given_names.push(flag.name);
        errors.extend(apply(flag, value, &mut flags).err().map(|error| error.to_string()));
    }
    if errors.is_empty() { Ok((flags, given_names)) } else { Err(Error::Flags(errors)) }
}

/// The name of a flag, and its value if the same argument contains it.
fn split(argument: &str) -> Option<(&str, Option<&str>)> {
    let name = argument.strip_prefix("--").or(argument.strip_prefix('-').filter(|name| name.starts_with('v')))?;
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

fn apply<F>(flag: &Flag<F>, value: Option<&str>, flags: &mut F) -> Result<(), ArgumentError> {
    let refused = |source| ArgumentError::Refused { flag: flag.name, source };
    match (&flag.state, value) {
        (State::Unfinished(missing), _) => Err(refused((*missing).into())),
        (State::Honoured(_), None) => Err(ArgumentError::NoValue(flag.name)),
        (State::Honoured(take), Some(value)) => take(flags, value).map_err(refused),
    }
}

/// The column of the help texts.
const HELP_COLUMN: usize = 46;

/// A name that reaches into the column of texts has its text on the next line.
fn help_line(name: &str, help: &str) -> String {
    let flag = format!("  --{name}");
    if flag.len() + 2 > HELP_COLUMN {
        return format!("{flag}\n{:HELP_COLUMN$}{help}\n", "");
    }
    format!("{flag:<HELP_COLUMN$}{help}\n")
}

pub(crate) fn help<F>(component: &str, about: &str, parts: &[&'static [Flag<F>]]) -> String {
    let mut text = format!("{about}\n\nUsage: {component} [FLAGS]\n\n");
    let mut flags: Vec<&Flag<F>> = parts.iter().copied().flatten().collect();
    flags.sort_unstable_by_key(|flag| flag.name);
    for flag in flags {
        let help = match flag.state {
            State::Honoured(_) => flag.help.to_string(),
            State::Unfinished(missing) => format!("refused: {missing}"),
        };
        text.push_str(&help_line(flag.name, &help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_flags_from_their_help() {
        assert_eq!(help_line("v", "text"), format!("  --v{}text\n", " ".repeat(41)));
        for length in 38..60 {
            let line = help_line(&"x".repeat(length), "text");
            assert!(line.contains("  text") && line.trim_start().starts_with("--x"), "{line}");
        }
    }
}
