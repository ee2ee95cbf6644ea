//! Preferences: aliases of commands and defaults of flags, from `~/.kube/kuberc`. Credentials and the choice of the
//! server are not in it.

use std::path::PathBuf;

use api::{Tree, yaml};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::kubeconfig::home;

/// The file with the preferences; None if they are turned off.
pub(crate) fn path(flag: &str) -> Option<PathBuf> {
    if std::env::var("KUBECTL_KUBERC").is_ok_and(|value| value == "false") || flag == "off" {
        return None;
    }
    if !flag.is_empty() {
        return Some(PathBuf::from(flag));
    }
    match std::env::var("KUBERC") {
        Ok(value) if value == "off" => None,
        Ok(value) if !value.is_empty() => Some(PathBuf::from(value)),
        _ => Some(home().join(".kube/kuberc")),
    }
}

/// The preferences; null if there are none.
pub(crate) fn load(flag: &str) -> Result<Tree> {
    let Some(path) = path(flag) else { return Ok(Tree::Null) };
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(_) if flag.is_empty() => return Ok(Tree::Null),
        Err(error) => {
            let text = crate::error::io_text(&error);
            return Err(Error::Message(format!("unable to load kuberc from {}: {text}", path.display())));
        }
    };
    let tree = yaml::decode(&bytes)
        .map_err(|error| Error::Message(format!("unable to load kuberc from {}: {error}", path.display())))?;
    match (tree.str("apiVersion"), tree.str("kind")) {
        ("kubectl.config.k8s.io/v1beta1" | "kubectl.config.k8s.io/v1alpha1", "Preference") => Ok(tree),
        (version, kind) => Err(Error::Message(format!(
            "unable to load kuberc from {}: {kind:?} in version {version:?} is not a Preference of kubectl.config.k8s.io",
            path.display()
        ))),
    }
}

fn flag_of(arguments: &[String]) -> String {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if let Some(value) = argument.strip_prefix("--kuberc=") {
            return value.to_string();
        }
        if argument == "--kuberc" {
            return rest.next().cloned().unwrap_or_default();
        }
        if argument == "--" {
            break;
        }
    }
    String::new()
}

/// The arguments with an alias replaced by its command. An alias cannot replace a built-in command.
pub(crate) fn expand_alias(arguments: Vec<String>) -> Result<Vec<String>> {
    let Some(at) = arguments.iter().position(|argument| !argument.starts_with('-')) else { return Ok(arguments) };
    if crate::commands::ROOT.child(&arguments[at]).is_some() {
        return Ok(arguments);
    }
    let preferences = load(&flag_of(&arguments))?;
    let aliases = preferences.list("aliases");
    let Some(alias) = aliases.iter().find(|alias| alias.str("name") == arguments[at]) else { return Ok(arguments) };
    let texts = |key: &str| alias.list(key).iter().filter_map(Tree::as_str).map(str::to_string).collect::<Vec<_>>();
    let mut expanded = arguments[..at].to_vec();
    expanded.extend(alias.str("command").split_whitespace().map(str::to_string));
    expanded.extend(texts("prependArgs"));
    let rest = &arguments[at + 1..];
    for option in alias.list("options").iter().chain(alias.list("flags")) {
        let long = format!("--{}", option.str("name"));
        let is_given = rest.iter().any(|argument| *argument == long || argument.starts_with(&format!("{long}=")));
        if !is_given {
            expanded.push(format!("{long}={}", option.str("default")));
        }
    }
    expanded.extend_from_slice(rest);
    expanded.extend(texts("appendArgs"));
    Ok(expanded)
}

/// Sets the defaults of a command's flags.
pub(crate) fn set_defaults(context: &mut Context) -> Result<()> {
    let preferences = load(context.flags.str("kuberc"))?;
    let name = context.path.strip_prefix("kubectl ").unwrap_or_default().to_string();
    for entry in preferences.list("defaults").iter().chain(preferences.list("overrides")) {
        if entry.str("command") == name {
            for option in entry.list("options").iter().chain(entry.list("flags")) {
                context.flags.set_default(option.str("name"), option.str("default"));
            }
        }
    }
    Ok(())
}
