//! `config set-cluster`, `set-context`, `set-credentials`.

use api::{Tree, base64, tree};

use super::{load, modify, one_name};
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::kubeconfig::{Config, PATH_FIELDS, Section};

/// Sets the fields of flags on the command line in an entry.
fn set_fields(context: &Context, entry: &mut Tree, fields: &[&str]) -> Result<()> {
    for field in fields.iter().filter(|field| context.flags.changed(field)) {
        let value = context.flags.str(field);
        let is_file = PATH_FIELDS.iter().any(|(_, name)| name == field);
        if is_file {
            entry.remove(&format!("{field}-data"));
            entry.remove(field);
            if value.is_empty() {
                continue;
            }
            if context.flags.bool("embed-certs") {
                let bytes = std::fs::read(value).map_err(|error| {
                    Error::new(format!(
                        "could not stat {field} file {value}: stat {value}: {}",
                        crate::error::io_text(&error)
                    ))
                })?;
                entry.set(&format!("{field}-data"), base64::encode(&bytes));
            } else {
                let path = std::path::absolute(value)?;
                entry.set(field, path.to_string_lossy().as_ref());
            }
        } else if value.is_empty() {
            entry.remove(field);
        } else {
            entry.set(field, value);
        }
    }
    Ok(())
}

pub(super) fn entry_mut<'a>(config: &'a mut Config, section: Section, name: &str) -> &'a mut Tree {
    let entry = config.entries.entry((section, name.to_string())).or_default();
    if entry.value.is_null() {
        entry.value = Tree::map_new();
    }
    &mut entry.value
}

pub(super) fn set_cluster(context: &Context) -> Result<()> {
    let (name, flags) = (one_name(context)?, &context.flags);
    if flags.bool("insecure-skip-tls-verify") && !flags.str("certificate-authority").is_empty() {
        return message("you cannot specify a certificate authority and insecure mode at the same time");
    }
    if flags.bool("embed-certs") && flags.str("certificate-authority").is_empty() {
        return message("you must specify a --certificate-authority to embed");
    }
    modify(context, |config| {
        let entry = entry_mut(config, Section::Clusters, &name);
        set_fields(context, entry, &["server", "tls-server-name", "certificate-authority", "proxy-url"])?;
        if flags.changed("insecure-skip-tls-verify") {
            entry.remove("insecure-skip-tls-verify");
            if flags.bool("insecure-skip-tls-verify") {
                entry.set("insecure-skip-tls-verify", true);
                entry.remove("certificate-authority");
                entry.remove("certificate-authority-data");
            }
        }
        if !flags.str("certificate-authority").is_empty() {
            entry.remove("insecure-skip-tls-verify");
        }
        Ok(())
    })?;
    context.print(&format!("Cluster {} set.\n", api::field::go_quote(&name)))
}

pub(super) fn set_context(context: &Context) -> Result<()> {
    let mut exists = false;
    let current = context.flags.bool("current");
    let name = match (context.args.as_slice(), current) {
        ([name], false) => name.clone(),
        ([], true) => load(context)?.current_context,
        ([_, ..], true) => return message("you cannot specify both --current and a context name"),
        _ => return message("you must specify a non-empty context name or --current"),
    };
    if name.is_empty() {
        return message("no current context is set");
    }
    modify(context, |config| {
        exists = config.get(Section::Contexts, &name).is_some();
        let entry = entry_mut(config, Section::Contexts, &name);
        if entry.is_null() || !exists {
            entry.set("cluster", "");
            entry.set("user", "");
        }
        for field in ["cluster", "user", "namespace"] {
            if context.flags.changed(field) {
                let value = context.flags.str(field);
                if value.is_empty() && field == "namespace" {
                    entry.remove(field);
                } else {
                    entry.set(field, value);
                }
            }
        }
        Ok(())
    })?;
    let done = if exists { "modified" } else { "created" };
    context.print(&format!("Context {} {done}.\n", api::field::go_quote(&name)))
}

pub(super) fn set_credentials(context: &Context) -> Result<()> {
    let (name, flags) = (one_name(context)?, &context.flags);
    let methods =
        [!flags.str("token").is_empty(), !flags.str("username").is_empty() || !flags.str("password").is_empty()];
    if methods.iter().filter(|is_on| **is_on).count() > 1 {
        return message(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        );
    }
    if flags.bool("embed-certs") && flags.str("client-certificate").is_empty() && flags.str("client-key").is_empty() {
        return message("you must specify a --client-certificate or --client-key to embed");
    }
    modify(context, |config| {
        let entry = entry_mut(config, Section::Users, &name);
        set_fields(context, entry, &["client-certificate", "client-key", "token", "username", "password"])?;
        if !flags.str("token").is_empty() {
            entry.remove("username");
            entry.remove("password");
            entry.remove("tokenFile");
        }
        if !flags.str("username").is_empty() {
            entry.remove("token");
        }
        set_provider(context, entry);
        set_exec(context, entry);
        Ok(())
    })?;
    context.print(&format!("User {} set.\n", api::field::go_quote(&name)))
}

fn set_provider(context: &Context, entry: &mut Tree) {
    let flags = &context.flags;
    if flags.changed("auth-provider") {
        match flags.str("auth-provider") {
            "" => drop(entry.remove("auth-provider")),
            name => entry.child("auth-provider").set("name", name),
        }
    }
    for argument in flags.list("auth-provider-arg") {
        let config = entry.child("auth-provider.config");
        match argument.split_once('=') {
            Some((key, value)) => config.set(key, value),
            None => drop(config.remove(argument.trim_end_matches('-'))),
        }
    }
}

fn set_exec(context: &Context, entry: &mut Tree) {
    let flags = &context.flags;
    let fields =
        [("exec-command", "command"), ("exec-api-version", "apiVersion"), ("exec-interactive-mode", "interactiveMode")];
    for (flag, field) in fields {
        if flags.changed(flag) {
            entry.child("exec").set(field, flags.str(flag));
        }
    }
    if flags.changed("exec-provide-cluster-info") {
        entry.child("exec").set("provideClusterInfo", flags.bool("exec-provide-cluster-info"));
    }
    if flags.changed("exec-arg") {
        let args: Vec<Tree> = flags.list("exec-arg").iter().map(Tree::from).collect();
        entry.child("exec").set("args", args);
    }
    for pair in flags.list("exec-env") {
        let list = entry.child("exec").list_entry("env");
        let (name, value) =
            pair.split_once('=').map_or((pair.trim_end_matches('-'), None), |(name, value)| (name, Some(value)));
        list.retain(|one| one.str("name") != name);
        if let Some(value) = value {
            list.push(tree! { "name" => name, "value" => value });
        }
    }
}
