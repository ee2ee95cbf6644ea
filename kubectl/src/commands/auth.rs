//! `auth`: can-i, whoami, reconcile. And `certificate`.

use api::{Tree, tree};
use http::Method;

use super::common::{DRY_RUN, DryRun, create, update};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, switch_on, text};
use crate::objects::{FILES, SELECTOR, Select, get_object, guess};
use crate::print::{PRINT, Printer, TabWriter};
use crate::transport::Request;

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

const CAN_I_FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Check in all namespaces."),
    switch("list", '\0', "Print all that is allowed."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    switch("quiet", 'q', "Print nothing; the exit code is the answer."),
    text("subresource", '\0', "", "Subresource such as pod/log or deployment/scale."),
];

static CAN_I: Command = Command {
    name: "can-i",
    usage: "VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
    short: "Check whether an action is allowed",
    flags: &[CAN_I_FLAGS],
    run: Some(|context| Box::pin(can_i(context))),
    ..Command::EMPTY
};

static WHOAMI: Command = Command {
    name: "whoami",
    short: "Experimental: Check self subject attributes",
    flags: &[PRINT],
    run: Some(|context| Box::pin(whoami(context))),
    ..Command::EMPTY
};

const RECONCILE_FLAGS: &[Flag] = &[
    text("field-manager", '\0', "kubectl-auth", "The name of the manager of the fields that are set."),
    switch("remove-extra-permissions", '\0', "Remove permissions that the file does not have."),
    switch("remove-extra-subjects", '\0', "Remove subjects that the file does not have."),
    switch_on("validate", '\0', "").hidden(),
];

static RECONCILE: Command = Command {
    name: "reconcile",
    usage: "-f FILENAME",
    short: "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects",
    flags: &[RECONCILE_FLAGS, DRY_RUN, FILES, PRINT],
    run: Some(|context| Box::pin(reconcile(context))),
    ..Command::EMPTY
};

pub(crate) static AUTH: Command = Command {
    name: "auth",
    short: "Inspect authorization",
    children: &[&CAN_I, &RECONCILE, &WHOAMI],
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

async fn can_i(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.bool("list") {
        if !context.args.is_empty() {
            return message("list option must be specified with no arguments");
        }
        return list_rules(context).await;
    }
    let (verb, target) = match context.args.as_slice() {
        [verb, target] => (verb, target),
        [verb, target, name] => return can_i_object(context, verb, target, Some(name)).await,
        _ => {
            return message(
                "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
            );
        }
    };
    if target.starts_with('/') {
        if !flags.str("subresource").is_empty() {
            return message("--subresource can not be used with NonResourceURL");
        }
        let spec = tree! { "nonResourceAttributes" => tree! { "path" => target, "verb" => verb } };
        return review(context, spec).await;
    }
    can_i_object(context, verb, target, None).await
}

async fn can_i_object(context: &Context, verb: &str, target: &str, name: Option<&str>) -> Result<()> {
    let flags = &context.flags;
    let (kind, name) = match target.split_once('/') {
        Some((kind, name)) => (kind, name),
        None => (target, name.unwrap_or_default()),
    };
    let namespace = if flags.bool("all-namespaces") { String::new() } else { context.namespace()?.0 };
    let mut attributes = tree! { "verb" => verb };
    match context.mapper().await?.resolve(kind).cloned() {
        _ if kind == "*" => attributes.set("resource", "*"),
        Ok(resource) => {
            if !resource.is_namespaced && !flags.bool("quiet") {
                context.note(&format!("Warning: resource '{}' is not namespace scoped\n", resource.plural_in_group()));
            }
            attributes.set("resource", &resource.plural);
            attributes.set("group", &resource.group);
        }
        Err(_) => {
            if !flags.bool("quiet") {
                context.note(&format!("Warning: the server doesn't have a resource type '{kind}'\n"));
            }
            let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
            attributes.set("resource", resource);
            attributes.set("group", group);
        }
    }
    for (field, value) in [("namespace", namespace.as_str()), ("subresource", flags.str("subresource")), ("name", name)]
    {
        if !value.is_empty() {
            attributes.set(field, value);
        }
    }
    if attributes.str("group").is_empty() {
        attributes.remove("group");
    }
    review(context, tree! { "resourceAttributes" => attributes }).await
}

async fn review(context: &Context, spec: Tree) -> Result<()> {
    let body = tree! { "kind" => "SelfSubjectAccessReview", "apiVersion" => "authorization.k8s.io/v1", "spec" => spec };
    let request = Request::new(Method::POST, format!("{AUTHORIZATION}/selfsubjectaccessreviews")).json(&body);
    let response = context.client().await?.tree(&request).await?;
    let is_allowed = response.bool("status.allowed");
    if !context.flags.bool("quiet") {
        let mut text = if is_allowed { "yes" } else { "no" }.to_string();
        if !is_allowed {
            for (field, label) in [("reason", ""), ("evaluationError", "")] {
                let reason = response.at("status").str(field);
                if !reason.is_empty() {
                    text.push_str(&format!(" - {label}{reason}"));
                }
            }
        }
        context.print(&format!("{text}\n"))?;
    }
    if is_allowed { Ok(()) } else { Err(Error::Exit(1)) }
}

async fn list_rules(context: &Context) -> Result<()> {
    let namespace = context.namespace()?.0;
    let body = tree! {
        "kind" => "SelfSubjectRulesReview", "apiVersion" => "authorization.k8s.io/v1", "spec" => tree! { "namespace" => namespace },
    };
    let request = Request::new(Method::POST, format!("{AUTHORIZATION}/selfsubjectrulesreviews")).json(&body);
    let response = context.client().await?.tree(&request).await?;
    if response.bool("status.incomplete") {
        context.note(&format!("warning: the list may be incomplete: {}", response.str("status.evaluationError")));
    }
    let mut tabs = TabWriter::default();
    if !context.flags.bool("no-headers") {
        tabs.text("Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    }
    let words = |list: &[Tree]| format!("[{}]", list.iter().filter_map(Tree::as_str).collect::<Vec<_>>().join(" "));
    let mut rows: Vec<(String, String, String, String)> = Vec::new();
    for rule in response.list("status.resourceRules") {
        for group in rule.list("apiGroups").iter().filter_map(Tree::as_str) {
            for resource in rule.list("resources").iter().filter_map(Tree::as_str) {
                let name = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
                rows.push((name, "[]".into(), words(rule.list("resourceNames")), words(rule.list("verbs"))));
            }
        }
    }
    for rule in response.list("status.nonResourceRules") {
        for url in rule.list("nonResourceURLs").iter().filter_map(Tree::as_str) {
            rows.push((String::new(), format!("[{url}]"), "[]".into(), words(rule.list("verbs"))));
        }
    }
    rows.sort();
    rows.dedup();
    rows.iter()
        .rev()
        .for_each(|(resource, url, names, verbs)| tabs.text(&format!("{resource}\t{url}\t{names}\t{verbs}\n")));
    context.print(&tabs.flush())
}

async fn whoami(context: &Context) -> Result<()> {
    let printer = Printer::new(context, false)?;
    let body = tree! { "kind" => "SelfSubjectReview", "apiVersion" => "authentication.k8s.io/v1" };
    let request = Request::new(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews").json(&body);
    let review = context.client().await?.tree(&request).await?;
    if !printer.is_human() {
        return printer.print(context, &review);
    }
    let info = review.at("status.userInfo");
    let mut tabs = TabWriter::default();
    let words = |list: &[Tree]| format!("[{}]", list.iter().filter_map(Tree::as_str).collect::<Vec<_>>().join(" "));
    tabs.text("ATTRIBUTE\tVALUE\n");
    for (field, label) in [("username", "Username"), ("uid", "UID")] {
        if !info.str(field).is_empty() {
            tabs.text(&format!("{label}\t{}\n", info.str(field)));
        }
    }
    if !info.list("groups").is_empty() {
        tabs.text(&format!("Groups\t{}\n", words(info.list("groups"))));
    }
    for (key, values) in info.map("extra").iter() {
        tabs.text(&format!("Extra: {key}\t{}\n", words(values.as_list().unwrap_or_default())));
    }
    context.print(&tabs.flush())
}

/// What the object of a file adds to the list of the live one, and what of it stays.
fn joined(wanted: &[Tree], live: &[Tree], removes_extra: bool) -> Vec<Tree> {
    let mut all: Vec<Tree> =
        if removes_extra { live.iter().filter(|one| wanted.contains(one)).cloned().collect() } else { live.to_vec() };
    let missing: Vec<Tree> = wanted.iter().filter(|one| !all.contains(one)).cloned().collect();
    all.extend(missing);
    all
}

async fn reconcile(context: &Context) -> Result<()> {
    let (dry_run, printer, flags) = (DryRun::of(context)?, Printer::new(context, false)?, &context.flags);
    let select = Select { is_latest: false, ..Select::of(context) };
    if select.files.is_empty() {
        return message("must specify one of -f and -k");
    }
    for info in select.find(context).await?.infos()? {
        let (field, removes) = match info.resource.kind.as_str() {
            "Role" | "ClusterRole" => ("rules", flags.bool("remove-extra-permissions")),
            "RoleBinding" | "ClusterRoleBinding" => ("subjects", flags.bool("remove-extra-subjects")),
            // As upstream: what is not about authorization is skipped.
            _ => continue,
        };
        let live = match get_object(context, &info.resource, &info.namespace, &info.name, "").await {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let object = match live {
            None if dry_run == DryRun::Client => info.object.clone(),
            None => create(context, &info.resource, &info.namespace, &info.object, dry_run).await?,
            Some(mut live) => {
                if field == "subjects" && live.at("roleRef") != info.object.at("roleRef") {
                    return message(format!(
                        "{}: the roleRef of a binding cannot be changed; delete it first",
                        info.label()
                    ));
                }
                let list = joined(info.object.list(field), live.list(field), removes);
                let is_same = list == live.list(field);
                live.set(field, list);
                if is_same || dry_run == DryRun::Client { live } else { update(context, &info, &live, dry_run).await? }
            }
        };
        printer.print_result(context, &object, &format!("reconciled{}", dry_run.suffix()))?;
    }
    Ok(())
}

const CERTIFICATE_FLAGS: &[Flag] = &[switch("force", '\0', "Also change requests that have a verdict already.")];

static APPROVE: Command = Command {
    name: "approve",
    usage: "(-f FILENAME | NAME)",
    short: "Approve a certificate signing request",
    flags: &[CERTIFICATE_FLAGS, FILES, SELECTOR, PRINT],
    run: Some(|context| {
        Box::pin(decide(context, "Approved", "KubectlApprove", "This CSR was approved by kubectl certificate approve."))
    }),
    ..Command::EMPTY
};

static DENY: Command = Command {
    name: "deny",
    usage: "(-f FILENAME | NAME)",
    short: "Deny a certificate signing request",
    flags: &[CERTIFICATE_FLAGS, FILES, SELECTOR, PRINT],
    run: Some(|context| {
        Box::pin(decide(context, "Denied", "KubectlDeny", "This CSR was denied by kubectl certificate deny."))
    }),
    ..Command::EMPTY
};

pub(crate) static CERTIFICATE: Command = Command {
    name: "certificate",
    usage: "SUBCOMMAND",
    short: "Modify certificate resources",
    children: &[&APPROVE, &DENY],
    only_helps: true,
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

async fn decide(context: &Context, verdict: &str, reason: &str, text: &str) -> Result<()> {
    let printer = Printer::new(context, false)?;
    let mut select = Select::of(context);
    if select.files.is_empty() && context.args.is_empty() {
        return message("one or more CSRs must be specified as <name> or -f <filename>");
    }
    if !context.args.is_empty() {
        select.args = [vec!["certificatesigningrequests".to_string()], context.args.clone()].concat();
    }
    let done = verdict.to_lowercase();
    for info in select.find(context).await?.infos()? {
        let mut object = info.object.clone();
        let has = |kind: &str| object.list("status.conditions").iter().any(|one| one.str("type") == kind);
        let other = if verdict == "Approved" { "Denied" } else { "Approved" };
        if has(verdict) && !context.flags.bool("force") {
            printer.print_result(context, &object, &done)?;
            continue;
        }
        if has(other) && !context.flags.bool("force") {
            return message(format!(
                "certificate signing request {} is already {}",
                api::field::go_quote(&info.name),
                other.to_lowercase()
            ));
        }
        let condition = tree! {
            "type" => verdict, "status" => "True", "reason" => reason, "message" => text,
            "lastUpdateTime" => crate::clock::now_text(),
        };
        let conditions = object.child("status").list_entry("conditions");
        conditions.retain(|one| one.str("type") != verdict);
        conditions.push(condition);
        let resource = guess("certificates.k8s.io/v1", "CertificateSigningRequest");
        let path = format!("{}/approval", resource.object_path("", &info.name));
        let stored = context.client().await?.tree(&Request::new(Method::PUT, path).json(&object)).await?;
        printer.print_result(context, &stored, &done)?;
    }
    Ok(())
}
