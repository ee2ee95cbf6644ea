//! Preferences: aliases of commands, defaults of flags, and which credential plugins may run, from `~/.kube/kuberc`.
//! Credentials and the choice of the server are not in it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use api::{Tree, list, tree};

use crate::error::{Result, io_text, message};
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
pub(crate) fn load(flag: &str) -> Result<Tree> {
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
pub(crate) fn plugin_policy(preferences: &Tree) -> Result<PluginPolicy> {
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
    fn old_preferences_become_new_ones() {
        let preferences = parse(
            "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\noverrides:\n- {command: apply, flags: [{name: \
             server-side, default: 'true'}]}\n",
        );
        assert_eq!(preferences.list("defaults")[0].list("options")[0].str("name"), "server-side");
    }
}
