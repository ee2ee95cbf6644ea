//! `authorizer` in expressions: it is called in the middle of an evaluation, which cannot wait.

use std::collections::HashMap;

use cel::{AuthorizerRequest, AuthorizerTarget, Decision, ResourceRequest};
use kinds::User;
use stdx::sync::Mutex;

use crate::authorization::{self, Verdict};
use crate::registry::admission::Attributes;

/// Runs the authorizer checks of expressions, as far as they need not wait; the others are noted as missing.
pub(crate) struct Checks<'a> {
    attributes: &'a Attributes<'a>,
    verdicts: Mutex<HashMap<Check, Verdict>>,
    missing: Mutex<Option<Check>>,
}

impl<'a> Checks<'a> {
    pub(crate) fn new(attributes: &'a Attributes<'a>) -> Checks<'a> {
        Checks { attributes, verdicts: Mutex::default(), missing: Mutex::default() }
    }

    /// Evaluates expressions. Each round waits for one missing verdict and evaluates again.
    pub(crate) async fn evaluate<T>(&self, run: impl Fn() -> T) -> T {
        loop {
            let missing = {
                let result = run();
                match self.missing.lock().take() {
                    Some(missing) => missing,
                    None => return result,
                }
            };
            let verdict = missing.wait(self.attributes).await;
            self.verdicts.lock().insert(missing, verdict);
        }
    }
}

/// An authorization check of an expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Check {
    service_account: Option<(String, String)>,
    verb: String,
    target: CheckTarget,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CheckTarget {
    Path(String),
    Resource(ResourceRequest),
}

impl Check {
    fn new(request: &AuthorizerRequest<'_>) -> Check {
        let account = request.service_account.map(|(namespace, name)| (namespace.to_string(), name.to_string()));
        let target = match &request.target {
            AuthorizerTarget::Path(path) => CheckTarget::Path((*path).to_string()),
            AuthorizerTarget::Resource(resource) => CheckTarget::Resource((*resource).clone()),
        };
        Check { service_account: account, verb: request.verb.to_string(), target }
    }

    /// The service account, or the user of the request.
    fn user(&self, attributes: &Attributes<'_>) -> User {
        match &self.service_account {
            None => attributes.user.clone(),
            Some((namespace, name)) => service_account_user(namespace, name),
        }
    }

    fn attributes<'c>(&'c self, user: &'c User) -> authorization::Attributes<'c> {
        match &self.target {
            CheckTarget::Path(path) => authorization::Attributes::for_path(user, &self.verb, path),
            CheckTarget::Resource(of) => authorization::Attributes {
                namespace: &of.namespace,
                subresource: &of.subresource,
                name: of.name.as_str().into(),
                ..authorization::Attributes::resource(user, &self.verb, &of.group, &of.resource)
            }
            .with_selectors(&of.field_selector, &of.label_selector),
        }
    }

    async fn wait(&self, attributes: &Attributes<'_>) -> Verdict {
        let user = self.user(attributes);
        attributes.registry.authorizer.wait(&self.attributes(&user)).await
    }
}

fn service_account_user(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_string(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_string(),
        ],
        ..User::default()
    }
}

impl cel::Authorizer for Checks<'_> {
    fn authorize(&self, request: &AuthorizerRequest<'_>) -> Decision {
        let check = Check::new(request);
        let known = self.verdicts.lock().get(&check).cloned();
        let user = check.user(self.attributes);
        let decide = || self.attributes.registry.authorizer.decide(&check.attributes(&user));
        match known.or_else(decide) {
            Some(verdict) => Decision {
                allowed: verdict.is_allowed(),
                reason: verdict.reason.to_string(),
                error: verdict.error.as_ref().map(ToString::to_string),
            },
            None => {
                self.missing.lock().get_or_insert(check);
                // The evaluation is repeated; until then the check is denied.
                Decision { allowed: false, reason: String::new(), error: Some("not decided yet".to_string()) }
            }
        }
    }
}
