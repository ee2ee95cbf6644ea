//! Config maps and secrets, from files, literals and environment files.

use std::path::Path;

use api::{Tree, base64, tree};

use super::{COMMON, finish, name, require};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Result, io_text, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::print::PRINT;

const SOURCES: &[Flag] = &[
    switch("append-hash", '\0', "Append a hash of the content to the name."),
    typed("from-env-file", '\0', Kind::Slice, "", "File with lines of KEY=VALUE."),
    typed("from-file", '\0', Kind::Slice, "", "File, KEY=FILE, or a directory of which each file is a key."),
    typed("from-literal", '\0', Kind::Array, "", "KEY=VALUE."),
];

pub(crate) static CONFIGMAP: Command = Command {
    name: "configmap",
    aliases: &["cm"],
    usage: "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    short: "Create a config map from a local file, directory or literal value",
    flags: &[SOURCES, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, configmap(context)?).await })),
    ..Command::EMPTY
};

const GENERIC_FLAGS: &[Flag] = &[text("type", '\0', "", "The type of the secret.")];

static GENERIC: Command = Command {
    name: "generic",
    usage: "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    short: "Create a secret from a local file, directory, or literal value",
    flags: &[GENERIC_FLAGS, SOURCES, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, generic(context)?).await })),
    ..Command::EMPTY
};

const DOCKER_FLAGS: &[Flag] = &[
    switch("append-hash", '\0', "Append a hash of the content to the name."),
    text("docker-email", '\0', "", "Email for the registry."),
    text("docker-password", '\0', "", "Password for the registry."),
    text("docker-server", '\0', "https://index.docker.io/v1/", "Address of the registry."),
    text("docker-username", '\0', "", "User name for the registry."),
    typed("from-file", '\0', Kind::Slice, "", "A file in the format of .dockerconfigjson."),
];

static DOCKER: Command = Command {
    name: "docker-registry",
    usage: "NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none]",
    short: "Create a secret for use with a Docker registry",
    flags: &[DOCKER_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, docker(context)?).await })),
    ..Command::EMPTY
};

const TLS_FLAGS: &[Flag] = &[
    switch("append-hash", '\0', "Append a hash of the content to the name."),
    text("cert", '\0', "", "File with the certificate in PEM."),
    text("key", '\0', "", "File with the key in PEM."),
];

static TLS: Command = Command {
    name: "tls",
    usage: "NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
    short: "Create a TLS secret",
    flags: &[TLS_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, tls(context)?).await })),
    ..Command::EMPTY
};

pub(crate) static SECRET: Command = Command {
    name: "secret",
    usage: "(docker-registry | generic | tls)",
    short: "Create a secret using a specified subcommand",
    children: &[&DOCKER, &GENERIC, &TLS],
    ..Command::EMPTY
};

/// Keys and values in the order of the sources.
fn read_sources(context: &Context, what: &str, owner: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let flags = &context.flags;
    let (files, literals, envs) = (flags.list("from-file"), flags.list("from-literal"), flags.list("from-env-file"));
    if !envs.is_empty() && (!files.is_empty() || !literals.is_empty()) {
        return message("from-env-file cannot be combined with from-file or from-literal");
    }
    let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
    for source in &literals {
        let Some((key, value)) = source.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return message(format!("invalid literal source {source}, expected key=value"));
        };
        entries.push((key.to_string(), unquote(value).as_bytes().to_vec()));
    }
    for source in &files {
        read_file_source(source, &mut entries)?;
    }
    for path in &envs {
        read_env_file(path, &mut entries)?;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (key, _) in &entries {
        let problems = api::validation::config_map_key(key);
        if !problems.is_empty() {
            return message(format!(
                "{} is not a valid key name for a {what}: {}",
                api::field::go_quote(key),
                problems.join(",")
            ));
        }
        if seen.contains(&key.as_str()) {
            let field = if what == "Secret" { String::new() } else { " in Data for ConfigMap".to_string() };
            let owner = if what == "Secret" { String::new() } else { format!(" {}", api::field::go_quote(owner)) };
            return message(format!(
                "cannot add key {}, another key by that name already exists{field}{owner}",
                go_name(key, what)
            ));
        }
        seen.push(key);
    }
    Ok(entries)
}

fn go_name(key: &str, what: &str) -> String {
    if what == "Secret" { key.to_string() } else { api::field::go_quote(key) }
}

/// One pair of quotes around a literal is the shell's.
fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        if value.len() >= 2 && value.starts_with(quote) && value.ends_with(quote) {
            return &value[1..value.len() - 1];
        }
    }
    value
}

fn read_file_source(source: &str, entries: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let (key, path) = match source.split_once('=') {
        None => (None, source),
        Some(("", _)) => return message(format!("key name for file path {} missing", source.trim_start_matches('='))),
        Some((_, "")) => return message(format!("file path for key name {} missing", source.trim_end_matches('='))),
        Some((_, path)) if path.contains('=') => {
            return message("key names or file paths cannot contain '='");
        }
        Some((key, path)) => (Some(key), path),
    };
    let read = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) => message(format!("error reading {0}: open {0}: {1}", path.display(), io_text(&error))),
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return message(format!("error reading {path}: {}", io_text(&error))),
    };
    if !metadata.is_dir() {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries.push((key.map_or(name, str::to_string), read(Path::new(path))?));
        return Ok(());
    }
    if key.is_some() {
        return message("cannot give a key name for a directory path");
    }
    let mut files: Vec<_> = std::fs::read_dir(path)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    for file in
        files.into_iter().filter(|file| std::fs::symlink_metadata(file).is_ok_and(|metadata| metadata.is_file()))
    {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries.push((name, read(&file)?));
    }
    Ok(())
}

fn read_env_file(path: &str, entries: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(_) if Path::new(path).is_dir() => return message("env config file cannot be a directory"),
        Err(error) => return message(format!("error reading {path}: {}", io_text(&error))),
    };
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        let problems = api::validation::env_var_name(key);
        if !problems.is_empty() {
            return message(format!("{path}: {} at line {number}: {}", api::field::go_quote(key), problems.join(",")));
        }
        // A name without a value is taken from the environment.
        let value = value.map_or_else(|| std::env::var(key).unwrap_or_default(), str::to_string);
        entries.push((key.to_string(), value.into_bytes()));
    }
    Ok(())
}

fn configmap(context: &Context) -> Result<Tree> {
    let name = name(context)?;
    let mut object = tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => &name } };
    for (key, value) in read_sources(context, "ConfigMap", &name)? {
        match String::from_utf8(value) {
            Ok(text) => object.child("data").set(&key, text),
            Err(error) => object.child("binaryData").set(&key, base64::encode(error.as_bytes())),
        }
    }
    Ok(with_hash(context, object))
}

fn secret(name: &str, kind: &str, entries: Vec<(String, Vec<u8>)>) -> Tree {
    let mut object = tree! { "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => name } };
    if !kind.is_empty() {
        object.set("type", kind);
    }
    for (key, value) in entries {
        object.child("data").set(&key, base64::encode(&value));
    }
    object
}

fn generic(context: &Context) -> Result<Tree> {
    let name = name(context)?;
    let entries = read_sources(context, "Secret", &name)?;
    Ok(with_hash(context, secret(&name, context.flags.str("type"), entries)))
}

fn docker(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    const KIND: &str = "kubernetes.io/dockerconfigjson";
    const KEY: &str = ".dockerconfigjson";
    let files = flags.list("from-file");
    if !files.is_empty() {
        let mut entries = Vec::new();
        for source in &files {
            let source = if source.contains('=') { source.clone() } else { format!("{KEY}={source}") };
            read_file_source(&source, &mut entries)?;
        }
        return Ok(with_hash(context, secret(&name, KIND, entries)));
    }
    require(context, &["docker-username", "docker-password"])
        .or_else(|_| message("either --from-file or the combination of --docker-username, --docker-password and --docker-server is required"))?;
    let (user, password) = (flags.str("docker-username"), flags.str("docker-password"));
    let mut login = tree! { "username" => user, "password" => password };
    if !flags.str("docker-email").is_empty() {
        login.set("email", flags.str("docker-email"));
    }
    login.set("auth", base64::encode(format!("{user}:{password}").as_bytes()));
    // The order is that of upstream's type.
    let text = |tree: &Tree, key: &str| String::from_utf8_lossy(&api::json::encode(tree.at(key), None)).into_owned();
    let email = if login.has("email") { format!(",\"email\":{}", text(&login, "email")) } else { String::new() };
    let server =
        String::from_utf8_lossy(&api::json::encode(&Tree::from(flags.str("docker-server")), None)).into_owned();
    let config = format!(
        "{{\"auths\":{{{server}:{{\"username\":{},\"password\":{}{email},\"auth\":{}}}}}}}",
        text(&login, "username"),
        text(&login, "password"),
        text(&login, "auth"),
    );
    Ok(with_hash(context, secret(&name, KIND, vec![(KEY.to_string(), config.into_bytes())])))
}

fn tls(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    if flags.str("cert").is_empty() || flags.str("key").is_empty() {
        return message("key and cert must be specified");
    }
    let read = |path: &str| match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) => message(format!("Cannot read file {path}, open {path}: {}", io_text(&error))),
    };
    let (certificate, key) = (read(flags.str("cert"))?, read(flags.str("key"))?);
    if let Err(error) = http_client::Identity::pem(&certificate, &key) {
        return message(format!("tls: failed to find any PEM data in certificate input: {error}"));
    }
    let entries = vec![("tls.crt".to_string(), certificate), ("tls.key".to_string(), key)];
    Ok(with_hash(context, secret(&name, "kubernetes.io/tls", entries)))
}

/// The name with a hash of the content, so that a change makes a new object.
fn with_hash(context: &Context, mut object: Tree) -> Tree {
    if !context.flags.bool("append-hash") {
        return object;
    }
    let mut content = tree! { "kind" => object.str("kind"), "name" => object.str("metadata.name") };
    let data = if object.has("data") { object.at("data").clone() } else { Tree::from("") };
    content.set("data", data);
    if object.str("kind") == "Secret" {
        content.set("type", object.str("type"));
    } else if object.has("binaryData") {
        content.set("binaryData", object.at("binaryData").clone());
    }
    let hash = super::super::hash::suffix(&api::json::encode(&content, None));
    let name = format!("{}-{hash}", object.str("metadata.name"));
    object.child("metadata").set("name", name);
    object
}
