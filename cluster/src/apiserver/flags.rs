//! The flags of `kube-apiserver`: one table, in parts. A flag is honoured, or refused by its name; none is taken
//! and ignored.

pub mod authentication;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::authorization;
use super::values::{boolean, cidrs, duration, names, parsed, port_range};
use crate::error::{Error, Result};
use crate::logs::{Format, Level};

/// What the flags say.
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
    pub client_ca_file: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub service_account_signing_key_file: Option<PathBuf>,
    pub service_account_key_files: Vec<PathBuf>,
    pub authorization: authorization::Authorization,
    pub authentication: authentication::Authentication,
    pub log_format: Format,
    pub log_level: Level,
    pub enable_admission_plugins: Vec<String>,
    pub disable_admission_plugins: Vec<String>,
    pub admission_control_config_file: Option<PathBuf>,
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
            client_ca_file: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            service_account_signing_key_file: None,
            service_account_key_files: Vec::new(),
            authorization: authorization::Authorization::default(),
            authentication: authentication::Authentication::default(),
            log_format: Format::Text,
            log_level: Level::Info,
            enable_admission_plugins: Vec::new(),
            disable_admission_plugins: Vec::new(),
            admission_control_config_file: None,
            config: server::Config::default(),
        }
    }
}

pub struct Flag {
    pub name: &'static str,
    pub help: &'static str,
    /// A switch is true without a value.
    pub switch: bool,
    pub state: State,
}

pub enum State {
    /// Takes a value, or says why it cannot.
    Honoured(fn(&mut Flags, &str) -> Result<(), String>),
    /// Refused, with what is missing.
    Unfinished(&'static str),
}

pub const fn flag(name: &'static str, help: &'static str, take: fn(&mut Flags, &str) -> Result<(), String>) -> Flag {
    Flag { name, help, switch: false, state: State::Honoured(take) }
}

const fn switch(name: &'static str, help: &'static str, take: fn(&mut Flags, &str) -> Result<(), String>) -> Flag {
    Flag { name, help, switch: true, state: State::Honoured(take) }
}

const fn unfinished(name: &'static str, missing: &'static str) -> Flag {
    Flag { name, help: "", switch: false, state: State::Unfinished(missing) }
}

const AGGREGATION: &str = "servers behind the API are not reached yet";
const KUBELETS: &str = "kubelets are not spoken to yet";

/// All parts of the table.
static PARTS: &[&[Flag]] = &[FLAGS, authentication::FLAGS, authorization::FLAGS];

fn all() -> impl Iterator<Item = &'static Flag> {
    PARTS.iter().copied().flatten()
}

/// Sorted by name, as each part is.
static FLAGS: &[Flag] = &[
    flag("admission-control-config-file", "an AdmissionConfiguration: what plugins are told", |flags, value| {
        flags.admission_control_config_file = Some(value.into());
        Ok(())
    }),
    flag("advertise-address", "the address at which the cluster's members reach this server", |flags, value| {
        flags.advertise_address = Some(parsed(value)?);
        Ok(())
    }),
    switch("allow-privileged", "only true: privileged containers are always allowed", |_, value| {
        let refused = "privileged containers cannot be forbidden yet; only true can be given";
        if boolean(value)? { Ok(()) } else { Err(refused.to_string()) }
    }),
    flag("bind-address", "the address to listen on [0.0.0.0]", |flags, value| {
        flags.bind_address = parsed(value)?;
        Ok(())
    }),
    flag("client-ca-file", "certificates signed by these authorities are identities", |flags, value| {
        flags.client_ca_file = Some(value.into());
        Ok(())
    }),
    flag(
        "data-dir",
        "where the embedded store, and certificates that no other flag names, are kept",
        |flags, value| {
            flags.data_dir = Some(value.into());
            Ok(())
        },
    ),
    flag("disable-admission-plugins", "plugins to turn off although they are on by default", |flags, value| {
        flags.disable_admission_plugins.extend(names(value));
        Ok(())
    }),
    flag("enable-admission-plugins", "plugins to turn on besides the default ones", |flags, value| {
        flags.enable_admission_plugins.extend(names(value));
        Ok(())
    }),
    flag("etcd-cafile", "the authority of etcd's certificates", |flags, value| {
        flags.etcd_ca_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-certfile", "the certificate shown to etcd", |flags, value| {
        flags.etcd_cert_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-compaction-interval", "how often etcd's history is cut; 0 leaves it to others [5m]", |flags, value| {
        flags.etcd_compaction_interval = duration(value)?;
        Ok(())
    }),
    flag("etcd-keyfile", "the key of that certificate", |flags, value| {
        flags.etcd_key_file = Some(value.into());
        Ok(())
    }),
    flag("etcd-prefix", "put before all keys in etcd [/registry]", |flags, value| {
        flags.etcd_prefix = format!("/{}", value.trim_matches('/'));
        Ok(())
    }),
    flag("etcd-servers", "keep everything in etcd at these URLs, instead of the embedded store", |flags, value| {
        flags.etcd_servers = value.split(',').map(str::to_string).collect();
        Ok(())
    }),
    flag("event-ttl", "how long events are kept [1h]", |flags, value| {
        flags.config.event_ttl = duration(value)?;
        Ok(())
    }),
    unfinished("kubelet-client-certificate", KUBELETS),
    unfinished("kubelet-client-key", KUBELETS),
    unfinished("kubelet-preferred-address-types", KUBELETS),
    flag("logging-format", "text or json [text]", |flags, value| {
        flags.log_format = match value {
            "text" => Format::Text,
            "json" => Format::Json,
            _ => return Err(format!("unknown format {value:?}; there are text and json")),
        };
        Ok(())
    }),
    unfinished("proxy-client-cert-file", AGGREGATION),
    unfinished("proxy-client-key-file", AGGREGATION),
    flag("secure-port", "the port to listen on [6443]", |flags, value| {
        flags.secure_port = parsed(value)?;
        if flags.secure_port == 0 { Err("it cannot be turned off with 0".to_string()) } else { Ok(()) }
    }),
    flag("service-account-issuer", "who stands in service account tokens", |flags, value| {
        flags.config.issuer = value.to_string();
        Ok(())
    }),
    flag("service-account-key-file", "public keys whose tokens are taken too; can be repeated", |flags, value| {
        flags.service_account_key_files.extend(value.split(',').map(PathBuf::from));
        Ok(())
    }),
    flag("service-account-signing-key-file", "the key that signs service account tokens", |flags, value| {
        flags.service_account_signing_key_file = Some(value.into());
        Ok(())
    }),
    flag("service-cluster-ip-range", "where services get their addresses from [10.96.0.0/16]", |flags, value| {
        flags.config.service_cidrs = cidrs(value)?;
        Ok(())
    }),
    flag("service-node-port-range", "where services get their node ports from [30000-32767]", |flags, value| {
        flags.config.node_ports = port_range(value)?;
        Ok(())
    }),
    flag("tls-cert-file", "the certificate shown to clients", |flags, value| {
        flags.tls_cert_file = Some(value.into());
        Ok(())
    }),
    flag("tls-private-key-file", "the key of that certificate", |flags, value| {
        flags.tls_private_key_file = Some(value.into());
        Ok(())
    }),
    flag("v", "how much is logged: 4 and above adds each refused request [0]", |flags, value| {
        flags.log_level = Level::of_verbosity(parsed(value)?);
        Ok(())
    }),
];

/// Reads `--name=value`, `--name value` and `--switch`. Everything that is wrong is told at once.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    let mut flags = Flags::default();
    let mut errors = Vec::new();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let Some((name, given)) = split(argument) else {
            errors.push(format!("unknown argument {argument:?}"));
            continue;
        };
        let Some(flag) = all().find(|flag| flag.name == name) else {
            errors.push(format!("unknown flag: --{name}"));
            continue;
        };
        let value = match given {
            Some(value) => Some(value),
            None if flag.switch => Some("true"),
            None => rest.next_if(|next| split(next).is_none()).map(String::as_str),
        };
        errors.extend(apply(flag, value, &mut flags).err());
    }
    if errors.is_empty() { Ok(flags) } else { Err(Error::Flags(errors)) }
}

/// The name of a flag, and its value where that is in the same argument.
fn split(argument: &str) -> Option<(&str, Option<&str>)> {
    let name = argument.strip_prefix("--").or(argument.strip_prefix('-').filter(|name| name.starts_with('v')))?;
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

fn apply(flag: &Flag, value: Option<&str>, flags: &mut Flags) -> Result<(), String> {
    match (&flag.state, value) {
        (State::Unfinished(missing), _) => Err(format!("--{} cannot be honoured: {missing}", flag.name)),
        (State::Honoured(_), None) => Err(format!("--{} needs a value", flag.name)),
        (State::Honoured(take), Some(value)) => {
            take(flags, value).map_err(|why| format!("--{} cannot be honoured: {why}", flag.name))
        }
    }
}

pub fn help() -> String {
    let mut text = "The API server alone, with upstream's flags\n\nUsage: kube-apiserver [FLAGS]\n\n".to_string();
    let mut flags: Vec<&Flag> = all().collect();
    flags.sort_unstable_by_key(|flag| flag.name);
    for flag in flags {
        let help = match flag.state {
            State::Honoured(_) => flag.help.to_string(),
            State::Unfinished(missing) => format!("refused: {missing}"),
        };
        text.push_str(&format!("  --{:<42}{help}\n", flag.name));
    }
    text
}

#[cfg(test)]
mod tests;
