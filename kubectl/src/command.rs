//! A command as data: its names, flags and function; and the context that the function gets.

use std::future::Future;
use std::pin::Pin;

use crate::context::Context;
use crate::error::Result;
use crate::flags::Flag;

/// A running command.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// A command, or a group of commands.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// What follows the path of the command in its usage.
    pub(crate) usage: &'static str,
    pub(crate) short: &'static str,
    /// The text of the help, if it says more than the short one.
    pub(crate) long: &'static str,
    pub(crate) examples: &'static str,
    pub(crate) flags: &'static [&'static [Flag]],
    pub(crate) children: &'static [&'static Command],
    pub(crate) run: Option<for<'a> fn(&'a Context) -> Running<'a>>,
    /// The heading in the list of commands; a command without one is not listed.
    pub(crate) group: &'static str,
    /// Flags end at the first positional argument, since the rest is another program's.
    pub(crate) stops_at_arguments: bool,
    /// A group that shows its help, and no error, whatever follows its name.
    pub(crate) only_helps: bool,
    /// The exit code for invalid flags: 1, unless that code says something else.
    pub(crate) flag_error_code: u8,
}

impl Command {
    /// A command with nothing.
    pub(crate) const EMPTY: Command = Command {
        name: "",
        aliases: &[],
        usage: "",
        short: "",
        long: "",
        examples: "",
        flags: &[],
        children: &[],
        run: None,
        group: "",
        stops_at_arguments: false,
        only_helps: false,
        flag_error_code: 1,
    };

    /// The child with a name or an alias.
    pub(crate) fn child(&self, name: &str) -> Option<&'static Command> {
        self.children.iter().find(|child| child.name == name || child.aliases.contains(&name)).copied()
    }
}
