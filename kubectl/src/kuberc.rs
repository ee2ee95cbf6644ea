//! What preferences do: aliases become commands, and defaults become values of flags.

use api::Tree;

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::Flag;
use crate::globals::GLOBALS;
use crate::preferences::{load, plugin_policy};

/// The value of `--kuberc`, before flags are parsed.
fn flag_of(arguments: &[String]) -> Result<String> {
    let mut rest = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = rest.next() {
        let value = match argument.strip_prefix("--kuberc") {
            Some("") => rest.next().cloned(),
            Some(value) => value.strip_prefix('=').map(str::to_string),
            None => continue,
        };
        match value {
            Some(value) if !value.is_empty() => return Ok(value),
            _ => return message("kuberc file is not found"),
        }
    }
    Ok(String::new())
}

/// The command of a path such as `set env`.
fn find(words: &str) -> Option<&'static Command> {
    let mut command = &crate::commands::ROOT;
    for word in words.split_whitespace() {
        command = command.child(word)?;
    }
    (!std::ptr::eq(command, &crate::commands::ROOT)).then_some(command)
}

fn flag(command: &Command, name: &str) -> Option<&'static Flag> {
    command.flags.iter().flat_map(|group| group.iter()).chain(GLOBALS).find(|flag| flag.name == name)
}

/// Whether arguments have a flag, in any of its forms.
fn is_given(flag: &Flag, arguments: &[String]) -> bool {
    let long = format!("--{}", flag.name);
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| {
        let is_long = *argument == long || argument.strip_prefix(&long).is_some_and(|rest| rest.starts_with('='));
        let is_short = flag.short != '\0' && argument.starts_with(&format!("-{}", flag.short));
        is_long || is_short
    })
}

/// Arguments with an alias replaced by its command, and whether there was one. An alias cannot replace a built-in
/// command.
pub(crate) fn expand_alias(arguments: Vec<String>) -> Result<(Vec<String>, bool)> {
    let Some(at) = arguments.iter().position(|argument| !argument.starts_with('-')) else {
        return Ok((arguments, false));
    };
    if crate::commands::ROOT.child(&arguments[at]).is_some() {
        return Ok((arguments, false));
    }
    let preferences = load(&flag_of(&arguments)?)?;
    let aliases = preferences.list("aliases");
    match aliases.iter().find(|alias| alias.str("name") == arguments[at]) {
        Some(alias) => Ok((expand(alias, &arguments[..at], &arguments[at + 1..])?, true)),
        None => Ok((arguments, false)),
    }
}

fn expand(alias: &Tree, before: &[String], rest: &[String]) -> Result<Vec<String>> {
    let Some(command) = find(alias.str("command")) else {
        return message(format!(
            "command \"{}\" not found to set alias \"{}\": {:?}",
            alias.str("command"),
            alias.str("name"),
            alias.str("command").split_whitespace().collect::<Vec<_>>()
        ));
    };
    let texts = |key: &str| alias.list(key).iter().filter_map(Tree::as_str).map(str::to_string).collect::<Vec<_>>();
    let mut expanded = before.to_vec();
    expanded.extend(alias.str("command").split_whitespace().map(str::to_string));
    expanded.extend(texts("prependArgs"));
    for option in alias.list("options") {
        let name = option.str("name");
        let Some(flag) = flag(command, name) else {
            return message(format!("invalid alias flag {name} in alias kubectl"));
        };
        if !is_given(flag, before) && !is_given(flag, rest) {
            expanded.push(format!("--{name}={}", option.str("default")));
        }
    }
    expanded.extend_from_slice(rest);
    expanded.extend(texts("appendArgs"));
    Ok(expanded)
}

/// Applies the preferences to a command: defaults of its flags, unless it is an alias, which has its own, and the policy
/// for credential plugins.
pub(crate) fn apply(context: &mut Context, is_alias: bool) -> Result<()> {
    if context.path.ends_with(" kuberc view") || context.path.ends_with(" kuberc set") {
        // These show and repair the file.
        return Ok(());
    }
    if context.flags.changed("kuberc") && context.flags.str("kuberc").is_empty() {
        return message("kuberc file is not found");
    }
    let preferences = load(context.flags.str("kuberc"))?;
    context.plugin_policy = plugin_policy(&preferences)?;
    let path = context.path.clone();
    let name = path.strip_prefix("kubectl ").unwrap_or_default();
    for entry in preferences.list("defaults").iter().filter(|_| !is_alias) {
        let words = entry.str("command").split_whitespace().collect::<Vec<_>>().join(" ");
        let Some(command) = find(&words) else {
            context.note(&format!("Warning: command \"{}\" not found to set kuberc override", entry.str("command")));
            continue;
        };
        if words != name {
            continue;
        }
        for option in entry.list("options") {
            let (name, value) = (option.str("name"), option.str("default"));
            if flag(command, name).is_none() {
                return message(format!("invalid flag {name} for command {words}"));
            }
            context.flags.set_default(name, value).map_err(|error| {
                Error::new(format!(
                    "could not apply override value {value} to flag {name} in command {words} err: {error}"
                ))
            })?;
        }
    }
    Ok(())
}

/// An error of the preferences.
pub(crate) fn failed(error: Error) -> Error {
    Error::Plain(format!("error occurred while applying preferences {error}"))
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn parse(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    const ALIASES: &str = "aliases:\n- {name: getn, command: get, prependArgs: [nodes], options: [{name: output, default: \
                           wide}]}\n- {name: runx, command: run, appendArgs: [--, x], options: [{name: image, default: nginx}]}\n";

    #[test]
    fn aliases_are_expanded() {
        let preferences = parse(ALIASES);
        let check = |alias: usize, before: &str, rest: &str, want: &str| {
            let alias = &preferences.list("aliases")[alias];
            assert_eq!(expand(alias, &words(before), &words(rest)).expect("expanded"), words(want), "{rest}");
        };
        check(0, "", "a", "get nodes --output=wide a");
        check(0, "-n x", "a -o json", "-n x get nodes a -o json");
        check(0, "", "a --output=json", "get nodes a --output=json");
        check(0, "", "a --output-watch-events", "get nodes --output=wide a --output-watch-events");
        check(1, "", "p", "run --image=nginx p -- x");
    }

    #[test]
    fn the_flag_is_found_before_flags_are_parsed() {
        let check = |line: &str, want: Option<&str>| assert_eq!(flag_of(&words(line)).ok().as_deref(), want, "{line}");
        check("get pods", Some(""));
        check("get --kuberc=a pods", Some("a"));
        check("get --kuberc b pods", Some("b"));
        check("exec x -- --kuberc=a", Some(""));
        check("get --kuberc=", None);
        check("get --kuberc", None);
    }
}
