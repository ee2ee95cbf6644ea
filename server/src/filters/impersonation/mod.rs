//! Impersonation. Each part of the impersonated identity must be allowed: first in one of the constrained modes, which
//! also name the allowed requests, then in the legacy mode.

mod impersonated_user;

use std::borrow::Cow;
use std::sync::Arc;

use api::field::go_quote;
use api::status::Status;
use api::{Map, Tree};
use kinds::User;

use crate::Server;
use crate::authentication::{AUTHENTICATED, UNAUTHENTICATED, anonymous};
use crate::authorization::{Attributes, Reason, forbidden};
use crate::call::{Call, StageResult};
use crate::request::head::RequestHead;
use impersonated_user::ImpersonatedUser;

const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const CORE: (&str, &str) = ("", "v1");

/// An authorization check for one part of the identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Check {
    verb: String,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    subresource: String,
    name: String,
}

impl Check {
    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        Attributes {
            version: &self.version,
            namespace: &self.namespace,
            subresource: &self.subresource,
            name: Cow::Borrowed(&self.name),
            ..Attributes::resource(user, &self.verb, &self.group, &self.resource)
        }
    }
}

/// Puts the impersonated user into the call, and removes the headers.
pub(super) fn impersonate<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    let requested = match ImpersonatedUser::take(&mut call.head.headers) {
        Ok(None) => return StageResult::Done(Ok(())),
        Ok(Some(requested)) => requested,
        Err(status) => return StageResult::Done(Err(status)),
    };
    StageResult::Later(Box::pin(async move {
        let requestor = call.caller.user.clone().ok_or_else(Status::unauthorized)?;
        let (user, mode) = allowed(server, &call.head, &requestor, &requested).await?;
        call.caller.user = Some(Arc::new(user));
        call.caller.impersonation_mode = mode;
        call.caller.impersonator = Some(requestor);
        Ok(())
    }))
}

/// The identity and the name of the first mode that allows it; otherwise the error of the first mode.
async fn allowed(
    server: &Server,
    head: &RequestHead,
    requestor: &User,
    requested: &ImpersonatedUser,
) -> Result<(User, &'static str), Status> {
    let mut first = None;
    for mode in MODES.iter().filter(|mode| (mode.applies)(requested, requestor)) {
        match pass(server, head, requestor, mode, requested).await {
            Ok(()) => return Ok((actual(mode, requested), mode.name)),
            Err(status) => first = first.or(Some(status)),
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

async fn pass(
    server: &Server,
    head: &RequestHead,
    requestor: &User,
    mode: &Mode,
    requested: &ImpersonatedUser,
) -> Result<(), Status> {
    let requestor = &mode.requestor(requestor);
    if mode.is_constrained() {
        let verb = format!("impersonate-on:{}:{}", mode.name, head.info.verb);
        check(server, &Attributes { verb: &verb, ..Attributes::of(requestor, &head.info, &head.query) }).await?;
    }
    let mut checks = Vec::new();
    let refused = mode.checks(requested, &mut checks);
    for asked in &checks {
        check(server, &asked.attributes(requestor)).await?;
    }
    refused.map_or(Ok(()), |(asked, why)| Err(forbidden(&asked.attributes(requestor), &Reason::Text(why.into()))))
}

async fn check(server: &Server, attributes: &Attributes<'_>) -> Result<(), Status> {
    let verdict = server.registry.authorizer.wait(attributes).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let reason = match (verdict.error, verdict.reason) {
        (Some(error), reason) if reason.is_empty() => Reason::Text(error.into()),
        (Some(error), reason) => Reason::Text(format!("{error}: {reason}").into()),
        (None, reason) => reason,
    };
    Err(forbidden(attributes, &reason))
}

struct Mode {
    /// The text after `impersonate:`; empty for the legacy mode.
    name: &'static str,
    applies: fn(&ImpersonatedUser, &User) -> bool,
}

/// In the order in which they are tried: the most restrictive first.
static MODES: &[Mode] = &[
    Mode {
        name: "associated-node",
        applies: |requested, requestor| requested.has_only_name() && is_on_node(requestor, requested),
    },
    Mode {
        name: "arbitrary-node",
        applies: |requested, _| requested.has_only_name() && node_name(&requested.name).is_some(),
    },
    Mode {
        name: "serviceaccount",
        applies: |requested, _| requested.has_only_name() && account(&requested.name).is_some(),
    },
    Mode {
        name: "user-info",
        applies: |requested, _| node_name(&requested.name).is_none() && account(&requested.name).is_none(),
    },
    Mode { name: "", applies: |_, _| true },
];

impl Mode {
    /// The requestor for the authorizers. With the mode `associated-node` only the keys of the extra attributes are
    /// passed: one decision is valid for all nodes.
    fn requestor<'a>(&self, requestor: &'a User) -> Cow<'a, User> {
        if self.name != "associated-node" {
            return Cow::Borrowed(requestor);
        }
        let mut extra = Map::new();
        extra.insert(NODE_KEYS, Tree::List(requestor.extra.keys().map(Tree::from).collect()));
        Cow::Owned(User { extra, ..requestor.clone() })
    }

    fn is_constrained(&self) -> bool {
        !self.name.is_empty()
    }

    fn check(&self, (group, version): (&str, &str), resource: &str, name: &str) -> Check {
        let verb = if self.is_constrained() { format!("impersonate:{}", self.name) } else { "impersonate".to_string() };
        Check {
            verb,
            group: group.to_string(),
            version: version.to_string(),
            resource: resource.to_string(),
            name: name.to_string(),
            ..Check::default()
        }
    }

    /// Adds a check for each part of the identity; returns what this mode never allows.
    fn checks(&self, requested: &ImpersonatedUser, checks: &mut Vec<Check>) -> Option<(Check, String)> {
        checks.push(self.user_check(&requested.name));
        if !requested.uid.is_empty() {
            checks.push(self.check(AUTHENTICATION, "uids", &requested.uid));
        }
        if let Some(refused) = self.refused_group(&requested.groups) {
            return Some(refused);
        }
        checks.extend(requested.groups.iter().map(|group| self.check(self.names(), "groups", group)));
        if let Some(why) = requested.extra.iter().find_map(|(key, values)| refused_extra(key, values))
            && self.is_constrained()
        {
            return Some((self.check(AUTHENTICATION, "userextras", ""), why));
        }
        for (key, value) in
            requested.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)))
        {
            let check = self.check(AUTHENTICATION, "userextras", value);
            checks.push(Check { subresource: key.clone(), ..check });
        }
        None
    }

    /// Users and groups are of the core group in the old mode.
    fn names(&self) -> (&'static str, &'static str) {
        if self.is_constrained() { AUTHENTICATION } else { CORE }
    }

    fn user_check(&self, user: &str) -> Check {
        if let Some((namespace, name)) = account(user) {
            let check = self.check(self.names(), "serviceaccounts", name);
            return Check { namespace: namespace.to_string(), ..check };
        }
        match node_name(user).filter(|_| self.is_constrained()) {
            // A kubelet acts as its own node, whatever its name.
            Some(_) if self.name == "associated-node" => self.check(self.names(), "nodes", "*"),
            Some(node) => self.check(self.names(), "nodes", node),
            None => self.check(self.names(), "users", user),
        }
    }

    fn refused_group(&self, groups: &[String]) -> Option<(Check, String)> {
        let has = |name: &str| self.is_constrained() && groups.iter().any(|group| group == name);
        let refused = |name: &str, why: &str| Some((self.check(self.names(), "groups", name), why.to_string()));
        if has("") {
            return refused("", "impersonating the empty string group is not allowed");
        }
        if has("system:masters") {
            return refused("system:masters", "impersonating the system:masters group is not allowed");
        }
        None
    }
}

fn refused_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_string());
    }
    let prefixed = key
        .split_once('/')
        .is_some_and(|(domain, path)| api::validation::dns1123_subdomain(domain).is_empty() && !path.is_empty());
    if !prefixed {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: {why}",
            go_quote(key)
        ));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_string())
}

/// The requested identity, with its implicit groups.
fn actual(mode: &Mode, requested: &ImpersonatedUser) -> User {
    let mut groups = requested.groups.clone();
    if node_name(&requested.name).is_some() && mode.is_constrained() {
        groups = vec!["system:nodes".to_string()];
    }
    if let Some((namespace, _)) = account(&requested.name).filter(|_| requested.groups.is_empty()) {
        groups = vec!["system:serviceaccounts".to_string(), format!("system:serviceaccounts:{namespace}")];
    }
    let anonymous = requested.name == anonymous::NAME || groups.iter().any(|group| group == UNAUTHENTICATED);
    let all = if anonymous { UNAUTHENTICATED } else { AUTHENTICATED };
    if !groups.iter().any(|group| group == all) {
        groups.push(all.to_string());
    }
    let mut extra = Map::new();
    for (key, values) in &requested.extra {
        extra.insert(key.as_str(), Tree::List(values.iter().map(Tree::from).collect()));
    }
    User { name: requested.name.clone(), uid: requested.uid.clone(), groups, extra }
}

/// Namespace and name of a service account's user name.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fits =
        api::validation::dns1123_label(namespace).is_empty() && api::validation::dns1123_subdomain(name).is_empty();
    fits.then_some((namespace, name))
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| api::validation::dns1123_subdomain(name).is_empty())
}

/// A service account whose token is bound to a pod on the node.
fn is_on_node(requestor: &User, requested: &ImpersonatedUser) -> bool {
    let bound = match requestor.extra.get(NODE_NAME).and_then(Tree::as_list) {
        Some([one]) => one.as_str(),
        _ => None,
    };
    account(&requestor.name).is_some() && bound.is_some() && bound == node_name(&requested.name)
}

#[cfg(test)]
mod tests;
