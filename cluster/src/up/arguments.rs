//! `--apiserver-arg` and its siblings: flags of the components that run inside of `up`. Each is accepted by the
//! component, or rejected by its name.

use std::net::SocketAddr;
use std::path::Path;

use scheduler::config::Configuration;

use crate::apiserver::flags::{self as apiserver_flags, Flags as ApiserverFlags};
use crate::component::flags::{HasCommon, Table};
use crate::error::{Error, Result};
use crate::flags::Flag;
use crate::flags::values::{ValueError, retention};
use crate::{controller_manager, kube_scheduler, node};

#[derive(clap::Args, Default)]
pub(crate) struct ComponentArguments {
    /// A flag of kube-apiserver, such as enable-admission-plugins=AlwaysPullImages; can be repeated
    #[arg(long = "apiserver-arg", visible_alias = "kube-apiserver-arg", value_name = "FLAG=VALUE")]
    #[arg(allow_hyphen_values = true)]
    apiserver: Vec<String>,
    /// A flag of kube-controller-manager; can be repeated
    #[arg(long = "controller-manager-arg", visible_alias = "kube-controller-manager-arg", value_name = "FLAG=VALUE")]
    #[arg(allow_hyphen_values = true)]
    manager: Vec<String>,
    /// A flag of kube-scheduler; can be repeated
    #[arg(long = "scheduler-arg", visible_alias = "kube-scheduler-arg", value_name = "FLAG=VALUE")]
    #[arg(allow_hyphen_values = true)]
    scheduler: Vec<String>,
    /// A flag of kubelet; can be repeated
    #[arg(long = "kubelet-arg", value_name = "FLAG=VALUE", allow_hyphen_values = true)]
    pub kubelet: Vec<String>,
    /// How long and how large old versions of objects are kept, for `tiphys history`; 0 for none [default: 24h,64Mi]
    #[arg(long = "history-retention", value_name = "AGE,SIZE")]
    history_retention: Option<String>,
}

/// Flags that `up` decides itself, and why.
type ReservedFlags = [(&'static str, &'static str)];

const IN_PROCESS: &str = "it runs inside of `up`, without a port, a kubeconfig and an election of its own";
const SNAPSHOTS: &str = "the flag of `up` with this name says it";
const OF_LOG: &str = "--log-format and --log-level of `up` say it";

const APISERVER: &ReservedFlags = &[
    ("bind-address", "--bind-address of `up` says it"),
    ("data-dir", "--data-dir of `up` says it"),
    ("logging-format", OF_LOG),
    ("secure-port", "--port of `up` says it"),
    ("service-cluster-ip-range", "--service-cidr of `up` says it"),
    ("snapshot-dir", SNAPSHOTS),
    ("snapshot-retention", SNAPSHOTS),
    ("snapshot-s3-ca-file", SNAPSHOTS),
    ("snapshot-s3-credentials-file", SNAPSHOTS),
    ("snapshot-s3-endpoint", SNAPSHOTS),
    ("snapshot-s3-region", SNAPSHOTS),
    ("snapshot-schedule", SNAPSHOTS),
    ("v", OF_LOG),
];
const MANAGER: &ReservedFlags = &[
    ("cluster-cidr", "--cluster-cidr of `up` says it"),
    ("controllers", "--controllers of `up` says it"),
    ("use-service-account-credentials", "each controller acts as its own account"),
];
const SCHEDULER: &ReservedFlags = &[("write-config-to", "`tiphys kube-scheduler --write-config-to` does it")];
const KUBELET: &ReservedFlags = &[
    ("bootstrap-kubeconfig", IN_PROCESS),
    ("cert-dir", IN_PROCESS),
    ("cgroup-root", "--cgroup-root of `up` says it"),
    ("config", "--kubelet-config of `up` says it"),
    ("config-dir", "--kubelet-config of `up` says it"),
    ("container-runtime-endpoint", "--container-runtime-endpoint of `up` says it"),
    ("drain-by-proxies", "--drain-by-proxies of `up` says it"),
    ("hostname-override", "--node-name of `up` says it"),
    ("kubeconfig", IN_PROCESS),
    ("pod-logs-dir", "--pod-logs-dir of `up` says it"),
    ("root-dir", "--root-dir of `up` says it"),
];

/// The address types for connections to nodes: the name of a node may not resolve on other machines.
const KUBELET_ADDRESSES: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];
/// Enabled besides upstream's defaults: a kubelet may only write its own node and pods.
const NODE_RESTRICTION: &str = "NodeRestriction";

impl ComponentArguments {
    /// The same arguments for another process of this binary.
    pub(crate) fn words(&self) -> Vec<String> {
        let named =
            |name: &str, flags: &[String]| flags.iter().map(|flag| format!("--{name}={flag}")).collect::<Vec<_>>();
        [
            named("apiserver-arg", &self.apiserver),
            named("controller-manager-arg", &self.manager),
            named("scheduler-arg", &self.scheduler),
            named("kubelet-arg", &self.kubelet),
            named("history-retention", self.history_retention.as_slice()),
        ]
        .concat()
    }

    /// The flags of the API server, with the defaults of `up`.
    pub(crate) fn apiserver(&self, data_dir: &Path, listen: SocketAddr) -> Result<ApiserverFlags> {
        const FLAG: &str = "--apiserver-arg";
        let words = checked(FLAG, &self.apiserver, |name| owner(APISERVER, name))?;
        let (mut flags, given) = apiserver_flags::parse_noting(&words).map_err(|error| named(FLAG, error))?;
        let is_given = |name: &str| given.contains(&name);
        if let Some(text) = &self.history_retention {
            let wrong = |error: ValueError| Error::Flags(vec![format!("--history-retention: {error}")]);
            flags.config.history = retention(text, flags.config.history).map_err(wrong)?;
        }
        flags.data_dir = Some(data_dir.to_path_buf());
        (flags.bind_address, flags.secure_port) = (listen.ip(), listen.port());
        if !is_given("authorization-mode") && !is_given("authorization-config") {
            flags.authorization.set_modes("Node,RBAC").map_err(|why| Error::Flags(vec![why.to_string()]))?;
        }
        if !is_given("enable-bootstrap-token-auth") {
            flags.authentication.bootstrap_tokens = true;
        }
        if !is_given("kubelet-preferred-address-types") {
            flags.kubelet_preferred_address_types = KUBELET_ADDRESSES.map(str::to_string).to_vec();
        }
        let is_named = |names: &[String]| names.iter().any(|name| name == NODE_RESTRICTION);
        if !is_named(&flags.disable_admission_plugins) && !is_named(&flags.enable_admission_plugins) {
            flags.enable_admission_plugins.push(NODE_RESTRICTION.to_string());
        }
        Ok(flags)
    }

    /// The flags of the controllers.
    pub(crate) fn manager(&self) -> Result<controller_manager::flags::Flags> {
        const FLAG: &str = "--controller-manager-arg";
        let common = Table::<controller_manager::flags::Flags>::FLAGS;
        let words = checked(FLAG, &self.manager, |name| owner(MANAGER, name).or(owner_of_common(common, name)))?;
        controller_manager::flags::parse(&words).map_err(|error| named(FLAG, error))
    }

    pub(crate) fn scheduler(&self) -> Result<Configuration> {
        const FLAG: &str = "--scheduler-arg";
        let common = Table::<kube_scheduler::flags::Flags>::FLAGS;
        let words = checked(FLAG, &self.scheduler, |name| owner(SCHEDULER, name).or(owner_of_common(common, name)))?;
        let flags = kube_scheduler::flags::parse(&words).map_err(|error| named(FLAG, error))?;
        kube_scheduler::read_configuration(flags).map_err(|error| named(FLAG, error))
    }

    pub(crate) fn kubelet(&self) -> Result<node::flags::Flags> {
        const FLAG: &str = "--kubelet-arg";
        let words = checked(FLAG, &self.kubelet, |name| owner(KUBELET, name))?;
        node::flags::parse(&words).map_err(|error| named(FLAG, error))
    }
}

fn owner(owned: &ReservedFlags, name: &str) -> Option<&'static str> {
    owned.iter().find(|(flag, _)| *flag == name).map(|(_, why)| *why)
}

fn owner_of_common<F: HasCommon>(flags: &[Flag<F>], name: &str) -> Option<&'static str> {
    flags.iter().any(|flag| flag.name == name).then_some(IN_PROCESS)
}

/// The flags for the component, after a check that `up` does not set them itself. Dashes may be omitted, as with k3s.
fn checked(flag: &str, given: &[String], owner: impl Fn(&str) -> Option<&'static str>) -> Result<Vec<String>> {
    let bare: Vec<&str> = given.iter().map(|word| word.trim_start_matches('-')).collect();
    let refused = |word: &&str| {
        let name = word.split_once('=').map_or(*word, |(name, _)| name);
        owner(name).map(|why| format!("{flag}: --{name} is not supported: {why}"))
    };
    let errors: Vec<String> = bare.iter().filter_map(refused).collect();
    if errors.is_empty() {
        Ok(bare.iter().map(|word| format!("--{word}")).collect())
    } else {
        Err(Error::Flags(errors))
    }
}

/// The same error, of a flag of `up`.
fn named(flag: &str, error: Error) -> Error {
    match error {
        Error::Flags(whys) => Error::Flags(whys.into_iter().map(|why| format!("{flag}: {why}")).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(apiserver: &[&str], manager: &[&str], scheduler: &[&str], kubelet: &[&str]) -> ComponentArguments {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        ComponentArguments {
            apiserver: words(apiserver),
            manager: words(manager),
            scheduler: words(scheduler),
            kubelet: words(kubelet),
            history_retention: None,
        }
    }

    #[test]
    fn retention_of_history_is_a_flag_of_up_too() {
        let listen = "127.0.0.1:6443".parse().expect("an address");
        let with = |text: &str| {
            let arguments =
                ComponentArguments { history_retention: Some(text.to_string()), ..ComponentArguments::default() };
            assert_eq!(arguments.words(), [format!("--history-retention={text}")]);
            arguments
                .apiserver(Path::new("/d"), listen)
                .map(|flags| flags.config.history)
                .map_err(|error| error.describe())
        };
        assert_eq!(with("0").map(|history| history.is_on()), Ok(false));
        assert_eq!(with("1h,1Mi").map(|history| (history.age.as_secs(), history.bytes)), Ok((3600, 1 << 20)));
        assert!(with("forever").expect_err("no duration").contains("--history-retention: \"forever\""));
        let history = apiserver(&["history-retention=2Mi"]).expect("flags").config.history;
        assert_eq!(history.bytes, 2 << 20);
    }

    fn apiserver(words: &[&str]) -> std::result::Result<ApiserverFlags, String> {
        let listen = "127.0.0.1:6443".parse().expect("an address");
        arguments(words, &[], &[], &[]).apiserver(Path::new("/d"), listen).map_err(|error| error.describe())
    }

    #[test]
    fn flags_replace_the_defaults_of_up() {
        let plain = apiserver(&[]).expect("flags");
        assert_eq!(plain.enable_admission_plugins, ["NodeRestriction"]);
        assert!(plain.authentication.bootstrap_tokens && plain.kubelet_preferred_address_types == KUBELET_ADDRESSES);
        assert_eq!((plain.secure_port, plain.data_dir.as_deref()), (6443, Some(Path::new("/d"))));
        let parsed = apiserver(&[
            "enable-admission-plugins=AlwaysPullImages",
            "--event-ttl=2h",
            "enable-bootstrap-token-auth=false",
        ]);
        let parsed = parsed.expect("flags");
        assert_eq!(parsed.enable_admission_plugins, ["AlwaysPullImages", "NodeRestriction"]);
        assert_eq!(parsed.config.event_ttl.as_secs(), 7200);
        assert!(!parsed.authentication.bootstrap_tokens);
        let without = apiserver(&["disable-admission-plugins=NodeRestriction"]).expect("flags");
        assert!(without.enable_admission_plugins.is_empty());
    }

    #[test]
    fn accepts_or_rejects_every_flag() {
        let check = |result: Result<()>, want: &[&str]| {
            let why = result.err().map(|error| error.describe()).unwrap_or_default();
            assert_eq!(why.is_empty(), want.is_empty(), "{why}");
            want.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
        };
        let refused = apiserver(&["secure-port=1", "--nope=2"]).err().expect("refused");
        assert!(refused.contains("--apiserver-arg: --secure-port is not supported: --port"), "{refused}");
        assert!(apiserver(&["nope"]).err().expect("refused").contains("--apiserver-arg: unknown flag: --nope"));
        let manager = |words: &[&str]| arguments(&[], words, &[], &[]).manager().map(drop);
        check(manager(&["concurrent-job-syncs=7"]), &[]);
        check(manager(&["kubeconfig=x"]), &["--controller-manager-arg: --kubeconfig", "inside of `up`"]);
        check(manager(&["controllers=*"]), &["--controllers of `up`"]);
        let scheduler = |words: &[&str]| arguments(&[], &[], words, &[]).scheduler().map(drop);
        check(scheduler(&[]), &[]);
        check(scheduler(&["leader-elect=false"]), &["--scheduler-arg: --leader-elect"]);
        check(scheduler(&["config=/none"]), &["/none"]);
        let kubelet = |words: &[&str]| arguments(&[], &[], &[], words).kubelet().map(drop);
        check(kubelet(&["max-pods=7", "node-labels=a=b"]), &[]);
        check(kubelet(&["root-dir=/x"]), &["--kubelet-arg: --root-dir", "--root-dir of `up`"]);
    }
}
