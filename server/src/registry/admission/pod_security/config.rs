//! PodSecurityConfiguration: the defaults for namespaces without labels, and the exemptions.

use api::Tree;

use super::super::setup::{FieldError, Source};
use super::labels::{Policies, Policy, parse_level, parse_version};

/// The defaults and exemptions of pod security.
#[derive(Default)]
pub struct Config {
    pub(crate) defaults: Policies,
    usernames: Vec<String>,
    runtime_classes: Vec<String>,
    namespaces: Vec<String>,
}

const API_VERSIONS: &[&str] = &[
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];
const DEFAULTS: &[&str] = &["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];
const EXEMPTIONS: &[&str] = &["usernames", "runtimeClasses", "namespaces"];

pub(super) fn read(source: &Source<'_>) -> Result<Config, FieldError> {
    source.expect(API_VERSIONS, "PodSecurityConfiguration")?;
    source.only("", source.tree, &["apiVersion", "kind", "defaults", "exemptions"])?;
    let (defaults, exemptions) = (source.tree.at("defaults"), source.tree.at("exemptions"));
    source.only("defaults", defaults, DEFAULTS)?;
    source.only("exemptions", exemptions, EXEMPTIONS)?;
    Ok(Config {
        defaults: Policies {
            enforce: policy(defaults, "enforce")?,
            audit: policy(defaults, "audit")?,
            warn: policy(defaults, "warn")?,
        },
        usernames: names(exemptions, "usernames")?,
        runtime_classes: names(exemptions, "runtimeClasses")?,
        namespaces: names(exemptions, "namespaces")?,
    })
}

fn policy(defaults: &Tree, mode: &str) -> Result<Policy, FieldError> {
    let mut policy = Policy::default();
    if defaults.has(mode) {
        let level = parse_level(defaults.str(mode));
        let unknown = || FieldError::new(mode, "must be one of privileged, baseline, restricted").below("defaults");
        policy.level = level.ok_or_else(unknown)?;
    }
    let key = format!("{mode}-version");
    if defaults.has(&key) {
        let version = parse_version(defaults.str(&key));
        let unknown = || FieldError::new(&key, "must be \"latest\" or \"v1.x\"").below("defaults");
        policy.version = version.ok_or_else(unknown)?;
    }
    Ok(policy)
}

fn names(exemptions: &Tree, key: &str) -> Result<Vec<String>, FieldError> {
    let text = |(index, name): (usize, &Tree)| match name.as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_string()),
        _ => Err(FieldError::new(format!("exemptions.{key}[{index}]"), "it must be a name")),
    };
    exemptions.list(key).iter().enumerate().map(text).collect()
}

impl Config {
    /// The exemption that applies to a write, if any.
    pub(crate) fn exempts(&self, namespace: &str, user: &str, template: &Tree) -> Option<&'static str> {
        let has = |list: &[String], name: &str| list.iter().any(|own| own == name);
        let class = template.str("spec.runtimeClassName");
        match () {
            () if has(&self.namespaces, namespace) => Some("namespace"),
            () if has(&self.usernames, user) => Some("user"),
            () if !class.is_empty() && has(&self.runtime_classes, class) => Some("runtimeClass"),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::tests::json;
    use super::*;

    fn config(more: &str) -> Result<Config, FieldError> {
        let text = format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration"{more}}}"#
        );
        read(&Source { tree: &json(&text), dir: Path::new("") })
    }

    #[test]
    fn defaults_and_exemptions_are_read() {
        let config = config(
            r#","defaults":{"enforce":"baseline","enforce-version":"v1.30"},"exemptions":{"usernames":["u"],"namespaces":["n"],"runtimeClasses":["r"]}"#,
        )
        .expect("right");
        assert_eq!(config.defaults.enforce.to_string(), "baseline:v1.30");
        assert_eq!(config.defaults.warn.to_string(), "privileged:latest");
        let template = |class: &str| json(&format!(r#"{{"spec":{{"runtimeClassName":"{class}"}}}}"#));
        assert_eq!(config.exempts("n", "x", &template("")), Some("namespace"));
        assert_eq!(config.exempts("x", "u", &template("")), Some("user"));
        assert_eq!(config.exempts("x", "x", &template("r")), Some("runtimeClass"));
        assert_eq!(config.exempts("x", "x", &template("")), None);
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            (r#","defaults":{"enforce":"x"}"#, "defaults.enforce: must be one of"),
            (r#","defaults":{"warn-version":"x"}"#, "defaults.warn-version: must be"),
            (r#","defaults":{"other":"x"}"#, "defaults.other: unknown field"),
            (r#","exemptions":{"namespaces":[""]}"#, "exemptions.namespaces[0]: it must be a name"),
        ];
        for (more, want) in cases {
            let error = config(more).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
