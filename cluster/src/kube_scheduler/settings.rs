//! The scheduler's settings from flags and file together.

use std::path::Path;
use std::time::Duration;

use client::election::Timing;
use scheduler::config::{self, Configuration, LeaderElection};

use super::flags::Flags;
use crate::component::flags::Common;
use crate::error::{Error, Result};

/// A flag overrides the file; upstream's defaults apply otherwise.
pub(super) fn read(flags: Flags) -> Result<(Common, Configuration)> {
    let Flags { mut common, config, policy_config_file, .. } = flags;
    let mut configuration = match (&config, &policy_config_file) {
        (Some(_), Some(_)) => {
            return Err(Error::Flags(vec!["--config and --policy-config-file exclude each other".to_string()]));
        }
        (Some(path), None) => read_file("config", path, config::read)?,
        (None, Some(path)) => read_file("policy-config-file", path, config::read_policy)?,
        (None, None) => Configuration::default(),
    };
    let errors = merge(&mut common, &mut configuration);
    let errors: Vec<String> = errors.into_iter().chain(common.check()).collect();
    if errors.is_empty() { Ok((common, configuration)) } else { Err(Error::Flags(errors)) }
}

type Read = fn(&[u8]) -> Result<Configuration, Vec<String>>;

/// Each error names the flag, the file and the field.
fn read_file(flag: &str, path: &Path, read: Read) -> Result<Configuration> {
    let text = std::fs::read(path).map_err(Error::file(path))?;
    let named = |why: String| format!("--{flag}: {}: {why}", path.display());
    read(&text).map_err(|errors| Error::Flags(errors.into_iter().map(named).collect()))
}

/// Merges both; contradictions are errors.
fn merge(common: &mut Common, configuration: &mut Configuration) -> Vec<String> {
    let mut errors = Vec::new();
    let connection = &mut configuration.client_connection;
    let named = connection.kubeconfig.clone();
    match &common.kubeconfig {
        Some(flag) if !named.is_empty() && flag != Path::new(&named) => {
            let why = format!("--kubeconfig and clientConnection.kubeconfig name different files: {}", flag.display());
            errors.push(format!("{why} and {named}"));
        }
        None if !named.is_empty() => common.kubeconfig = Some(named.into()),
        _ => {}
    }
    connection.kubeconfig = common.kubeconfig.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let is_given = |flag: &str| common.given.contains(&flag);
    let (qps, burst) = (is_given("kube-api-qps"), is_given("kube-api-burst"));
    take(qps, &mut common.kube_api_qps, &mut connection.qps);
    take(burst, &mut common.kube_api_burst, &mut connection.burst);
    elect(common, &mut configuration.leader_election);
    errors
}

fn elect(common: &mut Common, file: &mut LeaderElection) {
    let given = common.given.clone();
    let is_given = |flag: &str| given.contains(&flag);
    let Timing { lease_duration, renew_deadline, retry_period, .. } = &mut common.timing;
    let times: [(&str, &mut Duration, &mut Duration); 3] = [
        ("leader-elect-lease-duration", lease_duration, &mut file.lease_duration),
        ("leader-elect-renew-deadline", renew_deadline, &mut file.renew_deadline),
        ("leader-elect-retry-period", retry_period, &mut file.retry_period),
    ];
    for (flag, own, other) in times {
        take(is_given(flag), own, other);
    }
    take(is_given("leader-elect"), &mut common.leader_elect, &mut file.elect);
    take(is_given("leader-elect-resource-name"), &mut common.lease_name, &mut file.name);
    take(is_given("leader-elect-resource-namespace"), &mut common.lease_namespace, &mut file.namespace);
}

fn take<T: Clone>(flag_counts: bool, flag: &mut T, file: &mut T) {
    match flag_counts {
        true => *file = flag.clone(),
        false => *flag = file.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags;
    use super::*;

    fn read(text: &str, arguments: &[&str]) -> Result<(Common, Configuration), String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).expect("a file");
        let mut all = vec![format!("--config={}", path.display())];
        all.extend(arguments.iter().map(ToString::to_string));
        flags::parse(&all).and_then(super::read).map_err(|error| error.describe())
    }

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn flags_override_the_file() {
        let file = format!(
            "{HEAD}clientConnection: {{kubeconfig: /a, qps: 20}}\n\
             leaderElection: {{leaderElect: false, leaseDuration: 30s, resourceName: mine}}\n"
        );
        let (common, configuration) = read(&file, &["--kube-api-qps=7"]).expect("a configuration");
        assert_eq!(common.kubeconfig, Some("/a".into()));
        assert!(!common.leader_elect);
        assert_eq!((common.timing.lease_duration.as_secs(), common.lease_name.as_str()), (30, "mine"));
        assert_eq!((common.kube_api_qps, configuration.client_connection.qps), (Some(7.0), Some(7.0)));
        let (common, configuration) = read(&file, &["--leader-elect", "--kubeconfig=/a"]).expect("a configuration");
        assert!(common.leader_elect && configuration.leader_election.elect);
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            (format!("{HEAD}parallelism: 0\n"), "config.yaml: parallelism: Invalid value: 0"),
            (format!("{HEAD}profiles: [{{plugins: {{score: {{enabled: [{{name: X}}]}}}}}}]\n"), "name: Unsupported"),
            (format!("{HEAD}clientConnection: {{kubeconfig: /b}}\n"), "--kubeconfig and clientConnection.kubeconfig"),
            ("kind: X\n".to_string(), "it must be a KubeSchedulerConfiguration"),
            (format!("{HEAD}leaderElection: {{leaseDuration: 1s}}\n"), "leaderElection.leaseDuration"),
        ];
        for (file, want) in cases {
            let error = read(&file, &["--kubeconfig=/a"]).err().expect("refused");
            assert!(error.contains(want), "{error}");
        }
        assert!(read(HEAD, &[]).err().expect("refused").contains("--kubeconfig FILE is required"));
        let both = read(HEAD, &["--kubeconfig=/a", "--policy-config-file=/x"]).err().expect("refused");
        assert!(both.contains("exclude each other"), "{both}");
    }
}
