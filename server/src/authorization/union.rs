//! The configured authorizers, consulted one after the other.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kinds::User;

use super::config::{Mode, Setting};
use super::rbac::Rbac;
use super::{Attributes, Authorizer, Decision, MASTERS, Reason, UserRules, Verdict, abac, always, node, webhook};
use crate::storage::cache::Caches;

pub(crate) struct Union {
    /// Exchanged when the configuration file changes.
    members: ArcSwap<Vec<Member>>,
    /// Created once: its graph outlives a change of the configuration.
    node: OnceLock<Arc<node::Node>>,
}

struct Member {
    /// Stands before its reasons.
    name: String,
    authorizer: Arc<dyn Authorizer>,
}

impl Union {
    pub(crate) fn new(settings: &[Setting], caches: &Caches, rbac: &Arc<Rbac>) -> Union {
        let union = Union { members: ArcSwap::default(), node: OnceLock::new() };
        union.replace(settings, caches, rbac);
        union
    }

    /// Replaces the authorizers; a request that waits for an old authorizer still gets its verdict.
    pub(crate) fn replace(&self, settings: &[Setting], caches: &Caches, rbac: &Arc<Rbac>) {
        let member = |setting: &Setting| Member {
            name: setting.name.clone(),
            authorizer: self.build(&setting.mode, caches, rbac),
        };
        self.members.store(Arc::new(settings.iter().map(member).collect()));
    }

    /// The line of each mode.
    fn build(&self, mode: &Mode, caches: &Caches, rbac: &Arc<Rbac>) -> Arc<dyn Authorizer> {
        match mode {
            Mode::AlwaysAllow => Arc::new(always::AlwaysAllow),
            Mode::AlwaysDeny => Arc::new(always::AlwaysDeny),
            Mode::Abac(policies) => Arc::new(abac::Abac::new(policies.clone())),
            Mode::Node => self.node.get_or_init(|| Arc::new(node::Node::new(caches))).clone(),
            Mode::Rbac => Arc::new(rbac.clone()),
            Mode::Webhook(settings) => Arc::new(webhook::Webhook::new(settings.clone())),
        }
    }

    /// The verdict, or None if one of the authorizers has to wait.
    pub(crate) fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        if is_master(attributes.user) {
            return Some(Verdict::ALLOW);
        }
        let mut silent = NoOpinions::default();
        for member in self.members.load().iter() {
            let verdict = member.authorizer.decide(attributes)?;
            if verdict.decision != Decision::NoOpinion {
                return Some(verdict);
            }
            silent.add(&member.name, verdict);
        }
        Some(silent.verdict())
    }

    /// The verdict; it may wait for an authorizer.
    pub(crate) async fn wait(&self, attributes: &Attributes<'_>) -> Verdict {
        if is_master(attributes.user) {
            return Verdict::ALLOW;
        }
        let mut silent = NoOpinions::default();
        for member in self.members.load_full().iter() {
            let verdict = match member.authorizer.decide(attributes) {
                Some(verdict) => verdict,
                None => member.authorizer.wait(attributes).await,
            };
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            silent.add(&member.name, verdict);
        }
        silent.verdict()
    }

    /// Everything that is known of what a user may do in a namespace.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        let mut errors = Vec::new();
        for member in self.members.load().iter() {
            let known = member.authorizer.rules(user, namespace);
            all.rules.extend(known.rules);
            all.incomplete |= known.incomplete;
            errors.extend(known.error);
        }
        all.error = aggregate(errors);
        all
    }
}

pub(crate) fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// The reasons and errors of authorizers without an opinion.
#[derive(Default)]
struct NoOpinions {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl NoOpinions {
    fn add(&mut self, name: &str, verdict: Verdict) {
        if !verdict.reason.is_empty() {
            self.reasons.push(format!("{name}: {}", verdict.reason));
        }
        self.errors.extend(verdict.error);
    }

    fn verdict(self) -> Verdict {
        let reason = match self.reasons.is_empty() {
            true => Reason::None,
            false => Reason::Text(self.reasons.join("\n").into()),
        };
        Verdict { reason, error: aggregate(self.errors), ..Verdict::NO_OPINION }
    }
}

/// Joins errors as upstream does: without duplicates, in brackets if there are several.
pub(crate) fn aggregate(errors: Vec<String>) -> Option<String> {
    if errors.is_empty() {
        return None;
    }
    Some(crate::common::errors::join_errors(errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedAuthorizer(Verdict);

    impl Authorizer for FixedAuthorizer {
        fn decide(&self, _: &Attributes<'_>) -> Option<Verdict> {
            Some(self.0.clone())
        }

        fn rules(&self, _: &User, _: &str) -> UserRules {
            UserRules { incomplete: true, error: Some("e".to_string()), ..UserRules::default() }
        }
    }

    fn union(verdicts: Vec<Verdict>) -> Union {
        let member = |(at, verdict): (usize, Verdict)| Member {
            name: format!("m{at}"),
            authorizer: Arc::new(FixedAuthorizer(verdict)) as Arc<dyn Authorizer>,
        };
        let members: Vec<Member> = verdicts.into_iter().enumerate().map(member).collect();
        Union { members: ArcSwap::from_pointee(members), node: OnceLock::new() }
    }

    #[test]
    fn the_first_opinion_decides() {
        let deny = || Verdict { decision: Decision::Deny, ..Verdict::no_opinion("d") };
        let silent = || Verdict::no_opinion("s");
        let user = User::default();
        let cases = [
            (vec![], Decision::NoOpinion, ""),
            (vec![silent(), Verdict::ALLOW, deny()], Decision::Allow, ""),
            (vec![silent(), deny(), Verdict::ALLOW], Decision::Deny, "d"),
            (vec![silent(), Verdict::NO_OPINION, silent()], Decision::NoOpinion, "m0: s\nm2: s"),
        ];
        for (verdicts, decision, reason) in cases {
            let got = union(verdicts).decide(&Attributes::parse(&user, "get pods")).expect("no authorizer waits");
            assert_eq!((got.decision, got.reason.to_string().as_str()), (decision, reason));
        }
    }

    #[test]
    fn masters_pass_before_any_authorizer() {
        let union = union(vec![Verdict { decision: Decision::Deny, ..Verdict::NO_OPINION }]);
        let user = User { groups: vec![MASTERS.to_string()], ..User::default() };
        assert!(union.decide(&Attributes::parse(&user, "get pods")).expect("at once").is_allowed());
        assert_eq!(union.rules(&user, "a").error.as_deref(), Some("e"));
    }
}
