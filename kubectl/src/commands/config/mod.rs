//! `config`: the kubeconfig.

mod entries;
mod view;

use std::path::PathBuf;

use api::{Tree, base64};

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::kubeconfig::{Config, Entry, Section, load_file, write_file};
use crate::print::{PRINT, TabWriter};
use entries::{entry_mut, set_cluster, set_context, set_credentials};
use view::view;

macro_rules! subcommand {
    ($name:ident, $text:literal, $usage:literal, $short:literal, $flags:expr, $run:expr) => {
        static $name: Command = Command {
            name: $text,
            usage: $usage,
            short: $short,
            flags: $flags,
            run: Some(|context| Box::pin(async move { $run(context) })),
            ..Command::EMPTY
        };
    };
}

const VIEW_FLAGS: &[Flag] = &[
    switch("flatten", '\0', "Put the content of files into the output."),
    switch_on("merge", '\0', "Merge all files; without, only the file of --kubeconfig."),
    switch("minify", '\0', "Only what the current context uses."),
    switch("raw", '\0', "Show certificates and credentials."),
];
const NO_HEADERS: &[Flag] = &[
    switch("no-headers", '\0', "Do not print the names of columns."),
    text("output", 'o', "", "Output format. One of: (name)."),
];
const CLUSTER_FLAGS: &[Flag] = &[
    text("certificate-authority", '\0', "", "File with CA certificates."),
    switch("embed-certs", '\0', "Put the content of the file into the kubeconfig."),
    switch("insecure-skip-tls-verify", '\0', "Accept any certificate."),
    text("proxy-url", '\0', "", "Proxy of the cluster."),
    text("server", '\0', "", "Address of the server."),
    text("tls-server-name", '\0', "", "Name in the server's certificate."),
];
const CONTEXT_FLAGS: &[Flag] = &[
    text("cluster", '\0', "", "Cluster of the context."),
    switch("current", '\0', "Change the current context."),
    text("namespace", '\0', "", "Namespace of the context."),
    text("user", '\0', "", "User of the context."),
];
const CREDENTIALS_FLAGS: &[Flag] = &[
    text("auth-provider", '\0', "", "Authentication provider."),
    typed("auth-provider-arg", '\0', Kind::Slice, "", "Argument of the provider, as key=value or key-."),
    text("client-certificate", '\0', "", "File with the client certificate."),
    text("client-key", '\0', "", "File with the key."),
    switch("embed-certs", '\0', "Put the content of the files into the kubeconfig."),
    text("exec-api-version", '\0', "", "API version of the credential plugin."),
    typed("exec-arg", '\0', Kind::Slice, "", "Argument of the credential plugin."),
    text("exec-command", '\0', "", "Program of the credential plugin."),
    typed("exec-env", '\0', Kind::Array, "", "Environment variable of the credential plugin, as key=value or key-."),
    text("exec-interactive-mode", '\0', "", "Interactive mode of the credential plugin."),
    switch("exec-provide-cluster-info", '\0', "Give the plugin information about the cluster."),
    text("password", '\0', "", "Password."),
    text("token", '\0', "", "Bearer token."),
    text("username", '\0', "", "User name."),
];
const SET_FLAGS: &[Flag] = &[switch("set-raw-bytes", '\0', "The value is base64.")];

subcommand!(CURRENT, "current-context", "", "Display the current-context", &[], current_context);
subcommand!(DELETE_CLUSTER, "delete-cluster", "NAME", "Delete the specified cluster from the kubeconfig", &[], |c| {
    delete(c, Section::Clusters)
});
subcommand!(DELETE_CONTEXT, "delete-context", "NAME", "Delete the specified context from the kubeconfig", &[], |c| {
    delete(c, Section::Contexts)
});
subcommand!(DELETE_USER, "delete-user", "NAME", "Delete the specified user from the kubeconfig", &[], |c| delete(
    c,
    Section::Users
));
subcommand!(GET_CLUSTERS, "get-clusters", "", "Display clusters defined in the kubeconfig", &[], get_clusters);
subcommand!(
    GET_CONTEXTS,
    "get-contexts",
    "[(-o|--output=)name)]",
    "Describe one or many contexts",
    &[NO_HEADERS],
    get_contexts
);
subcommand!(GET_USERS, "get-users", "", "Display users defined in the kubeconfig", &[], get_users);
subcommand!(
    RENAME,
    "rename-context",
    "CONTEXT_NAME NEW_NAME",
    "Rename a context from the kubeconfig file",
    &[],
    rename
);
subcommand!(
    SET,
    "set",
    "PROPERTY_NAME PROPERTY_VALUE",
    "Set an individual value in a kubeconfig file",
    &[SET_FLAGS],
    set
);
subcommand!(
    SET_CLUSTER,
    "set-cluster",
    "NAME [--server=server] [--certificate-authority=path/to/certificate/authority] [--insecure-skip-tls-verify=true] [--tls-server-name=example.com]",
    "Set a cluster entry in kubeconfig",
    &[CLUSTER_FLAGS],
    set_cluster
);
subcommand!(
    SET_CONTEXT,
    "set-context",
    "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace]",
    "Set a context entry in kubeconfig",
    &[CONTEXT_FLAGS],
    set_context
);
subcommand!(
    SET_CREDENTIALS,
    "set-credentials",
    "NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] [--username=basic_user] [--password=basic_password]",
    "Set a user entry in kubeconfig",
    &[CREDENTIALS_FLAGS],
    set_credentials
);
subcommand!(UNSET, "unset", "PROPERTY_NAME", "Unset an individual value in a kubeconfig file", &[], unset);
subcommand!(USE, "use-context", "CONTEXT_NAME", "Set the current-context in a kubeconfig file", &[], use_context);
subcommand!(
    VIEW,
    "view",
    "[flags]",
    "Display merged kubeconfig settings or a specified kubeconfig file",
    &[VIEW_FLAGS, PRINT],
    view
);

pub(crate) static CONFIG: Command = Command {
    name: "config",
    usage: "SUBCOMMAND",
    short: "Modify kubeconfig files",
    children: &[
        &CURRENT,
        &DELETE_CLUSTER,
        &DELETE_CONTEXT,
        &DELETE_USER,
        &GET_CLUSTERS,
        &GET_CONTEXTS,
        &GET_USERS,
        &RENAME,
        &SET,
        &SET_CLUSTER,
        &SET_CONTEXT,
        &SET_CREDENTIALS,
        &UNSET,
        &USE,
        &VIEW,
    ],
    group: "Other Commands",
    ..Command::EMPTY
};

/// Changes the merged configuration, and writes each changed entry to the file that it is from.
fn modify(context: &Context, change: impl FnOnce(&mut Config) -> Result<()>) -> Result<()> {
    let old = load(context)?;
    let mut new = old.clone();
    change(&mut new)?;
    let paths = context.paths();
    let default = paths.default_file();
    let file_of =
        |key: &(Section, String)| old.entries.get(key).map_or_else(|| default.clone(), |entry| entry.origin.clone());
    let mut keys: Vec<&(Section, String)> = new.entries.keys().chain(old.entries.keys()).collect();
    keys.sort();
    keys.dedup();
    let changed: Vec<&(Section, String)> = keys
        .into_iter()
        .filter(|key| new.entries.get(key).map(|e| &e.value) != old.entries.get(key).map(|e| &e.value))
        .collect();
    let mut files: Vec<PathBuf> = changed.iter().map(|key| file_of(key)).collect();
    let context_file = current_context_file(context).unwrap_or_else(|| default.clone());
    if new.current_context != old.current_context {
        files.push(context_file.clone());
    }
    if new.other != old.other {
        files.push(default.clone());
    }
    files.sort();
    files.dedup();
    for path in files {
        let mut file = load_file(&path).unwrap_or_default();
        for key in changed.iter().filter(|key| file_of(key) == path) {
            match new.entries.get(*key) {
                Some(entry) => {
                    drop(file.entries.insert((*key).clone(), Entry { origin: path.clone(), ..entry.clone() }))
                }
                None => drop(file.entries.remove(*key)),
            }
        }
        if new.current_context != old.current_context && path == context_file {
            file.current_context = new.current_context.clone();
        }
        if new.other != old.other && path == default {
            file.other = new.other.clone();
        }
        write_file(&path, &file)?;
    }
    Ok(())
}

/// An explicit file that does not exist is created here.
fn load(context: &Context) -> Result<Config> {
    let paths = context.paths();
    if paths.is_explicit() && !paths.default_file().exists() {
        return Ok(Config::default());
    }
    crate::kubeconfig::load(&paths)
}

/// The file whose current context counts.
fn current_context_file(context: &Context) -> Option<PathBuf> {
    let paths = context.paths();
    let has = |path: &&PathBuf| load_file(path).is_ok_and(|file| !file.current_context.is_empty());
    paths.files().iter().find(has).cloned()
}

fn one_name(context: &Context) -> Result<String> {
    match context.args.as_slice() {
        [name] => Ok(name.clone()),
        args => message(format!("Unexpected args: [{}]", args.join(" "))),
    }
}

fn current_context(context: &Context) -> Result<()> {
    let config = load(context)?;
    if config.current_context.is_empty() {
        return message("current-context is not set");
    }
    context.print(&format!("{}\n", config.current_context))
}

fn delete(context: &Context, section: Section) -> Result<()> {
    let noun = section.item();
    let name = one_name(context)?;
    let config = load(context)?;
    let file = config
        .entries
        .get(&(section, name.clone()))
        .map_or_else(|| context.paths().default_file(), |e| e.origin.clone());
    if config.get(section, &name).is_none() {
        return message(format!("cannot delete {noun} {name}, not in {}", file.display()));
    }
    if section == Section::Contexts && config.current_context == name {
        context.note(
            "warning: this removed your active context, use \"kubectl config use-context\" to select a different one",
        );
    }
    modify(context, |config| {
        config.entries.remove(&(section, name.clone()));
        Ok(())
    })?;
    context.print(&format!("deleted {noun} {name} from {}\n", file.display()))
}

fn get_clusters(context: &Context) -> Result<()> {
    context.print("NAME\n")?;
    load(context)?.names(Section::Clusters).try_for_each(|name| context.print(&format!("{name}\n")))
}

fn get_users(context: &Context) -> Result<()> {
    context.print("NAME\n")?;
    load(context)?.names(Section::Users).try_for_each(|name| context.print(&format!("{name}\n")))
}

fn get_contexts(context: &Context) -> Result<()> {
    let (config, flags) = (load(context)?, &context.flags);
    let is_name = match flags.str("output") {
        "" | "wide" => false,
        "name" => true,
        other => return message(format!("output must be one of '' or 'name': {other}")),
    };
    let names: Vec<String> = if context.args.is_empty() {
        config.names(Section::Contexts).map(str::to_string).collect()
    } else {
        context.args.clone()
    };
    let mut tabs = TabWriter::default();
    if !flags.bool("no-headers") && !is_name {
        tabs.text("CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n");
    }
    let mut errors = Vec::new();
    for name in names {
        let Some(entry) = config.get(Section::Contexts, &name) else {
            errors.push(Error::new(format!("context {name} not found")));
            continue;
        };
        if is_name {
            context.print(&format!("{name}\n"))?;
            continue;
        }
        let mark = if name == config.current_context { "*" } else { "" };
        tabs.text(&format!(
            "{mark}\t{name}\t{}\t{}\t{}\n",
            entry.str("cluster"),
            entry.str("user"),
            entry.str("namespace")
        ));
    }
    context.print(&tabs.flush())?;
    Error::all(errors)
}

fn rename(context: &Context) -> Result<()> {
    let [old, new] = context.args.as_slice() else {
        return message(format!("Unexpected args: [{}]", context.args.join(" ")));
    };
    modify(context, |config| {
        let Some(entry) = config.entries.get(&(Section::Contexts, old.clone())).cloned() else {
            return message(format!(
                "cannot rename the context {}, it's not in {}",
                api::field::go_quote(old),
                context.paths().default_file().display()
            ));
        };
        if config.get(Section::Contexts, new).is_some() {
            return message(format!(
                "cannot rename the context {}, the context {} already exists in {}",
                api::field::go_quote(old),
                api::field::go_quote(new),
                context.paths().default_file().display()
            ));
        }
        config.entries.remove(&(Section::Contexts, old.clone()));
        config.entries.insert((Section::Contexts, new.clone()), entry);
        if config.current_context == *old {
            config.current_context = new.clone();
        }
        Ok(())
    })?;
    context.print(&format!("Context {} renamed to {}.\n", api::field::go_quote(old), api::field::go_quote(new)))
}

fn use_context(context: &Context) -> Result<()> {
    let name = one_name(context)?;
    modify(context, |config| {
        if config.get(Section::Contexts, &name).is_none() {
            return message(format!("no context exists with the name: {}", api::field::go_quote(&name)));
        }
        config.current_context = name.clone();
        Ok(())
    })?;
    context.print(&format!("Switched to context {}.\n", api::field::go_quote(&name)))
}

/// `contexts.NAME.namespace`: the entry's name may contain dots.
fn locate(config: &Config, property: &str) -> Option<(Section, String, String)> {
    let section = Section::ALL.into_iter().find(|section| property.starts_with(&format!("{}.", section.key())))?;
    let rest = &property[section.key().len() + 1..];
    let known = config
        .names(section)
        .filter(|name| rest.strip_prefix(name).is_some_and(|tail| tail.is_empty() || tail.starts_with('.')));
    if let Some(name) = known.max_by_key(|name| name.len()) {
        return Some((section, name.to_string(), rest[name.len()..].trim_start_matches('.').to_string()));
    }
    let (name, field) = rest.rsplit_once('.').unwrap_or((rest, ""));
    Some((section, name.to_string(), field.to_string()))
}

fn set(context: &Context) -> Result<()> {
    let [property, value] = context.args.as_slice() else {
        return message(format!("Unexpected args: [{}]", context.args.join(" ")));
    };
    modify(context, |config| {
        if property == "current-context" {
            config.current_context = value.clone();
            return Ok(());
        }
        let Some((section, name, field)) = locate(config, property) else {
            return message(format!("unable to parse {property} after [] at api.Config"));
        };
        if field.is_empty() {
            return message("no values specified to set");
        }
        let entry = entry_mut(config, section, &name);
        let typed = match value.as_str() {
            "true" | "false" if field.starts_with("insecure") || field.starts_with("disable") => {
                Tree::Bool(value == "true")
            }
            _ if field.ends_with("-data") && !context.flags.bool("set-raw-bytes") => Tree::from(value),
            _ if field.ends_with("-data") => Tree::from(base64::encode(value.as_bytes())),
            _ => Tree::from(value),
        };
        entry.set(&field, typed);
        Ok(())
    })?;
    context.print(&format!("Property {} set.\n", api::field::go_quote(property)))
}

fn unset(context: &Context) -> Result<()> {
    let [property] = context.args.as_slice() else {
        return message(format!("Unexpected args: [{}]", context.args.join(" ")));
    };
    modify(context, |config| {
        if property == "current-context" {
            config.current_context.clear();
            return Ok(());
        }
        if let Some(section) = Section::ALL.into_iter().find(|section| section.key() == property) {
            config.entries.retain(|key, _| key.0 != section);
            return Ok(());
        }
        let Some((section, name, field)) = locate(config, property) else {
            return message(format!("unable to parse {property} after [] at api.Config"));
        };
        if field.is_empty() {
            let is_empty = config.names(section).next().is_none();
            if config.entries.remove(&(section, name)).is_none() && !is_empty {
                return message(format!(
                    "current map key `{}` is invalid",
                    property.rsplit('.').next().unwrap_or_default()
                ));
            }
            return Ok(());
        }
        entry_mut(config, section, &name).remove(&field);
        Ok(())
    })?;
    context.print(&format!("Property {} unset.\n", api::field::go_quote(property)))
}
