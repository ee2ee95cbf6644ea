//! Types and functions that the checks of all levels share.

use std::collections::BTreeSet;
use std::fmt;

use api::field::go_quote;
use api::{Map, Tree};

/// A pod, or a template of pods, under the rules of a minor version.
pub(super) struct Pod<'a> {
    pub annotations: &'a Map,
    pub spec: &'a Tree,
    pub version: u32,
}

impl<'a> Pod<'a> {
    /// The containers in upstream's order: init containers first.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Tree> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| spec.list(list))
    }

    /// The names of the containers for which the predicate is true.
    pub(super) fn named(&self, mut is_bad: impl FnMut(&Tree) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| is_bad(container)).map(|container| container.str("name")).collect()
    }

    /// Rules for Linux do not apply to Windows pods since 1.25.
    pub(crate) fn is_windows(&self) -> bool {
        self.version >= 25 && self.spec.str("os.name") == "windows"
    }

    /// Root in a user namespace has no rights outside of it.
    pub(crate) fn has_user_namespace(&self) -> bool {
        self.spec.at("hostUsers").as_bool() == Some(false)
    }
}

pub(crate) struct Violation {
    pub reason: String,
    pub detail: String,
}

impl Violation {
    pub(super) fn new(reason: &str, detail: String) -> Option<Violation> {
        Some(Violation { reason: reason.to_string(), detail })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { f.write_str(&self.reason) } else { write!(f, "{} ({})", self.reason, self.detail) }
    }
}

/// A rule and the minor version that introduced it.
pub(crate) struct Check {
    pub since: u32,
    pub run: fn(&Pod<'_>) -> Option<Violation>,
}

pub(super) const fn since(since: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { since, run }
}

pub(super) fn run<'a>(checks: impl Iterator<Item = &'a Check>, pod: &Pod<'_>) -> Vec<Violation> {
    checks.filter(|check| pod.version >= check.since).filter_map(|check| (check.run)(pod)).collect()
}

pub(super) fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

pub(crate) fn quoted<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(go_quote).collect();
    texts.join(", ")
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names.iter().copied()))
}

/// The pod or containers whose security context has a forbidden value, and the values.
pub(crate) fn bad_setters(
    pod: &Pod<'_>,
    path: &str,
    is_allowed: impl Fn(&Tree) -> bool,
) -> (Vec<String>, BTreeSet<String>) {
    let mut values = BTreeSet::new();
    let mut is_bad = |owner: &Tree| {
        let value = owner.at("securityContext").at(path);
        let bad = !value.is_null() && !is_allowed(value);
        if bad {
            values.insert(value.as_str().unwrap_or("").to_string());
        }
        bad
    };
    let mut setters = Vec::new();
    if is_bad(pod.spec) {
        setters.push("pod".to_string());
    }
    let names = pod.named(is_bad);
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    (setters, values)
}
