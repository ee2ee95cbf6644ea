//! The labels of a namespace with its pod security levels.

use std::fmt;

use api::Map;
use api::field::{Errors, Path};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A level as it was in a minor version; `u32::MAX` is the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub level: Level,
    pub version: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Policies {
    pub enforce: Policy,
    pub audit: Policy,
    pub warn: Policy,
}

const LATEST: u32 = u32::MAX;

impl Default for Policy {
    fn default() -> Policy {
        Policy { level: Level::Privileged, version: LATEST }
    }
}

impl Policies {
    /// Reads the labels; an invalid label is reported, and counts as the strictest level.
    pub(crate) fn read(labels: &Map, defaults: Policies, errors: &mut Errors) -> Policies {
        let enforce = Policy::read(labels, "enforce", defaults.enforce, errors);
        let audit = Policy::read(labels, "audit", defaults.audit, errors);
        let warn = Policy::read(labels, "warn", defaults.warn, errors);
        let says = |mode: &str| labels.contains(&label(mode));
        // A namespace that enforces a level also warns about it, unless its labels set another one.
        let warn = if says("warn") || warn.level >= enforce.level { warn } else { Policy { ..enforce } };
        Policies { enforce, audit, warn }
    }

    pub(crate) fn are_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|policy| policy.level == Level::Privileged)
    }
}

fn label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

impl Policy {
    fn read(labels: &Map, mode: &str, default: Policy, errors: &mut Errors) -> Policy {
        let mut policy = default;
        let metadata = Path::root("metadata");
        let path = metadata.field("labels");
        let key = label(mode);
        if let Some(text) = labels.get(&key).and_then(api::Tree::as_str) {
            policy.level = parse_level(text).unwrap_or_else(|| {
                errors.invalid(&path.key(&key), text, "must be one of privileged, baseline, restricted");
                Level::Restricted
            });
        }
        let key = format!("{key}-version");
        if let Some(text) = labels.get(&key).and_then(api::Tree::as_str) {
            policy.version = parse_version(text).unwrap_or_else(|| {
                errors.invalid(&path.key(&key), text, "must be \"latest\" or \"v1.x\"");
                LATEST
            });
        }
        policy
    }

    /// Whether pods that met the old policy may violate the new one.
    pub(crate) fn is_stricter(self, old: Policy) -> bool {
        self != old && self.level != Level::Privileged && (self.version != old.version || self.level > old.level)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            LATEST => write!(f, "{level}:latest"),
            minor => write!(f, "{level}:v1.{minor}"),
        }
    }
}

pub(crate) fn parse_level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

pub(crate) fn parse_version(text: &str) -> Option<u32> {
    if text == "latest" {
        return Some(LATEST);
    }
    let minor = text.strip_prefix("v1.")?;
    let plain = minor == "0" || !minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| minor.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let cases = [
            ("latest", Some(LATEST)),
            ("v1.0", Some(0)),
            ("v1.24", Some(24)),
            ("v1.024", None),
            ("vx", None),
            ("v1.", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_version(text), want, "{text}");
        }
    }

    #[test]
    fn invalid_label_is_reported_and_strict() {
        let mut labels = Map::new();
        labels.insert("pod-security.kubernetes.io/enforce", "bogus");
        labels.insert("pod-security.kubernetes.io/warn-version", "vx");
        let mut errors = Errors::new();
        assert_eq!(Policies::read(&labels, Policies::default(), &mut errors).enforce.level, Level::Restricted);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"bogus\": must be one of privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"vx\": must be \"latest\" or \"v1.x\"",
            ]
        );
    }

    #[test]
    fn only_a_stricter_policy_is_worth_a_look() {
        let policy = |level, version| Policy { level, version };
        let check = |new: Policy, old: Policy, want: bool| assert_eq!(new.is_stricter(old), want);
        check(policy(Level::Baseline, LATEST), policy(Level::Privileged, LATEST), true);
        check(policy(Level::Baseline, LATEST), policy(Level::Restricted, LATEST), false);
        check(policy(Level::Privileged, 3), policy(Level::Restricted, LATEST), false);
        check(policy(Level::Baseline, 24), policy(Level::Restricted, LATEST), true);
    }
}
