//! The two that need no thought.

use api::Str;
use kinds::User;

use super::{Attributes, Authorizer, Rule, UserRules, Verdict};

pub(super) struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn decide(&self, _: &Attributes<'_>) -> Option<Verdict> {
        Some(Verdict::ALLOW)
    }

    fn rules(&self, _: &User, _: &str) -> UserRules {
        let all = || vec![Str::const_new("*")];
        let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
        let paths = Rule { verbs: all(), urls: all(), ..Rule::default() };
        UserRules { rules: vec![resources, paths], ..UserRules::default() }
    }
}

pub(super) struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn decide(&self, _: &Attributes<'_>) -> Option<Verdict> {
        Some(Verdict::no_opinion("Everything is forbidden."))
    }

    fn rules(&self, _: &User, _: &str) -> UserRules {
        UserRules::default()
    }
}
