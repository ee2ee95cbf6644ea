//! Help texts: our own words in upstream's form.

use crate::command::Command;
use crate::flags::{Flag, Kind};

/// The headings of the root's list, in their order.
const GROUPS: &[&str] = &[
    "Basic Commands (Beginner)",
    "Basic Commands (Intermediate)",
    "Deploy Commands",
    "Cluster Management Commands",
    "Troubleshooting and Debugging Commands",
    "Advanced Commands",
    "Settings Commands",
    "Other Commands",
];

/// The help of a command.
pub(crate) fn command(command: &Command, path: &str) -> String {
    let mut text = if command.long.is_empty() { command.short } else { command.long }.trim().to_string();
    text.push_str("\n\n");
    if !command.aliases.is_empty() {
        text.push_str(&format!("Aliases:\n{}, {}\n\n", command.name, command.aliases.join(", ")));
    }
    if !command.examples.is_empty() {
        let lines = command.examples.trim().lines().map(|line| format!("  {}\n", line.trim()));
        text.push_str(&format!("Examples:\n{}\n", lines.collect::<String>()));
    }
    text.push_str(&children(command));
    text.push_str(&flags(command.flags));
    if command.run.is_none() {
        text.push_str(&format!("Usage:\n  {path} [flags] [options]\n\n"));
        text.push_str(&format!("Use \"{path} <command> --help\" for more information about a given command.\n"));
    } else {
        text.push_str(&format!("Usage:\n  {}\n\n", usage(command, path)));
    }
    if path != "kubectl options" {
        text.push_str("Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n");
    }
    text
}

fn usage(command: &Command, path: &str) -> String {
    let flags = if command.flags.is_empty() { "" } else { " [options]" };
    if command.usage.is_empty() { format!("{path}{flags}") } else { format!("{path} {}{flags}", command.usage) }
}

fn children(command: &Command) -> String {
    if command.children.is_empty() {
        return String::new();
    }
    let width = command.children.iter().map(|child| child.name.len()).max().unwrap_or(0).max(11);
    let line = |child: &&&Command| format!("  {:width$}   {}\n", child.name, child.short);
    let mut text = String::new();
    for group in GROUPS {
        let lines: String =
            command.children.iter().filter(|child| child.group == *group).map(|child| line(&child)).collect();
        if !lines.is_empty() {
            text.push_str(&format!("{group}:\n{lines}\n"));
        }
    }
    let rest: String = command
        .children
        .iter()
        .filter(|child| child.group.is_empty() && command.name != "kubectl")
        .map(|child| line(&child))
        .collect();
    if !rest.is_empty() {
        text.push_str(&format!("Available Commands:\n{rest}\n"));
    }
    text
}

/// The options of groups of flags, sorted by name.
pub(crate) fn flags(groups: &[&[Flag]]) -> String {
    let mut all: Vec<&Flag> = groups.iter().flat_map(|group| group.iter()).filter(|flag| !flag.is_hidden).collect();
    all.sort_by_key(|flag| flag.name);
    all.dedup_by_key(|flag| flag.name);
    if all.is_empty() {
        return String::new();
    }
    let lines = all.iter().map(|flag| {
        let short = if flag.short == '\0' { "    ".to_string() } else { format!("-{}, ", flag.short) };
        format!("    {short}--{}={}:\n\t{}\n\n", flag.name, default(flag), flag.help)
    });
    format!("Options:\n{}", lines.collect::<String>())
}

fn default(flag: &Flag) -> String {
    match flag.kind {
        Kind::Text => format!("'{}'", flag.default),
        Kind::Array | Kind::Slice | Kind::Pairs => format!("[{}]", flag.default),
        _ => flag.default.to_string(),
    }
}
