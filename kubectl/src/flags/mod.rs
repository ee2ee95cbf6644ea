//! Command line flags with the semantics of upstream's flag library: `--name=value`, `--name value`, `-abc`, `-ovalue`,
//! values that a flag has without an argument, and its error texts.

mod parse;
mod value;

pub(crate) use parse::{ParseError, parse};

use std::collections::BTreeMap;
use std::time::Duration;

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Int32,
    Int64,
    Text,
    Duration,
    /// Repeated; a value may contain commas.
    Array,
    /// Repeated, or separated by commas.
    Slice,
    /// `key=value`, repeated or separated by commas.
    Pairs,
}

/// A flag of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    /// A letter, or NUL.
    pub(crate) short: char,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    /// The value of the flag without an argument.
    pub(crate) bare: Option<&'static str>,
    pub(crate) help: &'static str,
    /// Accepted, but not in the help.
    pub(crate) is_hidden: bool,
    /// What follows the name in the warning about a deprecated flag.
    pub(crate) deprecated: Option<&'static str>,
}

/// A flag with a text.
pub(crate) const fn text(name: &'static str, short: char, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short, kind: Kind::Text, default, bare: None, help, is_hidden: false, deprecated: None }
}

/// A flag that is true without an argument.
pub(crate) const fn switch(name: &'static str, short: char, help: &'static str) -> Flag {
    Flag {
        name,
        short,
        kind: Kind::Bool,
        default: "false",
        bare: Some("true"),
        help,
        is_hidden: false,
        deprecated: None,
    }
}

/// A switch that is on unless it is turned off.
pub(crate) const fn switch_on(name: &'static str, short: char, help: &'static str) -> Flag {
    Flag {
        name,
        short,
        kind: Kind::Bool,
        default: "true",
        bare: Some("true"),
        help,
        is_hidden: false,
        deprecated: None,
    }
}

/// A flag with a value of any type.
pub(crate) const fn typed(
    name: &'static str,
    short: char,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, short, kind, default, bare: None, help, is_hidden: false, deprecated: None }
}

impl Flag {
    /// With a value that it has without an argument.
    pub(crate) const fn bare(mut self, value: &'static str) -> Flag {
        self.bare = Some(value);
        self
    }

    /// Not in the help, with a warning when it is used.
    pub(crate) const fn deprecated(mut self, reason: &'static str) -> Flag {
        self.is_hidden = true;
        self.deprecated = Some(reason);
        self
    }

    /// Not in the help.
    pub(crate) const fn hidden(mut self) -> Flag {
        self.is_hidden = true;
        self
    }
}

/// The values of all flags of a command.
#[derive(Debug, Default)]
pub(crate) struct Values {
    known: BTreeMap<&'static str, Flag>,
    set: BTreeMap<&'static str, Vec<String>>,
    /// The flags of the command line with their values.
    order: Vec<(&'static str, String)>,
}

impl Values {
    /// Whether the command has the flag.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// The type of a flag's value.
    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        self.known.get(name).map(|flag| flag.kind)
    }

    /// Whether the command line names the flag.
    pub(crate) fn changed(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// The flags of the command line with their values, in their order.
    pub(crate) fn command_line(&self) -> &[(&'static str, String)] {
        &self.order
    }

    /// The warnings about deprecated flags of the command line.
    pub(crate) fn deprecations(&self) -> Vec<String> {
        let warning = |(name, _): &(&'static str, String)| {
            let reason = self.known.get(name)?.deprecated?;
            Some(format!("Flag --{name} has been deprecated, {reason}"))
        };
        self.order.iter().filter_map(warning).collect()
    }

    /// The last value, or the default; empty for an unknown flag.
    pub(crate) fn str(&self, name: &str) -> &str {
        match self.set.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.known.get(name).map_or("", |flag| flag.default),
        }
    }

    /// A switch.
    pub(crate) fn bool(&self, name: &str) -> bool {
        value::parse_bool(self.str(name)).unwrap_or(false)
    }

    /// A number, checked by the parser.
    pub(crate) fn int(&self, name: &str) -> i64 {
        value::parse_int(self.str(name)).unwrap_or(0)
    }

    /// A duration in nanoseconds, checked by the parser. It can be negative.
    pub(crate) fn nanos(&self, name: &str) -> i64 {
        api::time::parse_duration(self.str(name)).unwrap_or(0)
    }

    /// A duration; zero if it is negative.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos(name)).unwrap_or(0))
    }

    /// All values of a repeated flag, or those of its default.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let Some(flag) = self.known.get(name) else { return Vec::new() };
        match self.set.get(name) {
            Some(values) if flag.kind == Kind::Slice => values.iter().flat_map(|text| value::split_csv(text)).collect(),
            Some(values) => values.clone(),
            None => value::split_csv(flag.default),
        }
    }

    /// The pairs of a flag in their order; the last of equal keys wins.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (key, value) in self.set.get(name).into_iter().flatten().flat_map(|text| value::split_pairs(text)) {
            pairs.retain(|(known, _)| *known != key);
            pairs.push((key, value));
        }
        pairs
    }

    /// Sets a default of the user's preferences: it loses against the command line.
    pub(crate) fn set_default(&mut self, name: &str, text: &str) -> Result<(), ParseError> {
        let Some(flag) = self.known.get(name).copied() else { return Err(ParseError::Unknown(name.to_string())) };
        if !self.changed(name) {
            self.add(&flag, text)?;
        }
        Ok(())
    }
}
