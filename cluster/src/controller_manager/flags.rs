//! The flags of `kube-controller-manager`: one table. A flag is honoured, or refused by its name.

use std::path::PathBuf;

use controllers::Options;

use super::gates::GATES;
use crate::component::flags::{Common, HasCommon, Table};
use crate::error::Result;
use crate::flags::values::{cidrs, list, parsed};
use crate::flags::{Flag, FlagError, flag, unfinished};

/// The parsed flags.
pub struct Flags {
    pub common: Common,
    pub controllers: Vec<String>,
    pub use_service_account_credentials: bool,
    pub root_ca_file: Option<PathBuf>,
    pub service_account_private_key_file: Option<PathBuf>,
    /// For all signers, and for each alone.
    pub signing: SigningFiles,
    pub kubelet_serving: SigningFiles,
    pub kubelet_client: SigningFiles,
    pub kube_apiserver_client: SigningFiles,
    pub legacy_unknown: SigningFiles,
    pub options: Options,
}

/// The files of a certificate and its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningFiles {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            common: Common::new(super::NAME, 10257),
            controllers: vec!["*".to_string()],
            use_service_account_credentials: false,
            root_ca_file: None,
            service_account_private_key_file: None,
            signing: SigningFiles::default(),
            kubelet_serving: SigningFiles::default(),
            kubelet_client: SigningFiles::default(),
            kube_apiserver_client: SigningFiles::default(),
            legacy_unknown: SigningFiles::default(),
            options: Options::default(),
        }
    }
}

impl HasCommon for Flags {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

mod work;

fn ranges(value: &str) -> Result<Vec<String>, FlagError> {
    Ok(cidrs(value)?.iter().map(ToString::to_string).collect())
}

/// At least one.
fn count(value: &str) -> Result<usize, FlagError> {
    match parsed(value)? {
        0 => Err("it must be at least 1".into()),
        count => Ok(count),
    }
}

const CLOUD: &str = "no cloud provider is built in";

/// All parts of the table, each sorted by name.
static PARTS: &[&[Flag<Flags>]] = &[Table::<Flags>::FLAGS, FLAGS, work::FLAGS];

static FLAGS: &[Flag<Flags>] = &[
    unfinished("cloud-config", CLOUD),
    flag("cloud-provider", "only \"\" and external: no cloud provider is built in", |_, value| match value {
        "" | "external" => Ok(()),
        _ => Err(CLOUD.into()),
    }),
    file!("cluster-signing-cert-file", "CA certificate that signs certificate signing requests", signing.certificate),
    file!("cluster-signing-key-file", "the key of that certificate", signing.key),
    file!(
        "cluster-signing-kube-apiserver-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client",
        kube_apiserver_client.certificate
    ),
    file!("cluster-signing-kube-apiserver-client-key-file", "the key of that certificate", kube_apiserver_client.key),
    file!(
        "cluster-signing-kubelet-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client-kubelet",
        kubelet_client.certificate
    ),
    file!("cluster-signing-kubelet-client-key-file", "the key of that certificate", kubelet_client.key),
    file!(
        "cluster-signing-kubelet-serving-cert-file",
        "the same for kubernetes.io/kubelet-serving",
        kubelet_serving.certificate
    ),
    file!("cluster-signing-kubelet-serving-key-file", "the key of that certificate", kubelet_serving.key),
    file!(
        "cluster-signing-legacy-unknown-cert-file",
        "the same for kubernetes.io/legacy-unknown",
        legacy_unknown.certificate
    ),
    file!("cluster-signing-legacy-unknown-key-file", "the key of that certificate", legacy_unknown.key),
    fixed!(flag, "controller-start-interval", "0s", "all controllers start at the same time"),
    flag(
        "controllers",
        "controllers to run: * for all, a name for one, -name for all but that one; old names work too [*]",
        |flags: &mut Flags, value| {
            flags.controllers = list(value);
            Ok(controllers::check(&flags.controllers)?)
        },
    ),
    feature_gates!(GATES),
    flag("flex-volume-plugin-dir", "only \"\": flex volumes are not supported", |_, value| match value {
        "" => Ok(()),
        _ => Err("flex volumes are not supported".into()),
    }),
    file!("root-ca-file", "CA bundle of the API server, published in every namespace", root_ca_file),
    file!(
        "service-account-private-key-file",
        "key that signs service account tokens in secrets",
        service_account_private_key_file
    ),
    on_off!(
        "use-service-account-credentials",
        "each controller acts as its own service account [false]",
        use_service_account_credentials
    ),
];

/// Parses the flags of the controller manager.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::component::flags::parse(PARTS, arguments)
}

/// The help of the controller manager.
pub fn help() -> String {
    crate::flags::help(super::NAME, "The controllers alone, with upstream's flags", PARTS)
}

#[cfg(test)]
mod tests;
