//! Preferences: aliases of commands, defaults of flags, and which credential plugins may run, from `~/.kube/kuberc`.
//! Credentials and the choice of the server are not in it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use api::{Tree, list, tree};

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, io_text, message};
use crate::flags::Flag;
use crate::globals::GLOBALS;
use crate::kubeconfig::home;
use crate::objects::{DocumentError, documents, parse_document};
use crate::transport::PluginPolicy;

const GROUP: &str = "kubectl.config.k8s.io";
/// Preferences are small; more is another file.
const MAX_SIZE: u64 = 1024 * 1024;

/// Where the preferences are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    /// A flag or the environment names it, so that it has to exist.
    pub(crate) is_explicit: bool,
}

/// The file with the preferences; None if they are turned off.
pub(crate) fn location(flag: &str) -> Result<Option<Location>> {
    if std::env::var("KUBECTL_KUBERC").is_ok_and(|value| value == "false") || flag == "off" {
        return Ok(None);
    }
    let variable = std::env::var("KUBERC").unwrap_or_default();
    match (flag, variable.as_str()) {
        ("", "off") => Ok(None),
        (_, "off") => message("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive"),
        ("", "") => Ok(Some(Location { path: home().join(".kube/kuberc"), is_explicit: false })),
        ("", path) | (path, _) => Ok(Some(Location { path: PathBuf::from(path), is_explicit: true })),
    }
}

/// Why there are no preferences.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("open {}: no such file or directory", .0.display())]
    Missing(PathBuf),
    #[error("open {}: {}", path.display(), io_text(source))]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is larger than {MAX_SIZE} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: DocumentError },
    #[error("no valid preferences found in {}", .0.display())]
    NoPreference(PathBuf),
}

/// The first document of a file that has preferences, in the newest version. Null for an empty file.
pub(crate) fn read(path: &Path) -> std::result::Result<Tree, LoadError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => LoadError::Missing(path.to_path_buf()),
        _ => LoadError::Read { path: path.to_path_buf(), source },
    };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_SIZE {
        return Err(LoadError::TooLarge(path.to_path_buf()));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let invalid = |source| LoadError::Syntax { path: path.to_path_buf(), source };
    let mut is_empty = true;
    for (line, text) in documents(&bytes) {
        is_empty = false;
        if let Some(preferences) = newest(parse_document(text, line).map_err(invalid)?) {
            return Ok(preferences);
        }
    }
    if is_empty { Ok(Tree::Null) } else { Err(LoadError::NoPreference(path.to_path_buf())) }
}

/// A Preference of any version as v1beta1.
fn newest(mut document: Tree) -> Option<Tree> {
    let version = document.str("apiVersion").strip_prefix(GROUP)?.strip_prefix('/')?.to_string();
    if document.str("kind") != "Preference" {
        return None;
    }
    let (defaults, options) = match version.as_str() {
        "v1beta1" => return Some(document),
        "v1alpha1" => ("overrides", "flags"),
        _ => return None,
    };
    let mut renamed = |from: &str| {
        let mut entries = document.remove(from).unwrap_or_default();
        for entry in entries.as_list_mut().into_iter().flatten() {
            if let Some(value) = entry.remove(options) {
                entry.set("options", value);
            }
        }
        entries
    };
    let (defaults, aliases) = (renamed(defaults), renamed("aliases"));
    Some(
        tree! { "apiVersion" => format!("{GROUP}/v1beta1"), "kind" => "Preference", "defaults" => defaults, "aliases" => aliases },
    )
}

/// The preferences; null if there are none. A file that cannot be read is an error, since it may forbid credential
/// plugins.
fn load(flag: &str) -> Result<Tree> {
    let Some(location) = location(flag)? else { return Ok(Tree::Null) };
    let tree = match read(&location.path) {
        Ok(tree) => tree,
        Err(LoadError::Missing(_)) if !location.is_explicit => return Ok(Tree::Null),
        Err(error) => return message(format!("kuberc error kuberc: {error}")),
    };
    let unknown = unknown_fields(&tree);
    if !unknown.is_empty() {
        let path = location.path.display();
        eprintln!("kuberc: ignoring strict decoding error in {path}: strict decoding error: {}", unknown.join(", "));
    }
    validate(&tree)?;
    Ok(tree)
}

fn unknown_fields(tree: &Tree) -> Vec<String> {
    const KNOWN: &[&str] =
        &["apiVersion", "kind", "defaults", "aliases", "credentialPluginPolicy", "credentialPluginAllowlist"];
    const ENTRY: &[&str] = &["name", "command", "options", "prependArgs", "appendArgs"];
    let fields = |tree: &Tree, known: &[&str], prefix: &str| {
        let keys = tree.as_map().into_iter().flat_map(|map| map.keys()).filter(|key| !known.contains(key));
        keys.map(|key| format!("unknown field {}", api::field::go_quote(&format!("{prefix}{key}")))).collect::<Vec<_>>()
    };
    let mut all = fields(tree, KNOWN, "");
    for section in ["defaults", "aliases"] {
        for (number, entry) in tree.list(section).iter().enumerate() {
            all.extend(fields(entry, ENTRY, &format!("{section}[{number}].")));
        }
    }
    all
}

fn validate(preferences: &Tree) -> Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for alias in preferences.list("aliases") {
        let name = alias.str("name");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return message("invalid alias name, can only include alphabetical characters");
        }
        if names.contains(&name) {
            return message(format!("duplicate alias name {name}"));
        }
        names.push(name);
    }
    let entries = preferences.list("aliases").iter().chain(preferences.list("defaults"));
    for option in entries.flat_map(|entry| entry.list("options")) {
        if option.str("name").starts_with('-') {
            return message(format!("flag name {} should be in long form without dashes", option.str("name")));
        }
    }
    plugin_policy(preferences).map(drop)
}

/// Which credential plugins may run. What does not make sense is an error, not a default.
fn plugin_policy(preferences: &Tree) -> Result<PluginPolicy> {
    let name = preferences.str("credentialPluginPolicy");
    let list = preferences.get("credentialPluginAllowlist").filter(|list| !list.is_null());
    match (name, list) {
        ("" | "AllowAll", None) => Ok(PluginPolicy::AllowAll),
        ("DenyAll", None) => Ok(PluginPolicy::DenyAll),
        ("" | "AllowAll" | "DenyAll", Some(_)) => message(format!(
            "misconfigured credential plugin allowlist: plugin policy is \"{name}\" but allowlist is non-nil"
        )),
        ("Allowlist", None) => message("credential plugin policy set to \"Allowlist\", but allowlist is unspecified"),
        ("Allowlist", Some(list)) => allowlist(list.as_list().unwrap_or_default()).map(PluginPolicy::Allowlist),
        (other, _) => message(format!("unknown plugin policy: \"{other}\"")),
    }
}

fn allowlist(entries: &[Tree]) -> Result<Vec<String>> {
    if entries.is_empty() {
        return message(
            "credential plugin policy set to \"Allowlist\", but allowlist is empty; use \"DenyAll\" policy instead",
        );
    }
    let mut commands = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        match (entry.str("name"), entry.str("command")) {
            ("", "") => {
                let number = number + 1;
                return message(format!("misconfigured credential plugin allowlist: empty allowlist entry #{number}"));
            }
            ("", command) | (command, "") => commands.push(command.to_string()),
            (name, command) if name == command => commands.push(command.to_string()),
            // Both would have to match, and they cannot.
            _ => {}
        }
    }
    Ok(commands)
}

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

/// What is recommended to a user without preferences.
pub(crate) fn recommended() -> Tree {
    let default = |command: &str, name: &str| {
        tree! { "command" => command, "options" => list![tree! { "name" => name, "default" => "true" }] }
    };
    let mut preferences = empty();
    preferences.set("defaults", list![default("apply", "server-side"), default("delete", "interactive")]);
    preferences
}

/// Preferences without any.
pub(crate) fn empty() -> Tree {
    tree! { "apiVersion" => format!("{GROUP}/v1beta1"), "kind" => "Preference", "aliases" => Tree::Null, "defaults" => Tree::Null }
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn parse(text: &str) -> Tree {
        newest(yaml::decode(text.as_bytes()).expect("YAML")).expect("a Preference")
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    const OLD: &str = "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\naliases:\n- {name: getn, command: get, \
                       prependArgs: [nodes], flags: [{name: output, default: wide}]}\n- {name: runx, command: run, appendArgs: \
                       [--, x], flags: [{name: image, default: nginx}]}\noverrides:\n- {command: apply, flags: [{name: \
                       server-side, default: 'true'}]}\n";

    #[test]
    fn aliases_are_expanded() {
        let preferences = parse(OLD);
        assert_eq!(preferences.list("defaults")[0].list("options")[0].str("name"), "server-side");
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
    fn bad_preferences_are_refused() {
        let check = |text: &str, want: &str| {
            let text = format!("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n{text}");
            assert_eq!(validate(&parse(&text)).expect_err(&text).to_string(), want);
        };
        let name = "invalid alias name, can only include alphabetical characters";
        check("aliases: [{name: a-b}]", name);
        check("aliases: [{name: a}, {name: a}]", "duplicate alias name a");
        check(
            "defaults: [{command: get, options: [{name: --output}]}]",
            "flag name --output should be in long form without dashes",
        );
        check("credentialPluginPolicy: Nope", "unknown plugin policy: \"Nope\"");
        check(
            "credentialPluginPolicy: Allowlist",
            "credential plugin policy set to \"Allowlist\", but allowlist is unspecified",
        );
        check(
            "credentialPluginPolicy: DenyAll\ncredentialPluginAllowlist: [{command: x}]",
            "misconfigured credential plugin allowlist: plugin policy is \"DenyAll\" but allowlist is non-nil",
        );
        check(
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{}]",
            "misconfigured credential plugin allowlist: empty allowlist entry #1",
        );
        assert_eq!(newest(tree! { "apiVersion" => "v1", "kind" => "Preference" }), None);
        assert_eq!(unknown_fields(&tree! { "aliasses" => 1 }), ["unknown field \"aliasses\""]);
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
