//! The flags that select the authorizers, and the files that they name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::authorization::config::{self, Mode, Setting};
use server::authorization::{Decision, abac, webhook};
use server::outbound::callout::kubeconfig;

use super::flags::{Flag, flag};
use super::reload::{ApplyFile, ReloadedFile};
use crate::error::{Error, Result};
use crate::flags::values::{ValueError, duration, unknown};

/// Sorted by name.
pub(crate) static FLAGS: &[Flag] = &[
    flag(
        "authorization-config",
        "a file with an AuthorizationConfiguration, instead of the other --authorization-* flags",
        |flags, value| {
            flags.authorization.config = Some(value.into());
            Ok(())
        },
    ),
    flag(
        "authorization-mode",
        "authorization modes, in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny [AlwaysDeny]",
        |flags, value| Ok(flags.authorization.set_modes(value)?),
    ),
    flag("authorization-policy-file", "policy file of the ABAC mode", |flags, value| {
        flags.authorization.policy_file = Some(value.into());
        Ok(())
    }),
    flag("authorization-webhook-cache-authorized-ttl", "how long allowed decisions are cached [5m]", |flags, value| {
        flags.authorization.authorized_ttl = Some(duration(value)?);
        Ok(())
    }),
    flag(
        "authorization-webhook-cache-unauthorized-ttl",
        "how long denied decisions are cached [30s]",
        |flags, value| {
            flags.authorization.unauthorized_ttl = Some(duration(value)?);
            Ok(())
        },
    ),
    flag("authorization-webhook-config-file", "a kubeconfig of the authorization webhook", |flags, value| {
        flags.authorization.webhook_file = Some(value.into());
        Ok(())
    }),
    flag(
        "authorization-webhook-version",
        "version of SubjectAccessReviews: v1 or v1beta1 [v1beta1]",
        |flags, value| Ok(flags.authorization.set_webhook_version(value)?),
    ),
];

/// The flags of authorization.
#[derive(Debug, Default)]
pub struct Authorization {
    pub config: Option<PathBuf>,
    /// In order; none means AlwaysDeny.
    modes: Vec<String>,
    pub policy_file: Option<PathBuf>,
    pub webhook_file: Option<PathBuf>,
    webhook_version: Option<webhook::Version>,
    pub authorized_ttl: Option<Duration>,
    pub unauthorized_ttl: Option<Duration>,
}

const MODES: &[&str] = &["AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node"];

/// Why the modes of `--authorization-mode` are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModeError {
    #[error("{0:?} is not a valid mode; supported: {modes}", modes = MODES.join(", "))]
    Unknown(String),
    #[error("{0:?} is named twice")]
    Repeated(String),
}

impl Authorization {
    pub(crate) fn set_modes(&mut self, value: &str) -> Result<(), ModeError> {
        let modes: Vec<String> = value.split(',').map(str::to_string).collect();
        for (at, mode) in modes.iter().enumerate() {
            if !MODES.contains(&mode.as_str()) {
                return Err(ModeError::Unknown(mode.clone()));
            }
            if modes[..at].contains(mode) {
                return Err(ModeError::Repeated(mode.clone()));
            }
        }
        self.modes = modes;
        Ok(())
    }

    pub(crate) fn set_webhook_version(&mut self, value: &str) -> Result<(), ValueError> {
        self.webhook_version = Some(match value {
            "v1" => webhook::Version::V1,
            "v1beta1" => webhook::Version::V1beta1,
            _ => return Err(unknown("version", value, "v1, v1beta1")),
        });
        Ok(())
    }

    /// Every client may do everything; anonymous requests are rejected.
    pub(crate) fn allows_everything(&self) -> bool {
        self.has("AlwaysAllow")
    }

    fn has(&self, mode: &str) -> bool {
        self.modes.iter().any(|other| other == mode)
    }

    /// Contradictions between flags.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let of_webhook = self.webhook_version.is_some() || self.authorized_ttl.or(self.unauthorized_ttl).is_some();
        let others = !self.modes.is_empty() || self.policy_file.is_some() || self.webhook_file.is_some() || of_webhook;
        if self.config.is_some() && others {
            problems.push("--authorization-config can not be specified with other --authorization-* flags".to_string());
            return problems;
        }
        let mut pair = |mode: &str, flag: &str, given: bool, needed: bool| {
            if self.has(mode) && !given && needed {
                problems.push(format!("--authorization-mode {mode} needs {flag}"));
            }
            if !self.has(mode) && given {
                problems.push(format!("{flag} needs the mode {mode} in --authorization-mode"));
            }
        };
        pair("ABAC", "--authorization-policy-file", self.policy_file.is_some(), true);
        pair("Webhook", "--authorization-webhook-config-file", self.webhook_file.is_some(), true);
        pair("Webhook", "--authorization-webhook-*", of_webhook, false);
        problems
    }

    /// The authorizers, with their files read.
    pub fn settings(&self) -> Result<Vec<Setting>> {
        if let Some(file) = &self.config {
            return read_config(file);
        }
        if self.modes.is_empty() {
            return Ok(vec![Mode::AlwaysDeny.into()]);
        }
        self.modes.iter().map(|mode| self.mode(mode).map(Setting::from)).collect()
    }

    fn mode(&self, name: &str) -> Result<Mode> {
        match (name, &self.policy_file, &self.webhook_file) {
            ("ABAC", Some(file), _) => {
                let text = std::fs::read_to_string(file).map_err(Error::file(file))?;
                let policies = abac::parse(&text).map_err(|why| bad_file(file, vec![why.to_string()]))?;
                Ok(Mode::Abac(Arc::new(policies)))
            }
            ("Webhook", _, Some(file)) => self.webhook(file).map(Mode::Webhook),
            _ => Mode::plain(name).ok_or_else(|| Error::Flags(vec![format!("the mode {name} needs its file")])),
        }
    }

    fn webhook(&self, file: &Path) -> Result<webhook::Settings> {
        let remote = kubeconfig::read(file).map_err(|error| Error::Flags(vec![error.to_string()]))?;
        Ok(webhook::Settings {
            remote: Arc::new(remote),
            authorized_ttl: self.authorized_ttl.unwrap_or(Duration::from_secs(300)),
            unauthorized_ttl: self.unauthorized_ttl.unwrap_or(Duration::from_secs(30)),
            timeout: Duration::from_secs(30),
            on_failure: Decision::NoOpinion,
            version: self.webhook_version.unwrap_or(webhook::Version::V1beta1),
            conditions: Default::default(),
        })
    }
}

fn read_config(file: &Path) -> Result<Vec<Setting>> {
    parse_config(file, &std::fs::read(file).map_err(Error::file(file))?)
}

/// The configuration file, if there is one: it is reloaded while the server runs.
pub fn followed(flags: &Authorization) -> Result<Option<ReloadedFile>> {
    let Some(file) = flags.config.clone() else { return Ok(None) };
    let path = file.clone();
    let apply: ApplyFile = Box::new(move |server, data| {
        server.set_authorization(&parse_config(&path, data)?);
        Ok(())
    });
    ReloadedFile::new("authorization", file, apply).map(Some)
}

fn parse_config(file: &Path, bytes: &[u8]) -> Result<Vec<Setting>> {
    let open = |file: &Path| kubeconfig::read(file).map_err(Into::into);
    config::parse(bytes, &open).map_err(|errors| bad_file(file, errors))
}

fn bad_file(file: &Path, errors: Vec<String>) -> Error {
    Error::Flags(errors.into_iter().map(|error| format!("{}: {error}", file.display())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_require_their_files() {
        type Change = fn(&mut Authorization);
        let cases: [(&str, Change, &str); 6] = [
            ("RBAC", |_| {}, ""),
            ("ABAC", |_| {}, "--authorization-mode ABAC needs --authorization-policy-file"),
            ("RBAC", |flags| flags.policy_file = Some("x".into()), "--authorization-policy-file needs the mode ABAC"),
            ("Webhook", |_| {}, "needs --authorization-webhook-config-file"),
            ("RBAC", |flags| flags.authorized_ttl = Some(Duration::ZERO), "needs the mode Webhook"),
            ("RBAC", |flags| flags.config = Some("x".into()), "--authorization-config can not be specified with"),
        ];
        for (modes, change, want) in cases {
            let mut flags = Authorization::default();
            flags.set_modes(modes).expect("good modes");
            change(&mut flags);
            let problems = flags.problems();
            assert_eq!(problems.is_empty(), want.is_empty(), "{problems:?}");
            assert!(problems.join("\n").contains(want), "{problems:?}");
        }
    }

    #[test]
    fn errors_of_files_name_the_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("policy.jsonl");
        std::fs::write(&file, "# all\n{\"kind\":\"Policy\"}\n").expect("a file");
        let mut flags = Authorization { policy_file: Some(file.clone()), ..Authorization::default() };
        flags.set_modes("ABAC,RBAC").expect("good modes");
        let error = flags.settings().expect_err("a bad line").describe();
        assert!(error.contains(&format!("{}: line 2: ", file.display())), "{error}");
        let config = Authorization { config: Some(dir.path().join("none")), ..Authorization::default() };
        assert!(config.settings().expect_err("no file").describe().contains("none"));
        let names = |modes: &str| {
            let mut flags = Authorization::default();
            flags.set_modes(modes).expect("good modes");
            flags.settings().expect("settings").iter().map(|setting| setting.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("Node,RBAC"), ["node", "rbac"]);
        assert!(matches!(
            Authorization::default().settings().expect("a default")[..],
            [Setting { mode: Mode::AlwaysDeny, .. }]
        ));
    }
}
