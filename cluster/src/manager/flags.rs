//! The flags of `kube-controller-manager`: one table. A flag is honoured, or refused by its name.

use std::net::IpAddr;
use std::path::PathBuf;

use client::election::Timing;
use controllers::Options;

use super::gates;
use crate::apiserver::values::{boolean, cidrs, duration, list, parsed};
use crate::error::Result;
use crate::flags::{Flag, flag, switch, unfinished};
use crate::logs::{Format, Level};

/// What the flags say.
pub struct Flags {
    pub kubeconfig: Option<PathBuf>,
    pub authentication_kubeconfig: Option<PathBuf>,
    pub authorization_kubeconfig: Option<PathBuf>,
    pub always_allow_paths: Vec<String>,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub proxy_ca_file: Option<PathBuf>,
    pub proxy_allowed_names: Vec<String>,
    pub proxy_headers: server::auth::request_header::Names,
    pub controllers: Vec<String>,
    pub use_service_account_credentials: bool,
    pub leader_elect: bool,
    pub timing: Timing,
    pub lease_namespace: String,
    pub lease_name: String,
    /// Requests a second of each client, and how many may come at once; none are held back without a number.
    pub kube_api_qps: Option<f64>,
    pub kube_api_burst: u32,
    pub root_ca_file: Option<PathBuf>,
    pub service_account_private_key_file: Option<PathBuf>,
    /// For all signers, and for each alone.
    pub signing: SigningFiles,
    pub kubelet_serving: SigningFiles,
    pub kubelet_client: SigningFiles,
    pub kube_apiserver_client: SigningFiles,
    pub legacy_unknown: SigningFiles,
    pub options: Options,
    pub log_format: Format,
    pub log_level: Level,
}

/// Where a certificate and its key are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningFiles {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            kubeconfig: None,
            authentication_kubeconfig: None,
            authorization_kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_string).into(),
            bind_address: IpAddr::from([0, 0, 0, 0]),
            secure_port: 10257,
            tls_cert_file: None,
            tls_private_key_file: None,
            client_ca_file: None,
            proxy_ca_file: None,
            proxy_allowed_names: Vec::new(),
            proxy_headers: server::auth::request_header::Names::usual(),
            controllers: vec!["*".to_string()],
            use_service_account_credentials: false,
            leader_elect: true,
            timing: Timing::default(),
            lease_namespace: "kube-system".to_string(),
            lease_name: "kube-controller-manager".to_string(),
            kube_api_qps: None,
            kube_api_burst: 30,
            root_ca_file: None,
            service_account_private_key_file: None,
            signing: SigningFiles::default(),
            kubelet_serving: SigningFiles::default(),
            kubelet_client: SigningFiles::default(),
            kube_apiserver_client: SigningFiles::default(),
            legacy_unknown: SigningFiles::default(),
            options: Options::default(),
            log_format: Format::Text,
            log_level: Level::Info,
        }
    }
}

/// A flag whose value is read by a function and kept in a field.
macro_rules! field {
    ($name:literal, $help:literal, $read:path, $($place:ident).+) => {
        flag($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = $read(value)?;
            Ok(())
        })
    };
}

macro_rules! on_off {
    ($name:literal, $help:literal, $($place:ident).+) => {
        switch($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = boolean(value)?;
            Ok(())
        })
    };
}

macro_rules! file {
    ($name:literal, $help:literal, $($place:ident).+) => {
        flag($name, $help, |flags: &mut Flags, value| {
            flags.$($place).+ = Some(value.into()).filter(|_| !value.is_empty());
            Ok(())
        })
    };
}

/// A flag that can only say what is so.
macro_rules! fixed {
    ($sort:ident, $name:literal, $value:literal, $why:expr) => {
        $sort($name, concat!("only ", $value), |_: &mut Flags, value| {
            let same = value == $value || matches!((duration(value), duration($value)), (Ok(a), Ok(b)) if a == b);
            if same { Ok(()) } else { Err($why.to_string()) }
        })
    };
}

mod work;

fn text(value: &str) -> Result<String, String> {
    Ok(value.to_string())
}

fn texts(value: &str) -> Result<Vec<String>, String> {
    Ok(list(value))
}

fn ranges(value: &str) -> Result<Vec<String>, String> {
    Ok(cidrs(value)?.into_iter().map(|(network, bits)| format!("{network}/{bits}")).collect())
}

/// At least one.
fn count(value: &str) -> Result<usize, String> {
    match parsed(value)? {
        0 => Err("it must be at least 1".to_string()),
        count => Ok(count),
    }
}

const NO_PROFILES: &str = "nothing is profiled";
const CLOUD: &str = "there is no cloud provider";

/// All parts of the table, each sorted by name.
static PARTS: &[&[Flag<Flags>]] = &[FLAGS, work::FLAGS];

static FLAGS: &[Flag<Flags>] = &[
    file!(
        "authentication-kubeconfig",
        "the API server that knows tokens shown to this port",
        authentication_kubeconfig
    ),
    field!(
        "authorization-always-allow-paths",
        "what everybody may ask for [/healthz,/readyz,/livez]",
        texts,
        always_allow_paths
    ),
    file!("authorization-kubeconfig", "the API server that knows who may ask this port", authorization_kubeconfig),
    field!("bind-address", "the address to listen on [0.0.0.0]", parsed, bind_address),
    file!("client-ca-file", "who signs the certificates of those who ask this port", client_ca_file),
    unfinished("cloud-config", CLOUD),
    flag("cloud-provider", "only \"\" and external: there is none here", |_, value| match value {
        "" | "external" => Ok(()),
        _ => Err(CLOUD.to_string()),
    }),
    file!("cluster-signing-cert-file", "the certificate that signs those that are asked for", signing.certificate),
    file!("cluster-signing-key-file", "its key", signing.key),
    file!(
        "cluster-signing-kube-apiserver-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client",
        kube_apiserver_client.certificate
    ),
    file!("cluster-signing-kube-apiserver-client-key-file", "its key", kube_apiserver_client.key),
    file!(
        "cluster-signing-kubelet-client-cert-file",
        "the same for kubernetes.io/kube-apiserver-client-kubelet",
        kubelet_client.certificate
    ),
    file!("cluster-signing-kubelet-client-key-file", "its key", kubelet_client.key),
    file!(
        "cluster-signing-kubelet-serving-cert-file",
        "the same for kubernetes.io/kubelet-serving",
        kubelet_serving.certificate
    ),
    file!("cluster-signing-kubelet-serving-key-file", "its key", kubelet_serving.key),
    file!(
        "cluster-signing-legacy-unknown-cert-file",
        "the same for kubernetes.io/legacy-unknown",
        legacy_unknown.certificate
    ),
    file!("cluster-signing-legacy-unknown-key-file", "its key", legacy_unknown.key),
    fixed!(switch, "contention-profiling", "false", NO_PROFILES),
    fixed!(flag, "controller-start-interval", "0s", "all controllers start at once"),
    flag(
        "controllers",
        "* for all, a name for one, -name for all but it; old names too [*]",
        |flags: &mut Flags, value| {
            flags.controllers = list(value);
            controllers::check(&flags.controllers)
        },
    ),
    flag("feature-gates", "only what is so already: gates cannot be turned here", |_, value| gates::check(value)),
    flag("flex-volume-plugin-dir", "only \"\": there are no flex volumes", |_, value| match value {
        "" => Ok(()),
        _ => Err("there are no flex volumes".to_string()),
    }),
    field!("kube-api-burst", "how many requests may come at once where there is a limit [30]", parsed, kube_api_burst),
    flag(
        "kube-api-qps",
        "requests a second of each client; a negative one for no limit [none]",
        |flags: &mut Flags, value| {
            flags.kube_api_qps = match parsed::<f64>(value)? {
                number if number < 0.0 => None,
                number if number > 0.0 && number.is_finite() => Some(number),
                _ => return Err("it must not be 0; a negative number is no limit".to_string()),
            };
            Ok(())
        },
    ),
    file!("kubeconfig", "the API server, and who we are there", kubeconfig),
    on_off!("leader-elect", "work only while holding the lease [true]", leader_elect),
    field!("leader-elect-lease-duration", "how long others wait for a leader [15s]", duration, timing.lease_duration),
    field!("leader-elect-renew-deadline", "how long a leader tries to stay [10s]", duration, timing.renew_deadline),
    flag("leader-elect-resource-lock", "only leases", |_, value| match value {
        "leases" => Ok(()),
        _ => Err("there are only leases".to_string()),
    }),
    field!("leader-elect-resource-name", "the lease [kube-controller-manager]", text, lease_name),
    field!("leader-elect-resource-namespace", "its namespace [kube-system]", text, lease_namespace),
    field!("leader-elect-retry-period", "between two tries [2s]", duration, timing.retry_period),
    flag("logging-format", "text or json [text]", |flags: &mut Flags, value| {
        flags.log_format = match value {
            "text" => Format::Text,
            "json" => Format::Json,
            _ => return Err(format!("unknown format {value:?}; there are text and json")),
        };
        Ok(())
    }),
    fixed!(switch, "profiling", "false", NO_PROFILES),
    field!("requestheader-allowed-names", "names of proxies; any where there are none", texts, proxy_allowed_names),
    file!("requestheader-client-ca-file", "who signs the certificates of proxies that speak for others", proxy_ca_file),
    field!(
        "requestheader-extra-headers-prefix",
        "what they name further things by [X-Remote-Extra-]",
        texts,
        proxy_headers.extra_prefixes
    ),
    field!("requestheader-group-headers", "what they name groups by [X-Remote-Group]", texts, proxy_headers.groups),
    field!("requestheader-uid-headers", "what they name uids by [X-Remote-Uid]", texts, proxy_headers.uid),
    field!("requestheader-username-headers", "what they name users by [X-Remote-User]", texts, proxy_headers.username),
    file!("root-ca-file", "what verifies the API server, published in every namespace", root_ca_file),
    field!("secure-port", "the port of health and metrics; 0 for none [10257]", parsed, secure_port),
    file!("service-account-private-key-file", "the key that signs tokens in secrets", service_account_private_key_file),
    file!("tls-cert-file", "the certificate of this port; without it one is made", tls_cert_file),
    file!("tls-private-key-file", "its key", tls_private_key_file),
    on_off!(
        "use-service-account-credentials",
        "each controller acts as its own service account [false]",
        use_service_account_credentials
    ),
    flag("v", "how much is logged [0]", |flags: &mut Flags, value| {
        flags.log_level = Level::of_verbosity(parsed(value)?);
        Ok(())
    }),
];

pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::flags::parse(PARTS, arguments)
}

pub fn help() -> String {
    crate::flags::help("kube-controller-manager", "The controllers alone, with upstream's flags", PARTS)
}

#[cfg(test)]
mod tests;
