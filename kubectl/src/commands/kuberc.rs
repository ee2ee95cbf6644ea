//! `kuberc` and `alpha kuberc`: shows and changes the user's preferences.

use std::path::Path;

use api::{Tree, list, tree, yaml};
use stdx::fs::{Durability, ReplaceOptions};

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, io_text, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::preferences::{LoadError, Location, empty, location, read, recommended};
use crate::print::{PRINT, Printer};

const SET_FLAGS: &[Flag] = &[
    typed(
        "allowlist-entry",
        '\0',
        Kind::Array,
        "",
        "A credential plugin that may run, as command=NAME; can be repeated.",
    ),
    typed("appendarg", '\0', Kind::Array, "", "An argument at the end of an alias; can be repeated."),
    text("command", '\0', "", "The command, such as `get` or `set env`."),
    text("name", '\0', "", "The name of an alias."),
    typed("option", '\0', Kind::Array, "", "A default of a flag, as FLAG=VALUE; can be repeated."),
    switch("overwrite", '\0', "Replace an entry that exists."),
    text("policy", '\0', "", "Which credential plugins may run: AllowAll, DenyAll, or Allowlist."),
    typed("prependarg", '\0', Kind::Array, "", "An argument behind the name of an alias; can be repeated."),
    text("section", '\0', "", "What to change: defaults, aliases, or credentialplugin. Required."),
];

static SET: Command = Command {
    name: "set",
    usage: "--section (defaults|aliases|credentialplugin)",
    short: "Set values in the kuberc configuration",
    examples: "# Nodes in a wide table by `kubectl getn`\nkubectl kuberc set --section aliases --name getn --command get --prependarg nodes --option output=wide",
    flags: &[SET_FLAGS],
    run: Some(|context| Box::pin(async move { set(context) })),
    ..Command::EMPTY
};

static VIEW: Command = Command {
    name: "view",
    usage: "",
    short: "Display the current kuberc configuration",
    flags: &[PRINT],
    run: Some(|context| Box::pin(async move { view(context) })),
    ..Command::EMPTY
};

pub(crate) static KUBERC: Command = Command {
    name: "kuberc",
    usage: "SUBCOMMAND",
    short: "Manage kuberc configuration files",
    children: &[&SET, &VIEW],
    group: "Settings Commands",
    ..Command::EMPTY
};

pub(crate) static ALPHA: Command = Command {
    name: "alpha",
    short: "Commands for features in alpha",
    children: &[&KUBERC],
    only_helps: true,
    group: "Settings Commands",
    ..Command::EMPTY
};

fn file(context: &Context) -> Result<Location> {
    match location(context.flags.str("kuberc"))? {
        Some(location) => Ok(location),
        None => message("KUBERC is disabled via KUBERC=off environment variable"),
    }
}

fn view(context: &Context) -> Result<()> {
    let file = file(context)?;
    let mut preferences = match read(&file.path) {
        Ok(Tree::Null) => empty(),
        Ok(preferences) => preferences,
        Err(LoadError::Missing(path)) if file.is_explicit => {
            return message(format!("kuberc file not found at {}", path.display()));
        }
        Err(LoadError::Missing(path)) => return offer(context, &path),
        Err(error) => return message(format!("error reading kuberc file: {error}")),
    };
    for section in ["aliases", "defaults"] {
        preferences.set_default(section, list![]);
    }
    let printer = Printer::new(context, false)?;
    if printer.is_human() { context.write(&yaml::encode(&preferences)) } else { printer.print(context, &preferences) }
}

/// Offers to write recommended preferences.
fn offer(context: &Context, path: &Path) -> Result<()> {
    context.print(&format!(
        "kuberc file not found at {}\nWould you like to generate a default kuberc file with recommended options? (y/N): ",
        path.display()
    ))?;
    context.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim().eq_ignore_ascii_case("y") { save(context, path, &recommended()) } else { Ok(()) }
}

fn save(context: &Context, path: &Path, preferences: &Tree) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(format!("failed to write kuberc file: open {}: {}", path.display(), io_text(&error)))
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    // A link stays a link: its target is replaced.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let options = ReplaceOptions { mode: Some(0o644), durability: Durability::All };
    options.write(&target, &yaml::encode(preferences)).map_err(failed)?;
    context.print(&format!("Updated {}\n", path.display()))
}

fn set(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.changed("section") {
        return message("required flag(s) \"section\" not set");
    }
    let file = file(context)?;
    check(context)?;
    let mut preferences = match read(&file.path) {
        Ok(Tree::Null) | Err(LoadError::Missing(_)) => empty(),
        Ok(preferences) => preferences,
        Err(error) => return message(format!("error reading kuberc file: {error}")),
    };
    match flags.str("section") {
        "defaults" => set_defaults(context, &mut preferences)?,
        "aliases" => set_alias(context, &mut preferences)?,
        _ => set_policy(context, &mut preferences)?,
    }
    save(context, &file.path, &preferences)
}

fn check(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let section = flags.str("section");
    if !matches!(section, "defaults" | "aliases" | "credentialplugin") {
        return message(format!(
            "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {section}"
        ));
    }
    if section == "aliases" && flags.str("name").is_empty() {
        return message("--name is required when --section=aliases");
    }
    if section == "defaults" && !flags.str("name").is_empty() {
        return message("--name should not be specified when --section=defaults");
    }
    if section == "defaults" && (flags.changed("prependarg") || flags.changed("appendarg")) {
        return message("--prependarg and --appendarg are only valid for --section=aliases");
    }
    if section != "credentialplugin" {
        if flags.str("command").is_empty() {
            return message("--command is required when --section=aliases or --section=defaults");
        }
        return Ok(());
    }
    let has_list = flags.changed("allowlist-entry");
    match flags.str("policy") {
        "" => message("--policy is required when --section=credentialplugin"),
        "AllowAll" | "DenyAll" if has_list => {
            message("--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist")
        }
        "Allowlist" if !has_list => {
            message("--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist")
        }
        "AllowAll" | "DenyAll" | "Allowlist" => Ok(()),
        other => message(format!("--policy must be \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}")),
    }
}

/// `--option`; null without one.
fn options(context: &Context) -> Result<Tree> {
    let mut options = Vec::new();
    for option in context.flags.list("option") {
        let Some((name, value)) = option.split_once('=') else {
            let option = api::field::go_quote(&option);
            return message(format!("invalid option format {option}, expected flag=value"));
        };
        options.push(tree! { "name" => name.trim_start_matches('-'), "default" => value });
    }
    Ok(if options.is_empty() { Tree::Null } else { Tree::List(options) })
}

fn set_defaults(context: &Context, preferences: &mut Tree) -> Result<()> {
    let (command, options) = (context.flags.str("command"), options(context)?);
    let entries = preferences.list_entry("defaults");
    let Some(entry) = entries.iter_mut().find(|entry| entry.str("command") == command) else {
        entries.push(tree! { "command" => command, "options" => options });
        return Ok(());
    };
    if !context.flags.bool("overwrite") {
        let command = api::field::go_quote(command);
        return message(format!("defaults for command {command} already exist, use --overwrite to replace"));
    }
    if !options.is_null() {
        entry.set("options", options);
    }
    Ok(())
}

fn set_alias(context: &Context, preferences: &mut Tree) -> Result<()> {
    let flags = &context.flags;
    let name = flags.str("name");
    let texts = |flag: &str| flags.list(flag).iter().map(Tree::from).collect::<Vec<Tree>>();
    let lists = [("prependArgs", texts("prependarg")), ("appendArgs", texts("appendarg"))];
    let mut fields: Vec<(&str, Tree)> = vec![("command", Tree::from(flags.str("command")))];
    fields
        .extend(lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(field, list)| (field, Tree::List(list))));
    let options = options(context)?;
    if !options.is_null() {
        fields.push(("options", options));
    }
    let entries = preferences.list_entry("aliases");
    let at = match entries.iter().position(|entry| entry.str("name") == name) {
        Some(_) if !flags.bool("overwrite") => {
            return message(format!("alias {} already exists, use --overwrite to replace", api::field::go_quote(name)));
        }
        Some(at) => at,
        None => {
            entries.push(tree! { "name" => name });
            entries.len() - 1
        }
    };
    // What flags do not name stays as it is.
    fields.into_iter().for_each(|(field, value)| entries[at].set(field, value));
    Ok(())
}

fn set_policy(context: &Context, preferences: &mut Tree) -> Result<()> {
    let policy = context.flags.str("policy");
    preferences.set("credentialPluginPolicy", policy);
    if policy != "Allowlist" {
        // A list is only valid with the policy that uses it.
        preferences.remove("credentialPluginAllowlist");
        return Ok(());
    }
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for pair in context.flags.list("allowlist-entry").iter().flat_map(|entry| entry.split(',')) {
        let quote = api::field::go_quote;
        match pair.split_once('=') {
            Some(("command", value)) if !value.trim().is_empty() => entries.push(tree! { "command" => value }),
            Some(("command", _)) => {
                errors.push(Error::new("empty value in allowlist entry for field \"command\""));
            }
            Some(("name", _)) => {
                errors.push(Error::new("allowlist entry field \"name\" is deprecated, use \"command\" instead"));
            }
            Some((field, _)) => {
                errors.push(Error::new(format!("unrecognized allowlist entry field: {}", quote(field))));
            }
            None => errors.push(Error::new(format!("improperly formatted allowlist entry: {}", quote(pair)))),
        }
    }
    if !errors.is_empty() {
        return message(Error::Many(errors).to_string());
    }
    preferences.set("credentialPluginAllowlist", entries);
    Ok(())
}
