//! The flags of `kube-apiserver`: one table, in parts. A flag is honoured, or rejected by its name; no flag is accepted
//! and ignored.

mod audit;
pub mod authentication;
mod snapshots;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use server::outbound::kubelets::{PREFERRED, TIMEOUT};

use super::authorization;
use crate::error::Result;
pub use crate::flags::flag;
use crate::flags::switch;
use crate::flags::values::{
    boolean, cidrs, duration, log_format, log_level, names, parsed, port_range, retention, unknown,
};
use crate::logs::{Format as LogFormat, Level};

/// The parsed flags.
pub struct Flags {
    pub advertise_address: Option<IpAddr>,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub data_dir: Option<PathBuf>,
    pub etcd_servers: Vec<String>,
    pub etcd_prefix: String,
    pub etcd_ca_file: Option<PathBuf>,
    pub etcd_cert_file: Option<PathBuf>,
    pub etcd_key_file: Option<PathBuf>,
    pub etcd_compaction_interval: Duration,
    /// Whether objects in etcd are protobuf; the default is JSON. The embedded store has its own format.
    pub stores_protobuf: bool,
    pub cert_dir: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub service_account_signing_key_file: Option<PathBuf>,
    pub service_account_key_files: Vec<PathBuf>,
    /// None is the default.
    pub issuers: Vec<String>,
    pub authorization: authorization::Authorization,
    pub authentication: authentication::Authentication,
    pub log_format: LogFormat,
    pub audit: server::audit::Settings,
    pub encryption_config: Option<PathBuf>,
    pub encryption_reload: bool,
    pub log_level: Level,
    pub enable_admission_plugins: Vec<String>,
    pub disable_admission_plugins: Vec<String>,
    pub admission_control_config_file: Option<PathBuf>,
    pub kubelet_certificate_authority: Option<PathBuf>,
    pub kubelet_client_certificate: Option<PathBuf>,
    pub kubelet_client_key: Option<PathBuf>,
    pub proxy_client_cert_file: Option<PathBuf>,
    pub proxy_client_key_file: Option<PathBuf>,
    pub kubelet_preferred_address_types: Vec<String>,
    pub kubelet_timeout: Duration,
    /// Scheduled snapshots of the embedded store.
    pub snapshots: crate::snapshots::Settings,
    pub config: server::Config,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            advertise_address: None,
            bind_address: IpAddr::from([0, 0, 0, 0]),
            secure_port: 6443,
            data_dir: None,
            etcd_servers: Vec::new(),
            etcd_prefix: "/registry".to_string(),
            etcd_ca_file: None,
            etcd_cert_file: None,
            etcd_key_file: None,
            etcd_compaction_interval: Duration::from_secs(300),
            stores_protobuf: false,
            cert_dir: None,
            client_ca_file: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            service_account_signing_key_file: None,
            service_account_key_files: Vec::new(),
            issuers: Vec::new(),
            authorization: authorization::Authorization::default(),
            authentication: authentication::Authentication::default(),
            log_format: LogFormat::Text,
            audit: server::audit::Settings::default(),
            encryption_config: None,
            encryption_reload: false,
            log_level: Level::Info,
            enable_admission_plugins: Vec::new(),
            disable_admission_plugins: Vec::new(),
            admission_control_config_file: None,
            kubelet_certificate_authority: None,
            kubelet_client_certificate: None,
            kubelet_client_key: None,
            proxy_client_cert_file: None,
            proxy_client_key_file: None,
            kubelet_preferred_address_types: PREFERRED.map(str::to_string).to_vec(),
            kubelet_timeout: TIMEOUT,
            snapshots: crate::snapshots::Settings::default(),
            config: server::Config::default(),
        }
    }
}

/// A flag of the API server.
pub type Flag = crate::flags::Flag<Flags>;

/// All parts of the table.
static PARTS: &[&[Flag]] =
    &[FLAGS, audit::FLAGS, audit::LOG, audit::WEBHOOK, authentication::FLAGS, authorization::FLAGS, snapshots::FLAGS];

/// Sorted by name, as each part is.
static FLAGS: &[Flag] = &[
    flag("admission-control-config-file", "a file with an AdmissionConfiguration for the plugins", |flags, value| {
        flags.admission_control_config_file = Some(value.into());
        Ok(())
    }),
    flag("advertise-address", "the address that this server advertises to members of the cluster", |flags, value| {
        flags.advertise_address = Some(parsed(value)?);
        Ok(())
    }),
    switch("allow-privileged", "only true: privileged containers are always allowed", |_, value| {
        let refused = "privileged containers cannot be forbidden yet; only true is supported";
        if boolean(value)? { Ok(()) } else { Err(refused.into()) }
    }),
    flag("bind-address", "the address to listen on [0.0.0.0]", |flags, value| {
        flags.bind_address = parsed(value)?;
        Ok(())
    }),
    flag(
        "cert-dir",
        "directory of a self-signed certificate, without --tls-cert-file and --data-dir",
        |flags, value| {
            flags.cert_dir = Some(value.into()).filter(|_| !value.is_empty());
            Ok(())
        },
    ),
    flag("client-ca-file", "CA bundle for client certificates", |flags, value| {
        flags.client_ca_file = Some(value.into());
        Ok(())
    }),
    flag("data-dir", "directory of the embedded store and of certificates that no other flag names", |flags, value| {
        flags.data_dir = Some(value.into());
        Ok(())
    }),
    flag("disable-admission-plugins", "admission plugins to disable", |flags, value| {
        flags.disable_admission_plugins.extend(names(value));
        Ok(())
    }),
    flag("enable-admission-plugins", "admission plugins to enable besides the default ones", |flags, value| {
        flags.enable_admission_plugins.extend(names(value));
        Ok(())
    }),
    switch(
        "enable-aggregator-routing",
        "send requests for extension API servers to endpoints instead of the cluster IP [false]",
        |flags, value| {
            flags.config.aggregation.routes_to_endpoints = boolean(value)?;
            Ok(())
        },
    ),
    switch("enable-priority-and-fairness", "enable API Priority and Fairness [true]", |flags, value| {
        flags.config.limits.fairness = boolean(value)?;
        Ok(())
    }),
    flag("encryption-provider-config", "a file with an EncryptionConfiguration", |flags, value| {
        flags.encryption_config = Some(value.into());
        Ok(())
    }),
    switch(
        "encryption-provider-config-automatic-reload",
        "reload that file when it changes [false]",
        |flags, value| {
            flags.encryption_reload = boolean(value)?;
            Ok(())
        },
    ),
    flag(
        "endpoint-reconciler-type",
        "lease, or none to leave the endpoints of the kubernetes service alone [lease]",
        |flags, value| {
            flags.config.publishes_endpoints = match value {
                "lease" => true,
                "none" => false,
                _ => return Err(unknown("type", value, "lease, none").into()),
            };
            Ok(())
        },
    ),
    flag("etcd-cafile", "CA bundle for etcd's certificates", |flags, value| {
        flags.etcd_ca_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-certfile", "client certificate for etcd", |flags, value| {
        flags.etcd_cert_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-compaction-interval", "how often the store is compacted; 0 for never [5m]", |flags, value| {
        flags.etcd_compaction_interval = duration(value)?;
        flags.config.compaction_interval = flags.etcd_compaction_interval;
        Ok(())
    }),
    flag("etcd-keyfile", "the key of that certificate", |flags, value| {
        flags.etcd_key_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-prefix", "prefix of all keys in etcd [/registry]", |flags, value| {
        flags.etcd_prefix = format!("/{}", value.trim_matches('/'));
        Ok(())
    }),
    flag("etcd-servers", "store objects in etcd at these URLs instead of the embedded store", |flags, value| {
        flags.etcd_servers = value.split(',').map(str::to_string).collect();
        Ok(())
    }),
    flag("event-ttl", "how long events are kept [1h]", |flags, value| {
        flags.config.event_ttl = duration(value)?;
        Ok(())
    }),
    feature_gates!(super::gates::GATES),
    flag("goaway-chance", "probability that an HTTP/2 request gets a GOAWAY, up to 0.02 [0]", |flags, value| {
        let chance: f64 = parsed(value)?;
        if !(0.0..=0.02).contains(&chance) {
            return Err("it must be between 0 and 0.02".into());
        }
        flags.config.limits.goaway_chance = chance;
        Ok(())
    }),
    flag(
        "history-retention",
        "how long and how large old versions of objects are kept; 0 for none [24h,64Mi]",
        |flags, value| {
            flags.config.history = retention(value, flags.config.history)?;
            Ok(())
        },
    ),
    flag("http2-max-streams-per-connection", "concurrent requests per HTTP/2 connection [100]", |flags, value| {
        let streams: u32 = parsed(value)?;
        flags.config.limits.http2_max_streams = if streams == 0 { 100 } else { streams };
        Ok(())
    }),
    flag(
        "kubelet-certificate-authority",
        "CA bundle for kubelet serving certificates; without it they are not verified",
        |flags, value| {
            flags.kubelet_certificate_authority = Some(value.into());
            Ok(())
        },
    ),
    flag("kubelet-client-certificate", "client certificate for kubelets", |flags, value| {
        flags.kubelet_client_certificate = Some(value.into());
        Ok(())
    }),
    flag("kubelet-client-key", "the key of that certificate", |flags, value| {
        flags.kubelet_client_key = Some(value.into());
        Ok(())
    }),
    flag(
        "kubelet-preferred-address-types",
        "order of node address types for connections to kubelets [Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP]",
        |flags, value| {
            flags.kubelet_preferred_address_types = names(value).collect();
            let unknown = flags.kubelet_preferred_address_types.iter().find(|name| !PREFERRED.contains(&name.as_str()));
            unknown.map_or(Ok(()), |name| Err(format!("unknown address type {name:?}").into()))
        },
    ),
    flag("kubelet-timeout", "timeout for connections to kubelets [5s]", |flags, value| {
        flags.kubelet_timeout = duration(value)?;
        Ok(())
    }),
    field!("logging-format", "text or json [text]", log_format, log_format),
    flag(
        "max-mutating-requests-inflight",
        "maximum concurrent mutating requests; 0 for no limit [200]",
        |flags, value| {
            flags.config.limits.max_mutating_requests_inflight = parsed(value)?;
            Ok(())
        },
    ),
    flag("max-requests-inflight", "maximum concurrent read-only requests; 0 for no limit [400]", |flags, value| {
        flags.config.limits.max_requests_inflight = parsed(value)?;
        Ok(())
    }),
    flag("min-request-timeout", "minimum duration of a watch, in seconds [1800]", |flags, value| {
        flags.config.limits.min_request_timeout = Duration::from_secs(parsed(value)?);
        Ok(())
    }),
    flag("proxy-client-cert-file", "client certificate for extension API servers", |flags, value| {
        flags.proxy_client_cert_file = Some(value.into());
        Ok(())
    }),
    flag("proxy-client-key-file", "key of --proxy-client-cert-file", |flags, value| {
        flags.proxy_client_key_file = Some(value.into());
        Ok(())
    }),
    switch("record-causes", "store each write with who wrote it and why [true]", |flags, value| {
        flags.config.records_causes = boolean(value)?;
        Ok(())
    }),
    flag("request-timeout", "timeout of a request [1m]", |flags, value| {
        flags.config.limits.request_timeout = duration(value)?;
        if flags.config.limits.request_timeout.is_zero() { Err("it must be more than 0".into()) } else { Ok(()) }
    }),
    flag("runtime-config", "API versions; a version can only be given its built-in state", |_, value| {
        Ok(super::runtime_config::check(value)?)
    }),
    flag("secure-port", "the port to listen on [6443]", |flags, value| {
        flags.secure_port = parsed(value)?;
        if flags.secure_port == 0 { Err("it cannot be turned off with 0".into()) } else { Ok(()) }
    }),
    flag(
        "service-account-issuer",
        "issuer of service account tokens; can be repeated, the first one signs",
        |flags, value| {
            if flags.issuers.iter().any(|known| known == value) {
                return Err(format!("{value:?} is named twice").into());
            }
            if value.is_empty() {
                return Err("it must not be empty".into());
            }
            flags.issuers.push(value.to_string());
            Ok(())
        },
    ),
    flag(
        "service-account-key-file",
        "public keys that verify service account tokens; can be repeated",
        |flags, value| {
            flags.service_account_key_files.extend(value.split(',').map(PathBuf::from));
            Ok(())
        },
    ),
    fixed!(switch, "service-account-lookup", "true", "the service account of a token is always looked up"),
    flag("service-account-signing-key-file", "the key that signs service account tokens", |flags, value| {
        flags.service_account_signing_key_file = Some(value.into());
        Ok(())
    }),
    flag("service-cluster-ip-range", "CIDR of service cluster IPs [10.96.0.0/16]", |flags, value| {
        flags.config.service_cidrs = cidrs(value)?;
        Ok(())
    }),
    flag("service-node-port-range", "port range of NodePort services [30000-32767]", |flags, value| {
        flags.config.node_ports = port_range(value)?;
        Ok(())
    }),
    flag(
        "shutdown-delay-duration",
        "how long to keep serving, not ready, after the termination signal [0s]",
        |flags, value| {
            flags.config.limits.shutdown_delay = duration(value)?;
            Ok(())
        },
    ),
    flag("storage-media-type", "encoding of objects in etcd: only application/json", |flags, value| {
        match value {
            "" | "application/json" => flags.stores_protobuf = false,
            "application/vnd.kubernetes.protobuf" => flags.stores_protobuf = true,
            _ => return Err(format!("objects are stored as application/json, not as {value:?}").into()),
        }
        Ok(())
    }),
    flag("tls-cert-file", "serving certificate", |flags, value| {
        flags.tls_cert_file = Some(value.into());
        Ok(())
    }),
    flag("tls-private-key-file", "the key of that certificate", |flags, value| {
        flags.tls_private_key_file = Some(value.into());
        Ok(())
    }),
    field!("v", "log verbosity; 4 and above logs each rejected request [0]", log_level, log_level),
];

/// Reads the flags; all errors are reported together.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::flags::parse(PARTS, arguments)
}

/// Parses arguments, and returns the names of the flags that were set.
pub(crate) fn parse_noting(arguments: &[String]) -> Result<(Flags, Vec<&'static str>)> {
    crate::flags::parse_noting(PARTS, arguments)
}

/// The help of the API server.
pub fn help() -> String {
    crate::flags::help("kube-apiserver", "The API server alone, with upstream's flags", PARTS)
}

#[cfg(test)]
mod tests;
