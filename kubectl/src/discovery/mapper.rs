//! From what users write (`po`, `deployments.v1.apps`, `Pod`) and objects contain to a resource.

use super::{Group, Resource};

/// Why a name has no resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("the server doesn't have a resource type {0:?}")]
    NoResource(String),
    #[error("no matches for kind \"{kind}\" in version \"{version}\"")]
    NoKind { kind: String, version: String },
}

/// The index of a server's resources.
#[derive(Debug, Default)]
pub(crate) struct Mapper {
    groups: Vec<Group>,
}

impl Mapper {
    /// An index of these groups.
    pub(crate) fn new(groups: Vec<Group>) -> Mapper {
        Mapper { groups }
    }

    /// The groups in the server's order.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All resources of all versions, the preferred version of each group first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Resource> {
        self.groups.iter().flat_map(|group| {
            let is_preferred = |version: &str| version == group.preferred;
            let first = group.versions.iter().filter(move |(version, _)| is_preferred(version));
            let rest = group.versions.iter().filter(move |(version, _)| !is_preferred(version));
            first.chain(rest).flat_map(|(_, resources)| resources.iter().flatten())
        })
    }

    /// Each resource in its group's preferred version, or in the first version that has it.
    pub(crate) fn preferred(&self) -> Vec<&Resource> {
        let mut seen = std::collections::HashSet::new();
        self.all().filter(|one| seen.insert((one.group.as_str(), one.plural.as_str()))).collect()
    }

    /// The resource of a kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Result<&Resource, ResolveError> {
        let found = self.all().find(|one| one.kind == kind && one.api_version() == api_version);
        found.ok_or_else(|| ResolveError::NoKind { kind: kind.to_string(), version: api_version.to_string() })
    }

    /// The resource that a user names: plural, singular, short name or kind, with version and group if it has dots.
    pub(crate) fn resolve(&self, text: &str) -> Result<&Resource, ResolveError> {
        let lower = text.to_lowercase();
        let missing = || ResolveError::NoResource(text.to_string());
        if !text.contains('.') {
            return self.find(&lower, None, "").ok_or_else(missing);
        }
        let parts: Vec<&str> = lower.splitn(3, '.').collect();
        if let [name, version, group] = parts[..]
            && let Some(found) = self.find(name, Some(group), version)
        {
            return Ok(found);
        }
        if let [name, version] = parts[..]
            && let Some(found) = self.find(name, Some(""), version)
        {
            return Ok(found);
        }
        let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
        self.find(name, Some(group), "").or_else(|| self.find_prefix(name, group)).ok_or_else(missing)
    }

    /// Names first, then short names: a short name of one resource may be the name of another.
    fn find(&self, name: &str, group: Option<&str>, version: &str) -> Option<&Resource> {
        let matches = |one: &&Resource| {
            group.is_none_or(|group| one.group == group) && (version.is_empty() || one.version == version)
        };
        let named = |one: &&Resource| one.plural == name || one.singular == name || one.kind.eq_ignore_ascii_case(name);
        let short = |one: &&Resource| one.short_names.iter().any(|short| short == name);
        let plural = self.all().filter(matches).find(|one| one.plural == name);
        plural.or_else(|| self.all().filter(matches).find(named)).or_else(|| self.all().filter(matches).find(short))
    }

    /// Groups may be abbreviated: `deployments.app`.
    fn find_prefix(&self, name: &str, group: &str) -> Option<&Resource> {
        let of_group = |one: &&Resource| !group.is_empty() && one.group.starts_with(group);
        self.all().filter(of_group).find(|one| one.plural == name || one.singular == name)
    }

    /// The resources of a category such as `all`.
    pub(crate) fn category(&self, name: &str) -> Vec<&Resource> {
        let in_category = |one: &&Resource| one.categories.iter().any(|category| category == name);
        self.preferred().into_iter().filter(in_category).collect()
    }

    /// The resource whose name is nearest to a wrong one.
    pub(crate) fn nearest(&self, text: &str) -> Option<&str> {
        let names = self.all().flat_map(|one| [one.plural.as_str(), one.singular.as_str()]);
        stdx::suggest::nearest(text, names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, kind: &str, plural: &str, short: &str) -> Resource {
        Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            is_namespaced: true,
            verbs: Vec::new(),
            short_names: vec![short.into()],
            categories: vec!["all".into()],
            subresources: Vec::new(),
        }
    }

    fn mapper() -> Mapper {
        let group = |name: &str, versions: Vec<(&str, Vec<Resource>)>| Group {
            name: name.into(),
            preferred: versions[0].0.into(),
            versions: versions.into_iter().map(|(version, list)| (version.to_string(), Some(list))).collect(),
        };
        Mapper::new(vec![
            group(
                "",
                vec![(
                    "v1",
                    vec![resource("", "v1", "Pod", "pods", "po"), resource("", "v1", "Event", "events", "ev")],
                )],
            ),
            group("apps", vec![("v1", vec![resource("apps", "v1", "Deployment", "deployments", "deploy")])]),
            group("events.k8s.io", vec![("v1", vec![resource("events.k8s.io", "v1", "Event", "events", "ev")])]),
            group(
                "x.io",
                vec![
                    ("v2", vec![resource("x.io", "v2", "Pod", "pods", "xp")]),
                    ("v1", vec![resource("x.io", "v1", "Pod", "pods", "xp")]),
                ],
            ),
        ])
    }

    #[test]
    fn resolves_what_users_write() {
        let mapper = mapper();
        let check = |text: &str, want: &str| {
            let found = mapper.resolve(text).map(|one| format!("{}.{}.{}", one.plural, one.version, one.group));
            assert_eq!(found.as_deref(), Ok(want), "{text}");
        };
        check("po", "pods.v1.");
        check("Pod", "pods.v1.");
        check("pods", "pods.v1.");
        check("pods.v1.", "pods.v1.");
        check("deploy", "deployments.v1.apps");
        check("deployments.apps", "deployments.v1.apps");
        check("deployment.v1.apps", "deployments.v1.apps");
        check("deployments.app", "deployments.v1.apps");
        check("pods.x.io", "pods.v2.x.io");
        check("pods.v1.x.io", "pods.v1.x.io");
        check("events.events.k8s.io", "events.v1.events.k8s.io");
        check("ev", "events.v1.");
        assert_eq!(mapper.resolve("nope").map(|_| ()), Err(ResolveError::NoResource("nope".into())));
        assert_eq!(mapper.nearest("depoyments"), Some("deployments"));
        assert_eq!(mapper.category("all").len(), 5);
    }
}
