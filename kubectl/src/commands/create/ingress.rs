//! Ingresses.

use api::{Tree, list, tree};

use super::{COMMON, finish, name};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, text, typed};
use crate::print::PRINT;

const FLAGS: &[Flag] = &[
    typed("annotation", '\0', Kind::Array, "", "An annotation, as key=value; can be repeated."),
    text("class", '\0', "", "The ingress class."),
    text("default-backend", '\0', "", "The default service, as svcname:port."),
    typed(
        "rule",
        '\0',
        Kind::Array,
        "",
        "A rule, as host/path=service:port[,tls=secretname]. A path with * at its end is a prefix.",
    ),
];

pub(crate) static INGRESS: Command = Command {
    name: "ingress",
    aliases: &["ing"],
    usage: "NAME --rule=host/path=service:port[,tls[=secret]]",
    short: "Create an ingress with the specified name",
    flags: &[FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, ingress(context)?).await })),
    ..Command::EMPTY
};

/// A parsed `--rule`.
struct Rule {
    host: String,
    path: String,
    service: String,
    /// The secret, maybe empty, if the rule uses TLS.
    tls: Option<String>,
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let (rule, tls) = text.split_once(',').map_or((text, None), |(rule, tls)| (rule, Some(tls)));
        let tls = match tls {
            None => None,
            Some("tls") => Some(String::new()),
            Some(tls) => Some(tls.strip_prefix("tls=")?.to_string()),
        };
        let (host, rest) = rule.split_once('/')?;
        let (path, service) = rest.rsplit_once('=')?;
        let (name, port) = service.split_once(':')?;
        if name.is_empty() || port.is_empty() || port.contains(':') {
            return None;
        }
        Some(Rule { host: host.to_string(), path: format!("/{path}"), service: service.to_string(), tls })
    }

    fn path(&self) -> Tree {
        let (path, kind) = match self.path.strip_suffix('*') {
            Some(prefix) => (prefix, "Prefix"),
            None => (self.path.as_str(), "Exact"),
        };
        tree! { "path" => path, "pathType" => kind, "backend" => backend(&self.service) }
    }
}

fn backend(service: &str) -> Tree {
    let (name, port) = service.split_once(':').unwrap_or((service, ""));
    let port = match port.parse::<i64>() {
        Ok(number) => tree! { "number" => number },
        Err(_) => tree! { "name" => port },
    };
    tree! { "service" => tree! { "name" => name, "port" => port } }
}

fn ingress(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let (texts, default) = (flags.list("rule"), flags.str("default-backend"));
    if texts.is_empty() && default.is_empty() {
        return message(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all \
             traffic) or a list of rules (which catch specific paths)",
        );
    }
    let mut rules = Vec::new();
    for text in &texts {
        let Some(rule) = Rule::parse(text) else {
            return message(format!(
                "rule {text} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"
            ));
        };
        rules.push(rule);
    }
    let mut metadata = tree! { "name" => name };
    for annotation in flags.list("annotation") {
        let Some((key, value)) = annotation.split_once('=') else {
            return message(format!("annotation {annotation} is invalid and should be in format key=[value]"));
        };
        metadata.child("annotations").set(key, value);
    }
    if !default.is_empty() && default.split(':').count() != 2 {
        return message("default-backend should be in format servicename:serviceport");
    }
    let mut spec = tree! {};
    if !flags.str("class").is_empty() {
        spec.set("ingressClassName", flags.str("class"));
    }
    if !default.is_empty() {
        spec.set("defaultBackend", backend(default));
    }
    let tls = tls_entries(&rules);
    if !tls.is_empty() {
        spec.set("tls", tls);
    }
    let hosts = host_rules(&rules);
    if !hosts.is_empty() {
        spec.set("rules", hosts);
    }
    let status = tree! { "loadBalancer" => tree! {} };
    Ok(
        tree! { "apiVersion" => "networking.k8s.io/v1", "kind" => "Ingress", "metadata" => metadata, "spec" => spec, "status" => status },
    )
}

/// Hosts with one secret share an entry.
fn tls_entries(rules: &[Rule]) -> Vec<Tree> {
    let mut entries: Vec<Tree> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for rule in rules {
        let Some(secret) = &rule.tls else { continue };
        if seen.contains(&rule.host.as_str()) {
            continue;
        }
        seen.push(&rule.host);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.str("secretName") == secret) {
            entry.list_entry("hosts").push(Tree::from(&rule.host));
            continue;
        }
        let mut entry = tree! {};
        if !rule.host.is_empty() {
            entry.set("hosts", list![&rule.host]);
        }
        if !secret.is_empty() {
            entry.set("secretName", secret);
        }
        if entry.as_map().is_some_and(|map| !map.is_empty()) {
            entries.push(entry);
        }
    }
    entries
}

/// Paths of one host share a rule.
fn host_rules(rules: &[Rule]) -> Vec<Tree> {
    let mut all: Vec<Tree> = Vec::new();
    for rule in rules {
        if let Some(known) = all.iter_mut().find(|known| known.str("host") == rule.host) {
            known.child("http").list_entry("paths").push(rule.path());
            continue;
        }
        let mut entry = tree! { "http" => tree! { "paths" => list![rule.path()] } };
        if !rule.host.is_empty() {
            entry.set("host", &rule.host);
        }
        all.push(entry);
    }
    all
}
