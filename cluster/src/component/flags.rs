//! The flags that all components beside the API server have: one table for all of them.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;

use client::election::Timing;

use super::remote::service_address;
use crate::error::Result;
use crate::flags::values::{duration, list, log_format, log_level, parsed};
use crate::flags::{Flag, flag};
use crate::logs::{Format, Level};

/// The flags that every component has.
pub struct Common {
    /// Upstream's name of the component: for its user agent and its lease.
    pub name: &'static str,
    pub kubeconfig: Option<PathBuf>,
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Whether the CA bundles of the API server are not read.
    pub authentication_skip_lookup: bool,
    pub authorization_kubeconfig: Option<PathBuf>,
    pub always_allow_paths: Vec<String>,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    /// Directory of a self-signed certificate; without it the certificate is not written.
    pub cert_dir: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub proxy_ca_file: Option<PathBuf>,
    pub proxy_allowed_names: Vec<String>,
    pub proxy_headers: server::authentication::request_header::Names,
    pub leader_elect: bool,
    pub timing: Timing,
    pub lease_namespace: String,
    pub lease_name: String,
    /// Requests per second of each client, and the burst; None without a limit.
    pub kube_api_qps: Option<f64>,
    pub kube_api_burst: u32,
    pub log_format: Format,
    pub log_level: Level,
    /// The names of the flags that were set: they override a file.
    pub given: Vec<&'static str>,
}

impl Common {
    pub(crate) fn new(name: &'static str, secure_port: u16) -> Common {
        Common {
            name,
            kubeconfig: None,
            authentication_kubeconfig: None,
            authentication_skip_lookup: false,
            authorization_kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_string).into(),
            bind_address: IpAddr::from([0, 0, 0, 0]),
            secure_port,
            cert_dir: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            client_ca_file: None,
            proxy_ca_file: None,
            proxy_allowed_names: Vec::new(),
            proxy_headers: server::authentication::request_header::Names::default_names(),
            leader_elect: true,
            timing: Timing::default(),
            lease_namespace: "kube-system".to_string(),
            lease_name: name.to_string(),
            kube_api_qps: None,
            kube_api_burst: 30,
            log_format: Format::Text,
            log_level: Level::Info,
            given: Vec::new(),
        }
    }

    /// Whether the renew deadline was set, by a flag or a file.
    pub(super) fn stops_at_deadline(&self) -> bool {
        let usual = Timing::default().renew_deadline;
        self.given.contains(&"leader-elect-renew-deadline") || self.timing.renew_deadline != usual
    }

    /// Missing flags, and contradictions between flags.
    pub(crate) fn check(&self) -> Vec<String> {
        let missing = (self.kubeconfig.is_none() && service_address().is_none()).then(|| NO_KUBECONFIG.to_string());
        missing.into_iter().chain(self.check_values()).collect()
    }

    /// Contradictions between flags, for a component whose client is in the same process.
    pub(crate) fn check_values(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let timing = self.timing;
        if timing.lease_duration <= timing.renew_deadline {
            errors.push("--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline".to_string());
        }
        if timing.renew_deadline <= timing.retry_period.mul_f64(1.2) || timing.retry_period.as_millis() < 1 {
            let why = "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period";
            errors.push(why.to_string());
        }
        if self.tls_cert_file.is_some() != self.tls_private_key_file.is_some() {
            errors.push("--tls-cert-file and --tls-private-key-file must be set together".to_string());
        }
        errors
    }
}

/// The flags of a component, including the common ones.
pub trait HasCommon: Default + 'static {
    /// The flags that all components have.
    fn common(&mut self) -> &mut Common;
}

/// Any text.
pub fn text(value: &str) -> Result<String, Infallible> {
    Ok(value.to_string())
}

/// Texts, separated by commas.
pub fn texts(value: &str) -> Result<Vec<String>, Infallible> {
    Ok(list(value))
}

/// A component needs an API server.
pub(crate) const NO_KUBECONFIG: &str =
    "--kubeconfig FILE is required outside of a pod: it names the API server and this component's credentials";
/// Why profiling is refused.
pub const NO_PROFILES: &str = "profiling is not supported";

/// The table, for the flags of any component.
pub struct Table<F>(PhantomData<F>);

impl<F: HasCommon> Table<F> {
    pub(crate) const FLAGS: &'static [Flag<F>] = &[
        file!(
            "authentication-kubeconfig",
            "a kubeconfig of the API server that authenticates tokens",
            common().authentication_kubeconfig
        ),
        on_off!(
            "authentication-skip-lookup",
            "do not read the CA bundles of the API server [false]",
            common().authentication_skip_lookup
        ),
        fixed!(
            switch,
            "authentication-tolerate-lookup-failure",
            "true",
            "the CA bundles are read when a client presents a certificate, not at the start"
        ),
        field!(
            "authorization-always-allow-paths",
            "paths that need no authorization [/healthz,/readyz,/livez]",
            texts,
            common().always_allow_paths
        ),
        file!(
            "authorization-kubeconfig",
            "a kubeconfig of the API server that authorizes requests",
            common().authorization_kubeconfig
        ),
        field!("bind-address", "the address to listen on [0.0.0.0]", parsed, common().bind_address),
        file!("cert-dir", "directory of a self-signed certificate, without --tls-cert-file", common().cert_dir),
        file!("client-ca-file", "CA bundle for client certificates", common().client_ca_file),
        fixed!(switch, "contention-profiling", "false", NO_PROFILES),
        field!("kube-api-burst", "burst of requests, with --kube-api-qps [30]", parsed, common().kube_api_burst),
        flag("kube-api-content-type", "only application/json and upstream's default", |_, value| match value {
            "" | "application/json" | "application/vnd.kubernetes.protobuf" => Ok(()),
            _ => Err(format!("unknown content type {value:?}").into()),
        }),
        flag(
            "kube-api-qps",
            "requests per second of each client; negative for no limit [none]",
            |flags: &mut F, value| {
                flags.common().kube_api_qps = match parsed::<f64>(value)? {
                    number if number < 0.0 => None,
                    number if number > 0.0 && number.is_finite() => Some(number),
                    _ => return Err("it must not be 0; a negative number means no limit".into()),
                };
                Ok(())
            },
        ),
        file!("kubeconfig", "a kubeconfig of the API server", common().kubeconfig),
        on_off!("leader-elect", "run only while holding the lease [true]", common().leader_elect),
        field!(
            "leader-elect-lease-duration",
            "how long other candidates wait before they take over [2s]",
            duration,
            common().timing.lease_duration
        ),
        field!(
            "leader-elect-renew-deadline",
            "how long the leader retries to renew its lease; if it is set, the leader stops then [1.5s]",
            duration,
            common().timing.renew_deadline
        ),
        flag("leader-elect-resource-lock", "only leases", |_, value| match value {
            "leases" => Ok(()),
            _ => Err("only leases are supported".into()),
        }),
        field!("leader-elect-resource-name", "name of the lease [the component's name]", text, common().lease_name),
        field!(
            "leader-elect-resource-namespace",
            "namespace of the lease [kube-system]",
            text,
            common().lease_namespace
        ),
        field!(
            "leader-elect-retry-period",
            "interval between attempts [400ms]",
            duration,
            common().timing.retry_period
        ),
        field!("logging-format", "text or json [text]", log_format, common().log_format),
        fixed!(switch, "profiling", "false", NO_PROFILES),
        field!(
            "requestheader-allowed-names",
            "common names of accepted proxies [all]",
            texts,
            common().proxy_allowed_names
        ),
        file!("requestheader-client-ca-file", "CA bundle for client certificates of proxies", common().proxy_ca_file),
        field!(
            "requestheader-extra-headers-prefix",
            "prefixes of headers with extra user information [X-Remote-Extra-]",
            texts,
            common().proxy_headers.extra_prefixes
        ),
        field!(
            "requestheader-group-headers",
            "headers for groups [X-Remote-Group]",
            texts,
            common().proxy_headers.groups
        ),
        field!("requestheader-uid-headers", "headers for the uid [X-Remote-Uid]", texts, common().proxy_headers.uid),
        field!(
            "requestheader-username-headers",
            "headers for the user name [X-Remote-User]",
            texts,
            common().proxy_headers.username
        ),
        field!(
            "secure-port",
            "the port of health and metrics; 0 for none [10257, of the scheduler 10259]",
            parsed,
            common().secure_port
        ),
        file!("tls-cert-file", "the certificate of this port; without it one is self-signed", common().tls_cert_file),
        file!("tls-private-key-file", "the key of that certificate", common().tls_private_key_file),
        field!("v", "how much is logged [0]", log_level, common().log_level),
    ];
}

/// Reads the arguments of a component.
pub fn parse<F: HasCommon>(parts: &[&'static [Flag<F>]], arguments: &[String]) -> Result<F> {
    let (mut flags, given) = crate::flags::parse_noting(parts, arguments)?;
    flags.common().given = given;
    Ok(flags)
}
