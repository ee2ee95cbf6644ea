//! Which credential plugins may run: a kubeconfig from elsewhere may name any program.

use std::path::{Path, PathBuf};

use crate::plugins;

/// The user's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum PluginPolicy {
    #[default]
    AllowAll,
    DenyAll,
    /// Only these programs: names in PATH, or paths.
    Allowlist(Vec<String>),
}

impl PluginPolicy {
    /// Why a program may not run; None if it may.
    pub(super) fn refusal(&self, command: &Path) -> Option<String> {
        let command = command.to_string_lossy();
        match self {
            PluginPolicy::AllowAll => None,
            PluginPolicy::DenyAll => Some(format!("plugin \"{command}\" not allowed: policy set to \"DenyAll\"")),
            PluginPolicy::Allowlist(names) => {
                let program = program(&command);
                let is_listed = program.is_some() && names.iter().any(|name| self::program(name) == program);
                (!is_listed)
                    .then(|| format!("plugin \"{command}\" not allowed: it is not in the allowlist of the kuberc"))
            }
        }
    }
}

/// The executable file that a name stands for.
fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        plugins::is_executable(&path).then_some(path)
    } else {
        plugins::find(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_allow_what_they_list() {
        let check = |policy: PluginPolicy, command: &str, want: bool| {
            assert_eq!(policy.refusal(Path::new(command)).is_none(), want, "{policy:?} {command}");
        };
        let listed = |name: &str| PluginPolicy::Allowlist(vec![name.to_string()]);
        let sh = plugins::find("sh").expect("a shell").to_string_lossy().into_owned();
        check(PluginPolicy::AllowAll, "anything", true);
        check(PluginPolicy::DenyAll, "sh", false);
        check(listed("sh"), "sh", true);
        check(listed(&sh), "sh", true);
        check(listed("sh"), &sh, true);
        check(listed("sh"), "cat", false);
        check(listed("sh"), "/tmp/nonexistent/sh", false);
        check(listed("nonexistent-program"), "nonexistent-program", false);
        check(PluginPolicy::Allowlist(Vec::new()), "sh", false);
    }
}
