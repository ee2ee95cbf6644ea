//! Roles and their bindings.

use api::{Tree, list, tree};

use super::{COMMON, finish, name, require};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, text, typed};
use crate::print::PRINT;

const RBAC: &str = "rbac.authorization.k8s.io";

const ROLE_FLAGS: &[Flag] = &[
    typed(
        "resource",
        '\0',
        Kind::Slice,
        "",
        "Resource that the rule applies to, such as pods or deployments.apps/scale.",
    ),
    typed("resource-name", '\0', Kind::Array, "", "Name of an object that the rule applies to; can be repeated."),
    typed("verb", '\0', Kind::Slice, "", "Verb that the rule allows."),
];

const CLUSTERROLE_FLAGS: &[Flag] = &[
    text("aggregation-rule", '\0', "", "Label selector of the cluster roles that this one combines."),
    typed("non-resource-url", '\0', Kind::Slice, "", "A path of the server that the rule allows."),
];

pub(crate) static ROLE: Command = Command {
    name: "role",
    usage: "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none]",
    short: "Create a role with single rule",
    flags: &[ROLE_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, role(context).await?).await })),
    ..Command::EMPTY
};

pub(crate) static CLUSTERROLE: Command = Command {
    name: "clusterrole",
    usage: "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
    short: "Create a cluster role",
    flags: &[ROLE_FLAGS, CLUSTERROLE_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, clusterrole(context).await?).await })),
    ..Command::EMPTY
};

const BINDING_FLAGS: &[Flag] = &[
    text("clusterrole", '\0', "", "The cluster role of the binding."),
    typed("group", '\0', Kind::Array, "", "A group of the binding; can be repeated."),
    text("role", '\0', "", "The role of the binding."),
    typed(
        "serviceaccount",
        '\0',
        Kind::Array,
        "",
        "A service account of the binding, as namespace:name; can be repeated.",
    ),
    typed("user", '\0', Kind::Array, "", "A user of the binding; can be repeated."),
];

pub(crate) static ROLEBINDING: Command = Command {
    name: "rolebinding",
    usage: "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Create a role binding for a particular role or cluster role",
    flags: &[BINDING_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, rolebinding(context)?).await })),
    ..Command::EMPTY
};

pub(crate) static CLUSTERROLEBINDING: Command = Command {
    name: "clusterrolebinding",
    usage: "NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Create a cluster role binding for a particular cluster role",
    flags: &[BINDING_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, clusterrolebinding(context)?).await })),
    ..Command::EMPTY
};

fn texts(values: &[String]) -> Tree {
    Tree::List(values.iter().map(Tree::from).collect())
}

/// Without duplicates; a star means everything.
fn verbs(context: &Context) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for verb in context.flags.list("verb") {
        if verb == "*" {
            return vec![verb];
        }
        if !all.contains(&verb) {
            all.push(verb);
        }
    }
    all
}

const STANDARD: &[&str] = &[
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "approve",
    "sign",
    "escalate",
];

/// One rule for each API group, in the order of the groups.
async fn rules(context: &Context, verbs: &[String]) -> Result<Tree> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for text in context.flags.list("resource") {
        let (base, sub) = text.split_once('/').map_or((text.as_str(), None), |(base, sub)| (base, Some(sub)));
        let (resource, group) = base.split_once('.').unwrap_or((base, ""));
        if resource.is_empty() {
            return message("resource must be specified if apiGroup/subresource specified");
        }
        let (group, resource) = if resource == "*" && group.is_empty() && sub.is_none() {
            ("*".to_string(), "*".to_string())
        } else if resource == "*" {
            (group.to_string(), "*".to_string())
        } else {
            let found = context.resolve(base).await.map_err(|error| Error::Plain(error.to_string()))?;
            (found.group, found.plural)
        };
        let name = sub.map_or(resource.clone(), |sub| format!("{resource}/{sub}"));
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    groups.sort();
    let mut names: Vec<String> = Vec::new();
    for name in context.flags.list("resource-name") {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let rule = |(group, resources): (String, Vec<String>)| {
        let mut rule = tree! { "apiGroups" => list![group], "resources" => texts(&resources), "verbs" => texts(verbs) };
        if !names.is_empty() {
            rule.set("resourceNames", texts(&names));
        }
        rule
    };
    Ok(Tree::List(groups.into_iter().map(rule).collect()))
}

fn warn_about_verbs(context: &Context, verbs: &[String]) {
    for verb in verbs.iter().filter(|verb| !STANDARD.contains(&verb.as_str())) {
        context.note(&format!("Warning: '{verb}' is not a standard resource verb"));
    }
}

async fn role(context: &Context) -> Result<Tree> {
    let (name, verbs) = (name(context)?, verbs(context));
    if verbs.is_empty() {
        return message("at least one verb must be specified");
    }
    warn_about_verbs(context, &verbs);
    if context.flags.list("resource").is_empty() {
        return message("at least one resource must be specified");
    }
    Ok(tree! {
        "apiVersion" => format!("{RBAC}/v1"), "kind" => "Role", "metadata" => tree! { "name" => name },
        "rules" => rules(context, &verbs).await?,
    })
}

async fn clusterrole(context: &Context) -> Result<Tree> {
    let (name, verbs, flags) = (name(context)?, verbs(context), &context.flags);
    let mut object = tree! {
        "apiVersion" => format!("{RBAC}/v1"), "kind" => "ClusterRole", "metadata" => tree! { "name" => name },
        "rules" => Tree::Null,
    };
    let (urls, aggregation) = (flags.list("non-resource-url"), flags.str("aggregation-rule"));
    if !aggregation.is_empty() {
        if !urls.is_empty() || !verbs.is_empty() || !flags.list("resource").is_empty() {
            return message("aggregation rule must be specified without nonResourceURLs, resources or resourceNames");
        }
        let mut labels = tree! {};
        for pair in aggregation.split(',') {
            let Some((key, value)) = pair.split_once('=') else {
                return message(format!("aggregation rule {aggregation} is not in the form of key=value"));
            };
            labels.set(key, value);
        }
        object.set("aggregationRule", tree! { "clusterRoleSelectors" => list![tree! { "matchLabels" => labels }] });
        return Ok(object);
    }
    if verbs.is_empty() {
        return message("at least one verb must be specified");
    }
    let resources = flags.list("resource");
    if resources.is_empty() && urls.is_empty() {
        return message("one of resource or nonResourceURL must be specified");
    }
    if !resources.is_empty() {
        warn_about_verbs(context, &verbs);
    }
    let mut all = rules(context, &verbs).await?;
    if let Some(list) = all.as_list_mut().filter(|_| !urls.is_empty()) {
        list.push(tree! { "verbs" => texts(&verbs), "nonResourceURLs" => texts(&urls) });
    }
    object.set("rules", all);
    Ok(object)
}

fn subjects(context: &Context) -> Result<Tree> {
    let flags = &context.flags;
    let subject = |kind: &str, name: &String| tree! { "kind" => kind, "apiGroup" => RBAC, "name" => name };
    let mut all: Vec<Tree> = flags.list("user").iter().map(|name| subject("User", name)).collect();
    all.extend(flags.list("group").iter().map(|name| subject("Group", name)));
    for account in flags.list("serviceaccount") {
        let Some((namespace, name)) = account.split_once(':').filter(|(ns, name)| !ns.is_empty() && !name.is_empty())
        else {
            return message("serviceaccount must be <namespace>:<name>");
        };
        all.push(tree! { "kind" => "ServiceAccount", "namespace" => namespace, "name" => name });
    }
    Ok(Tree::List(all))
}

fn binding(name: &str, kind: &str, role_kind: &str, role: &str, subjects: Tree) -> Tree {
    let mut object = tree! {
        "apiVersion" => format!("{RBAC}/v1"), "kind" => kind, "metadata" => tree! { "name" => name },
        "roleRef" => tree! { "apiGroup" => RBAC, "kind" => role_kind, "name" => role },
    };
    if subjects.as_list().is_some_and(|list| !list.is_empty()) {
        object.set("subjects", subjects);
    }
    object
}

fn rolebinding(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let (clusterrole, role) = (flags.str("clusterrole"), flags.str("role"));
    if clusterrole.is_empty() == role.is_empty() {
        return message("exactly one of clusterrole or role must be specified");
    }
    let (kind, role) = if role.is_empty() { ("ClusterRole", clusterrole) } else { ("Role", role) };
    Ok(binding(&name, "RoleBinding", kind, role, subjects(context)?))
}

fn clusterrolebinding(context: &Context) -> Result<Tree> {
    require(context, &["clusterrole"])?;
    let name = name(context)?;
    let role = context.flags.str("clusterrole");
    Ok(binding(&name, "ClusterRoleBinding", "ClusterRole", role, subjects(context)?))
}
