//! `set`: images, environment, resources, selectors, service accounts, subjects.

use api::{Tree, json, tree};

use super::common::{DRY_RUN, DryRun, patch, patch_kind};
use super::create::{label_selector, quantities};
use super::diff3::two_way;
use super::env_list::list_env;
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select, get_object};
use crate::print::{PRINT, Printer};

const COMMON: &[Flag] = &[
    switch("all", '\0', "All objects of the types, in the namespace."),
    text("field-manager", '\0', "kubectl-set", "The name of the manager of the fields that are set."),
    switch("local", '\0', "Change the objects of files, without the server."),
];
const ENV_FLAGS: &[Flag] = &[
    text("containers", 'c', "*", "The containers, with * as a wildcard."),
    typed("env", 'e', Kind::Array, "", "KEY=VALUE; can be repeated."),
    text("from", '\0', "", "A config map or secret with variables, as TYPE/NAME."),
    typed("keys", '\0', Kind::Slice, "", "Keys to take from --from."),
    switch("list", '\0', "Print the variables."),
    switch_on("overwrite", '\0', "Replace existing variables."),
    text("prefix", '\0', "", "Prefix of the names of variables from --from."),
    switch("resolve", '\0', "With --list, print the values of references."),
];
const RESOURCE_FLAGS: &[Flag] = &[
    text("containers", 'c', "*", "The containers, with * as a wildcard."),
    text("limits", '\0', "", "Limits, such as cpu=100m,memory=256Mi."),
    text("requests", '\0', "", "Requests, such as cpu=100m,memory=256Mi."),
];
const SELECTOR_FLAGS: &[Flag] = &[
    switch_on("recursive", 'R', "Read the directories of -f recursively."),
    text("resource-version", '\0', "", "Only change the object if it has this version."),
];
const SUBJECT_FLAGS: &[Flag] = &[
    typed("group", '\0', Kind::Array, "", "A group; can be repeated."),
    typed("serviceaccount", '\0', Kind::Array, "", "A service account, as namespace:name; can be repeated."),
    typed("user", '\0', Kind::Array, "", "A user; can be repeated."),
];

static IMAGE: Command = Command {
    name: "image",
    usage: "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    short: "Update the image of a pod template",
    flags: &[COMMON, DRY_RUN, FILES, SELECTOR, PRINT, RECORD],
    run: Some(|context| Box::pin(image(context))),
    ..Command::EMPTY
};
static ENV: Command = Command {
    name: "env",
    usage: "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    short: "Update environment variables on a pod template",
    flags: &[ENV_FLAGS, COMMON, DRY_RUN, FILES, SELECTOR, PRINT],
    run: Some(|context| Box::pin(env(context))),
    ..Command::EMPTY
};
static RESOURCES: Command = Command {
    name: "resources",
    usage: "(-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS]",
    short: "Update resource requests/limits on objects with pod templates",
    flags: &[RESOURCE_FLAGS, COMMON, DRY_RUN, FILES, SELECTOR, PRINT, RECORD],
    run: Some(|context| Box::pin(resources(context))),
    ..Command::EMPTY
};
static SET_SELECTOR: Command = Command {
    name: "selector",
    usage: "(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version]",
    short: "Set the selector on a resource",
    flags: &[SELECTOR_FLAGS, COMMON, DRY_RUN, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(selector(context))),
    ..Command::EMPTY
};
static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    usage: "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    short: "Update the service account of a resource",
    flags: &[COMMON, DRY_RUN, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(service_account(context))),
    ..Command::EMPTY
};
static SUBJECT: Command = Command {
    name: "subject",
    usage: "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Update the user, group, or service account in a role binding or cluster role binding",
    flags: &[SUBJECT_FLAGS, COMMON, DRY_RUN, FILES, SELECTOR, PRINT],
    run: Some(|context| Box::pin(subject(context))),
    ..Command::EMPTY
};

pub(crate) static SET: Command = Command {
    name: "set",
    usage: "SUBCOMMAND",
    short: "Set specific features on objects",
    children: &[&ENV, &IMAGE, &RESOURCES, &SET_SELECTOR, &SERVICE_ACCOUNT, &SUBJECT],
    group: "Basic Commands (Beginner)",
    ..Command::EMPTY
};

/// The pod's specification in an object that has one.
pub(super) fn pod_spec_path(object: &Tree) -> Option<&'static str> {
    match object.str("kind") {
        "Pod" => Some("spec"),
        "CronJob" => Some("spec.jobTemplate.spec.template.spec"),
        _ if object.at("spec.template.spec").as_map().is_some() => Some("spec.template.spec"),
        _ => None,
    }
}

/// Splits arguments into resources and the rest, of which the first has this sign.
fn split(args: &[String], is_change: impl Fn(&String) -> bool) -> (Vec<String>, Vec<String>) {
    let first = args.iter().position(is_change).unwrap_or(args.len());
    (args[..first].to_vec(), args[first..].to_vec())
}

/// Changes each object; an object that stays the same is not sent.
async fn change(
    context: &Context,
    resources: Vec<String>,
    done: &str,
    mut edit: impl AsyncFnMut(&Info, &mut Tree) -> Result<()>,
) -> Result<()> {
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { args: resources, allows_types: context.flags.bool("all"), ..Select::of(context) };
    if select.args.is_empty() && select.files.is_empty() {
        return message("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    let found = select.find(context).await?;
    let mut errors = found.errors;
    for info in &found.infos {
        let mut object = info.object.clone();
        if let Err(error) = edit(info, &mut object).await {
            errors.push(error);
            continue;
        }
        let may_be_same = context.flags.bool("local") || done.starts_with("serviceaccount");
        if object == info.object && !may_be_same {
            continue;
        }
        record(context, &mut object);
        if context.flags.bool("local") || dry_run == DryRun::Client {
            printer.print_result(context, &object, &format!("{done}{}", dry_run.suffix()))?;
            continue;
        }
        let body = json::encode(&two_way(&info.object, &object, &info.resource), None);
        match patch(context, info, patch_kind(&info.resource), body, dry_run).await {
            Ok(stored) => printer.print_result(context, &stored, &format!("{done}{}", dry_run.suffix()))?,
            // A selector is not part of a pod template.
            Err(error) if done.starts_with("selector") => errors.push(error),
            Err(error) => {
                let what = done.strip_suffix('d').unwrap_or(done);
                errors.push(Error::new(format!("failed to patch {what} to pod template: {error}")));
            }
        }
    }
    Error::all(errors)
}

fn spec_of<'a>(info: &Info, object: &'a mut Tree) -> Result<&'a mut Tree> {
    let unsupported = || Error::new(format!("{} {} does not have a pod template", info.resource.kind, info.name));
    let path = pod_spec_path(object).ok_or_else(unsupported)?;
    object.at_mut(path).ok_or_else(unsupported)
}

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Whether a name matches a pattern with stars.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, "")) => name.starts_with(start),
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|tail| (0..=tail.len()).any(|at| tail.is_char_boundary(at) && matches(rest, &tail[at..]))),
    }
}

async fn image(context: &Context) -> Result<()> {
    let (resources, pairs) = split(&context.args, |arg| arg.contains('='));
    if let Some(bad) = pairs.iter().find(|pair| !pair.contains('=')) {
        return message(format!("all resources must be specified before image changes: {bad}"));
    }
    if pairs.is_empty() {
        let text = if resources.is_empty() {
            "[one or more resources must be specified as <resource> <name> or <resource>/<name>, at least one image update is required]"
        } else {
            "at least one image update is required"
        };
        return message(text);
    }
    change(context, resources, "image updated", async |info, object| {
        let spec = spec_of(info, object)?;
        for pair in &pairs {
            let (container, image) = pair.split_once('=').unwrap_or((pair, ""));
            let mut has_match = false;
            for list in LISTS {
                let Some(Tree::List(items)) = spec.get_mut(list) else { continue };
                for item in items.iter_mut().filter(|item| matches(container, item.str("name"))) {
                    item.set("image", image);
                    has_match = true;
                }
            }
            if !has_match {
                return message(format!("unable to find container named {}", api::field::go_quote(container)));
            }
        }
        Ok(())
    })
    .await
}

async fn env(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (resources, mut changes) = split(&context.args, |arg| arg.contains('=') || arg.ends_with('-'));
    changes.extend(flags.list("env"));
    if changes.is_empty() && flags.str("from").is_empty() && !flags.bool("list") {
        if resources.is_empty() {
            return message("one or more resources must be specified as <resource> <name> or <resource>/<name>");
        }
        return message("at least one environment variable must be provided");
    }
    let mut variables: Vec<(String, Option<Tree>)> = Vec::new();
    for text in &changes {
        match (text.split_once('='), text.strip_suffix('-')) {
            (Some((name, value)), _) => {
                let problems = api::validation::env_var_name(name);
                if !problems.is_empty() {
                    return message(format!(
                        "{} is not a valid key name: {}",
                        api::field::go_quote(name),
                        problems.join(";")
                    ));
                }
                variables.push((name.to_string(), Some(tree! { "name" => name, "value" => value })));
            }
            (None, Some(name)) => variables.push((name.to_string(), None)),
            _ => return message(format!("environment variables must be of the form key=value: {text}")),
        }
    }
    let is_removed = |name: &str| variables.iter().any(|(one, value)| one == name && value.is_none());
    if variables.iter().any(|(name, value)| value.is_some() && is_removed(name)) {
        return message("can not both modify and remove the same environment variable in the same command");
    }
    variables.extend(from_object(context).await?);
    if flags.bool("list") {
        return list_env(context, resources, &variables).await;
    }
    let pattern = flags.str("containers").to_string();
    change(context, resources, "env updated", async |info, object| {
        let spec = spec_of(info, object)?;
        let mut is_matched = false;
        for list in LISTS {
            let Some(Tree::List(items)) = spec.get_mut(list) else { continue };
            for item in items.iter_mut().filter(|item| matches(&pattern, item.str("name"))) {
                is_matched = true;
                if !flags.bool("overwrite") {
                    check_overwrites(info, item, &variables)?;
                }
                set_variables(item, &variables);
            }
        }
        if !is_matched {
            context.note(&no_match(info, &pattern));
        }
        Ok(())
    })
    .await
}

/// The warning about an object without a container of this pattern.
pub(super) fn no_match(info: &Info, pattern: &str) -> String {
    let pattern = api::field::go_quote(pattern);
    format!("Warning: {}/{} does not have any containers matching {pattern}", info.resource.kind, info.name)
}

/// `--overwrite=false`: a variable keeps its value.
fn check_overwrites(info: &Info, container: &Tree, variables: &[(String, Option<Tree>)]) -> Result<()> {
    for (name, value) in variables.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let found = container.list("env").iter().find(|one| one.str("name") == name);
        if let Some(found) = found.filter(|found| found.str("value") != value.str("value")) {
            return message(format!(
                "{}/{} '{name}' already has a value ({}), and --overwrite is false",
                info.resource.plural,
                info.name,
                found.str("value")
            ));
        }
    }
    Ok(())
}

pub(super) fn set_variables(container: &mut Tree, variables: &[(String, Option<Tree>)]) {
    for (name, value) in variables {
        let env = container.list_entry("env");
        let at = env.iter().position(|one| one.str("name") == name);
        match (value, at) {
            (Some(value), Some(at)) => env[at] = value.clone(),
            (Some(value), None) => env.push(value.clone()),
            (None, Some(at)) => drop(env.remove(at)),
            (None, None) => {}
        }
        if env.is_empty() {
            container.remove("env");
        }
    }
}

/// References to the keys of `--from`.
async fn from_object(context: &Context) -> Result<Vec<(String, Option<Tree>)>> {
    let flags = &context.flags;
    let from = flags.str("from");
    if from.is_empty() {
        return Ok(Vec::new());
    }
    let Some((kind, name)) = from.split_once('/') else { return message("--from must be in the form TYPE/NAME") };
    let resource = context.resolve(kind).await?;
    let reference = match resource.kind.as_str() {
        "Secret" => "secretKeyRef",
        "ConfigMap" => "configMapKeyRef",
        _ => return message(format!("unsupported resource specified in --from: {from}")),
    };
    let object = get_object(context, &resource, &context.namespace()?.0, name, "").await?;
    let keys = flags.list("keys");
    let mut variables = Vec::new();
    for key in object.map("data").keys().filter(|key| keys.is_empty() || keys.iter().any(|one| one == key)) {
        let variable: String =
            key.to_uppercase().chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
        if variable != key {
            context.note(&format!("Warning: key {key} transferred to {variable}"));
        }
        let variable = format!("{}{variable}", flags.str("prefix"));
        let source = tree! { reference => tree! { "name" => name, "key" => key } };
        variables.push((variable.clone(), Some(tree! { "name" => variable, "valueFrom" => source })));
    }
    Ok(variables)
}

async fn resources(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (limits, requests) = (flags.str("limits"), flags.str("requests"));
    if limits.is_empty() && requests.is_empty() {
        return message("you must specify an update to requests or limits (in the form of --requests/--limits)");
    }
    let parse = |text: &str| if text.is_empty() { Ok(tree! {}) } else { quantities(text) };
    let (limits, requests) = (parse(limits)?, parse(requests)?);
    let pattern = flags.str("containers").to_string();
    change(context, context.args.clone(), "resource requirements updated", async |info, object| {
        let spec = spec_of(info, object)?;
        let mut has_match = false;
        for list in LISTS {
            let Some(Tree::List(items)) = spec.get_mut(list) else { continue };
            for item in items.iter_mut().filter(|item| matches(&pattern, item.str("name"))) {
                has_match = true;
                for (field, values) in [("limits", &limits), ("requests", &requests)] {
                    for (key, value) in values.as_map().into_iter().flat_map(|map| map.iter()) {
                        let map = item.child("resources").child(field);
                        if value.as_str() == Some("0") { drop(map.remove(key)) } else { map.set(key, value.clone()) }
                    }
                }
            }
        }
        if has_match { Ok(()) } else { message(format!("unable to find container named {pattern}")) }
    })
    .await
}

async fn selector(context: &Context) -> Result<()> {
    let (resources, expressions) = split(&context.args, |arg| arg.contains(['=', '!']));
    let [expression] = expressions.as_slice() else { return message("one selector must be specified") };
    let selector = label_selector(expression)?;
    change(context, resources, "selector updated", async |info, object| {
        if info.resource.kind != "Service" {
            return message("setting a selector is only supported for Services");
        }
        if !selector.list("matchExpressions").is_empty() {
            return message("the selector of a service has only the form key=value");
        }
        object.child("spec").set("selector", selector.at("matchLabels").clone());
        let version = context.flags.str("resource-version");
        if !version.is_empty() {
            object.child("metadata").set("resourceVersion", version);
        }
        Ok(())
    })
    .await
}

async fn service_account(context: &Context) -> Result<()> {
    let Some((name, resources)) = context.args.split_last().filter(|(_, rest)| !rest.is_empty()) else {
        return message("serviceaccount is required");
    };
    change(context, resources.to_vec(), "serviceaccount updated", async |info, object| {
        spec_of(info, object)?.set("serviceAccountName", name);
        Ok(())
    })
    .await
}

async fn subject(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let subject =
        |kind: &str, name: &String| tree! { "kind" => kind, "apiGroup" => "rbac.authorization.k8s.io", "name" => name };
    let mut wanted: Vec<Tree> = flags.list("user").iter().map(|name| subject("User", name)).collect();
    wanted.extend(flags.list("group").iter().map(|name| subject("Group", name)));
    for account in flags.list("serviceaccount") {
        let Some((namespace, name)) = account.split_once(':') else {
            return message("serviceaccount must be <namespace>:<name>");
        };
        wanted.push(tree! { "kind" => "ServiceAccount", "namespace" => namespace, "name" => name });
    }
    if wanted.is_empty() {
        return message("you must specify at least one value of user, group or serviceaccount");
    }
    change(context, context.args.clone(), "subjects updated", async |info, object| {
        if !matches!(info.resource.kind.as_str(), "RoleBinding" | "ClusterRoleBinding") {
            return message("setting subjects is only supported for RoleBinding/ClusterRoleBinding");
        }
        let list = object.list_entry("subjects");
        for one in &wanted {
            if !list.contains(one) {
                list.push(one.clone());
            }
        }
        Ok(())
    })
    .await
}
