//! Role-based access control: the bindings of users to roles, from the caches. The index applies every change of a role
//! or binding incrementally: a decision reads only the few grants of its user.

pub(crate) mod cover;
mod index;
pub(crate) mod policy;

use std::sync::Arc;

use api::Tree;
use kinds::User;

use super::union::aggregate;
use super::{Attributes, Authorizer, Decision, Reason, Rule, UserRules, Verdict};
use crate::storage::cache::{Caches, View};
use index::Index;

pub(crate) use index::{Grant, RoleNotFound};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Storage paths, in the order in which the index numbers them.
const SOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

pub(crate) struct Rbac {
    view: View<Index>,
}

impl Rbac {
    pub(crate) fn new(caches: &Caches) -> Rbac {
        Rbac { view: View::new(SOURCES.iter().filter_map(|path| caches.get(path))) }
    }

    /// The rules of all roles that a user has in a namespace, and what could not be resolved.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<RoleNotFound>) {
        self.view.read(|index| {
            let (mut rules, mut errors) = (Vec::new(), Vec::new());
            index.visit(user, namespace, |_, role| {
                match role {
                    Ok(found) => rules.extend_from_slice(found),
                    Err(error) => errors.push(error),
                }
                true
            });
            (rules, errors)
        })
    }

    /// The rules of a role that a binding in a namespace refers to.
    pub(crate) fn role_rules(&self, reference: &Tree, namespace: &str) -> Result<Vec<Rule>, RoleNotFound> {
        let grant = Grant::new(reference, namespace);
        self.view.read(|index| index.role(&grant).map(<[Rule]>::to_vec))
    }
}

impl Authorizer for Arc<Rbac> {
    fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        let mut granted: Option<Arc<Grant>> = None;
        let mut errors = Vec::new();
        self.view.read(|index| {
            index.visit(attributes.user, attributes.namespace, |grant, role| {
                match role {
                    Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => granted = Some(grant.clone()),
                    Ok(_) => {}
                    Err(error) => errors.push(error),
                }
                granted.is_none()
            });
        });
        Some(match granted {
            Some(grant) => Verdict { decision: Decision::Allow, reason: Reason::Granted(grant), error: None },
            None => refused(errors),
        })
    }

    fn rules(&self, user: &User, namespace: &str) -> UserRules {
        let (rules, errors) = self.rules_of(user, namespace);
        UserRules { rules, incomplete: false, error: aggregate(texts(errors)) }
    }
}

fn texts(errors: Vec<RoleNotFound>) -> Vec<String> {
    errors.iter().map(RoleNotFound::to_string).collect()
}

fn refused(errors: Vec<RoleNotFound>) -> Verdict {
    match aggregate(texts(errors)) {
        Some(errors) => Verdict::no_opinion(format!("RBAC: {errors}")),
        None => Verdict::NO_OPINION,
    }
}
