//! `diff` and `kustomize`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api::{Tree, json, yaml};
use http::Method;

use super::apply::{compute, find_pruned, prune_types};
use super::common::{LAST_APPLIED, join_all, patch_kind, with_last_applied};
use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select, get_object};
use crate::transport::Request;

/// More requests at the same time than this do not help.
const MAX_CONCURRENCY: usize = 64;

const FLAGS: &[Flag] = &[
    typed("concurrency", '\0', Kind::Int, "1", "Objects to process at the same time."),
    text("field-manager", '\0', "kubectl-client-side-apply", "The name of the manager of the fields that are set."),
    switch("force-conflicts", '\0', "Take fields over from other managers, with --server-side."),
    switch("prune", '\0', "Show what --prune of apply would delete too."),
    typed(
        "prune-allowlist",
        '\0',
        Kind::Array,
        "",
        "Types to prune instead of the default ones, as <group/version/kind>.",
    ),
    switch("server-side", '\0', "Let the server merge the configuration."),
    switch("show-managed-fields", '\0', "Compare managedFields too."),
    switch("show-secrets", '\0', "Show the values of secrets."),
];

pub(crate) static DIFF: Command = Command {
    name: "diff",
    usage: "-f FILENAME",
    short: "Diff the live version against a would-be applied version",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|context| Box::pin(diff(context))),
    group: "Advanced Commands",
    flag_error_code: 2,
    ..Command::EMPTY
};

async fn diff(context: &Context) -> Result<()> {
    // A code of 1 says that there are differences, so errors have another one.
    match compare(context).await {
        Err(error @ (Error::Exit(_) | Error::Command { .. })) => Err(error),
        Err(error) => Err(Error::Command { message: error.report().0, code: 2 }),
        Ok(()) => Ok(()),
    }
}

async fn compare(context: &Context) -> Result<()> {
    if !context.args.is_empty() {
        return context.usage_error(&format!("Unexpected args: [{}]", context.args.join(" ")));
    }
    let select = Select { is_latest: false, ..Select::of(context) };
    if select.files.is_empty() {
        return message("must specify one of -f and -k");
    }
    let types = if context.flags.bool("prune") { prune_types(context).await? } else { Vec::new() };
    let directories = Directories::new()?;
    let (mut visited, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    let infos = select.find(context).await?.infos()?;
    let concurrency = context.flags.int("concurrency");
    if concurrency < 1 {
        return message("--concurrency must be at least 1");
    }
    let limit = usize::try_from(concurrency).unwrap_or(1).min(MAX_CONCURRENCY);
    let mut both = Vec::new();
    for chunk in infos.chunks(limit) {
        both.extend(join_all(chunk.iter().map(|info| versions(context, info)).collect()).await);
    }
    for (info, versions) in infos.into_iter().zip(both) {
        let (live, merged) = versions?;
        if info.resource.is_namespaced {
            namespaces.insert(info.namespace.clone());
        }
        visited.extend(live.as_ref().map(|live| live.str("metadata.uid").to_string()));
        let (live, merged) = masked(context, &info, live, merged);
        if let Some(live) = live {
            write(&directories.live, &info, &live)?;
        }
        write(&directories.merged, &info, &merged)?;
    }
    for resource in &types {
        write_pruned(context, &directories, resource, &visited, &namespaces).await?;
    }
    context.flush()?;
    let status = program(&directories).status().await;
    let status =
        status.map_err(|error| Error::new(format!("failed to run \"diff\": {}", crate::error::io_text(&error))))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(Error::Exit(1)),
        code => Err(Error::Command { message: format!("exit status {}", code.unwrap_or(2)), code: 2 }),
    }
}

/// The live object, and what apply would make of it.
type Versions = (Option<Tree>, Tree);

async fn versions(context: &Context, info: &Info) -> Result<Versions> {
    let live = match get_object(context, &info.resource, &info.namespace, &info.name, "").await {
        Ok(live) => Some(live),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    let merged = merged(context, info, live.as_ref()).await?;
    Ok((live, merged))
}

/// Writes what `apply --prune` would delete: it is live, and not in the merged configuration.
async fn write_pruned(
    context: &Context,
    directories: &Directories,
    resource: &Resource,
    visited: &BTreeSet<String>,
    namespaces: &BTreeSet<String>,
) -> Result<()> {
    let outside = BTreeSet::from([String::new()]);
    let namespaces = if resource.is_namespaced { namespaces } else { &outside };
    for namespace in namespaces {
        for info in find_pruned(context, visited, resource, namespace).await? {
            let (live, _) = masked(context, &info, Some(info.object.clone()), Tree::Null);
            live.iter().try_for_each(|live| write(&directories.live, &info, live))?;
        }
    }
    Ok(())
}

/// The two directories, which are removed at the end.
struct Directories {
    live: PathBuf,
    merged: PathBuf,
}

impl Directories {
    fn new() -> Result<Directories> {
        use std::os::unix::fs::DirBuilderExt;
        let random = client::Random::fresh_seed() % 10_000_000_000;
        let directory = |name: &str| std::env::temp_dir().join(format!("{name}-{random}"));
        let directories = Directories { live: directory("LIVE"), merged: directory("MERGED") };
        for path in [&directories.live, &directories.merged] {
            std::fs::DirBuilder::new().mode(0o700).create(path)?;
        }
        Ok(directories)
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.live);
        let _ = std::fs::remove_dir_all(&self.merged);
    }
}

/// The user's program, or `diff -u -N`.
fn program(directories: &Directories) -> tokio::process::Command {
    let words = std::env::var("KUBECTL_EXTERNAL_DIFF").unwrap_or_default();
    let mut words = words.split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = tokio::process::Command::new(program);
            command.args(words);
            command
        }
        None => {
            let mut command = tokio::process::Command::new("diff");
            command.args(["-u", "-N"]);
            command
        }
    };
    command.arg(&directories.live).arg(&directories.merged);
    command
}

fn write(directory: &Path, info: &Info, object: &Tree) -> Result<()> {
    let resource = &info.resource;
    let group = if resource.group.is_empty() { String::new() } else { format!("{}.", resource.group) };
    let name = format!("{group}{}.{}.{}.{}", resource.version, resource.kind, info.namespace, info.name);
    Ok(std::fs::write(directory.join(name.replace('/', "_")), yaml::encode(object))?)
}

/// What the object would be after apply.
async fn merged(context: &Context, info: &Info, live: Option<&Tree>) -> Result<Tree> {
    let (client, flags) = (context.client().await?, &context.flags);
    if flags.bool("server-side") {
        let manager = if flags.changed("field-manager") { flags.str("field-manager") } else { "kubectl" };
        let request = Request::new(Method::PATCH, info.path())
            .query("dryRun", "All")
            .query("fieldManager", manager)
            .query("force", flags.bool("force-conflicts").to_string())
            .body("application/apply-patch+yaml", json::encode(&info.object, None));
        return client.tree(&request).await;
    }
    let Some(live) = live else {
        let request = Request::new(Method::POST, info.resource.path(&info.namespace))
            .query("dryRun", "All")
            .query("fieldManager", flags.str("field-manager"))
            .json(&info.object);
        return client.tree(&request).await;
    };
    let body = compute(info, &with_last_applied(&info.object), live)?;
    if body == b"{}" {
        return Ok(live.clone());
    }
    let request = Request::new(Method::PATCH, info.path())
        .query("dryRun", "All")
        .query("fieldManager", flags.str("field-manager"))
        .body(patch_kind(&info.resource), body);
    client.tree(&request).await
}

/// Without managed fields, and without the values of secrets: only whether they differ is shown.
fn masked(context: &Context, info: &Info, live: Option<Tree>, merged: Tree) -> (Option<Tree>, Tree) {
    let shown = |mut object: Tree| {
        if let Some(metadata) = object.get_mut("metadata").filter(|_| !context.flags.bool("show-managed-fields")) {
            metadata.remove("managedFields");
        }
        if let Some(annotations) = object.at_mut("metadata.annotations") {
            annotations.remove(LAST_APPLIED);
            if annotations.as_map().is_some_and(|map| map.is_empty())
                && let Some(metadata) = object.get_mut("metadata")
            {
                metadata.remove("annotations");
            }
        }
        object
    };
    let (mut live, mut merged) = (live.map(shown), shown(merged));
    let is_secret = info.resource.kind == "Secret" && info.resource.group.is_empty();
    if is_secret && !context.flags.bool("show-secrets") {
        let before = live.as_ref().map(|live| live.at("data").clone()).unwrap_or_default();
        let after = merged.at("data").clone();
        let mask = |object: &mut Tree, other: &Tree, changed: &str| {
            let Some(Tree::Map(data)) = object.get_mut("data") else { return };
            for (key, value) in data.iter_mut() {
                let text = match other.get(key) {
                    None => "***",
                    Some(same) if same == value => "***",
                    Some(_) => changed,
                };
                *value = Tree::from(text);
            }
        };
        if let Some(live) = &mut live {
            mask(live, &after, "*** (before)");
        }
        mask(&mut merged, &before, "*** (after)");
    }
    (live, merged)
}

const KUSTOMIZE_FLAGS: &[Flag] = &[
    switch("enable-managedby-label", '\0', "Add the label app.kubernetes.io/managed-by."),
    text(
        "load-restrictor",
        '\0',
        "LoadRestrictionsRootOnly",
        "LoadRestrictionsNone allows files from outside of the directory.",
    ),
    text("output", 'o', "", "File to write to, or a directory for one file of each object."),
];
/// Flags of upstream for programs that build with, which are refused.
pub(super) const PROGRAM_FLAGS: &[Flag] = &[
    switch("as-current-user", '\0', "").hidden(),
    switch("enable-alpha-plugins", '\0', "").hidden(),
    switch("enable-helm", '\0', "").hidden(),
    typed("env", 'e', Kind::Array, "", "").hidden(),
    typed("helm-api-versions", '\0', Kind::Array, "", "").hidden(),
    text("helm-command", '\0', "helm", "").hidden(),
    switch("helm-debug", '\0', "").hidden(),
    text("helm-kube-version", '\0', "", "").hidden(),
    typed("mount", '\0', Kind::Array, "", "").hidden(),
    switch("network", '\0', "").hidden(),
    text("network-name", '\0', "bridge", "").hidden(),
];

pub(crate) static KUSTOMIZE: Command = Command {
    name: "kustomize",
    usage: "DIR",
    short: "Build a kustomization target from a directory or URL",
    flags: &[KUSTOMIZE_FLAGS, PROGRAM_FLAGS],
    run: Some(|context| Box::pin(async move { kustomize(context) })),
    group: "Advanced Commands",
    ..Command::EMPTY
};

fn kustomize(context: &Context) -> Result<()> {
    let flags = &context.flags;
    for flag in PROGRAM_FLAGS {
        if flags.changed(flag.name) && (flag.kind != Kind::Bool || flags.bool(flag.name)) {
            return message(format!("--{} is not supported: no programs are run to build a kustomization", flag.name));
        }
    }
    let directory = match context.args.as_slice() {
        [] => ".",
        [directory] => directory,
        _ => return message("specify one path to kustomization.yaml"),
    };
    let loads_from_anywhere = match flags.str("load-restrictor") {
        "LoadRestrictionsNone" => true,
        "LoadRestrictionsRootOnly" => false,
        other => {
            return message(format!(
                "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
            ));
        }
    };
    let options =
        kustomize::Options { loads_from_anywhere, adds_managed_by_label: flags.bool("enable-managedby-label") };
    let built = kustomize::build(&kustomize::Disk, Path::new(directory), options)
        .map_err(|error| Error::new(error.to_string()))?;
    built.warnings.iter().for_each(|warning| context.note(&format!("# Warning: {warning}")));
    let output = flags.str("output");
    if output.is_empty() {
        return context.write(&kustomize::to_yaml(&built.resources));
    }
    if !Path::new(output).is_dir() {
        return Ok(std::fs::write(output, kustomize::to_yaml(&built.resources))?);
    }
    for resource in &built.resources {
        let name = format!(
            "{}_{}_{}.yaml",
            resource.str("apiVersion").replace('/', "_"),
            resource.str("kind"),
            resource.str("metadata.name")
        );
        std::fs::write(Path::new(output).join(name.to_lowercase()), yaml::encode(resource))?;
    }
    Ok(())
}
