//! The hosts of a registry: its own address, and the mirrors that an administrator has configured.
//!
//! The format is containerd's: one directory per registry, with a `hosts.toml` or only with certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::error::{Error, Result};
use super::http::Target;

/// The default configuration directories; the first one that has a registry wins.
pub(crate) const DEFAULT_DIRECTORIES: &[&str] =
    &["/etc/tiphys/certs.d", "/etc/containerd/certs.d", "/etc/docker/certs.d"];

/// A host to request images from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub target: Target,
    /// The path before `/NAME/manifests/…`.
    pub path: String,
    pub resolve: bool,
    pub pull: bool,
    /// Whether this host is the registry itself: credentials are sent to no other host.
    pub origin: bool,
    /// Whether the host may use plain HTTP or TLS, because neither is configured.
    pub detect_protocol: bool,
    pub ca_files: Vec<PathBuf>,
    /// The paths of certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    pub skip_verify: bool,
    pub headers: Vec<(String, String)>,
}

/// The hosts of a registry's images, in the order in which they are tried; the registry itself is the last.
pub(crate) fn hosts(registry: &str, directories: &[PathBuf]) -> Result<Vec<Host>> {
    for directory in directories {
        for name in directory_names(registry) {
            let directory = directory.join(name);
            let file = directory.join("hosts.toml");
            if let Ok(text) = std::fs::read_to_string(&file) {
                return read(registry, &text, &directory)
                    .map_err(|error| Error::Hosts { path: file.clone(), why: error.to_string() });
            }
            if directory.is_dir() {
                return Ok(vec![with_certificates(origin(registry)?, &directory)]);
            }
        }
    }
    Ok(vec![origin(registry)?])
}

/// A directory name cannot contain a colon everywhere. `_default` is for all registries without a directory.
fn directory_names(registry: &str) -> Vec<String> {
    let mut names = vec![registry.to_owned()];
    if let Some((host, port)) = registry.rsplit_once(':') {
        names.push(format!("{host}_{port}_"));
    }
    names.push("_default".to_owned());
    names
}

/// The registry's own address. Without configuration, plain HTTP is only used on this machine.
fn origin(registry: &str) -> Result<Host> {
    let address = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
    let parse = |scheme| Target::parse(&format!("{scheme}://{address}"));
    let target =
        parse("https").map_err(|_| Error::Registry { host: registry.to_owned(), why: "invalid address".to_owned() })?;
    let local = is_loopback(&target.host);
    let target = if local && target.port == 80 { parse("http").unwrap_or(target) } else { target };
    let detect_protocol = local && target.tls;
    Ok(Host { detect_protocol, ..Host::of(target, "/v2") })
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Host {
    fn of(target: Target, path: &str) -> Host {
        Host {
            target,
            path: path.to_owned(),
            resolve: true,
            pull: true,
            origin: true,
            detect_protocol: false,
            ca_files: Vec::new(),
            identity: None,
            skip_verify: false,
            headers: Vec::new(),
        }
    }
}

/// As in Docker: every `.crt` is a CA, a `.cert` and a `.key` with the same name are the client certificate.
fn with_certificates(host: Host, directory: &Path) -> Host {
    let Ok(read) = std::fs::read_dir(directory) else { return host };
    let mut files: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let ends = |path: &&PathBuf, end: &str| path.extension().is_some_and(|extension| extension == end);
    let ca_files = files.iter().filter(|path| ends(path, "crt")).cloned().collect();
    let identity =
        files.iter().filter(|path| ends(path, "cert")).map(|cert| (cert.clone(), cert.with_extension("key")));
    Host { ca_files, identity: identity.into_iter().find(|(_, key)| key.exists()), ..host }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    ca: OneOrMany,
    #[serde(default)]
    client: Client,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    #[serde(default)]
    header: BTreeMap<String, OneOrMany>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    #[default]
    None,
    One(String),
    All(Vec<String>),
}

impl OneOrMany {
    fn all(self) -> Vec<String> {
        match self {
            OneOrMany::None => Vec::new(),
            OneOrMany::One(one) => vec![one],
            OneOrMany::All(all) => all,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Client {
    #[default]
    None,
    Pairs(Vec<[String; 2]>),
    Both(String),
}

/// The top-level fields are the registry's own entry. The `host` tables come before it, in the order of the file.
#[derive(Debug, Deserialize)]
struct File {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    rest: toml::Table,
}

/// Why a hosts.toml is refused.
#[derive(Debug, thiserror::Error)]
enum HostsError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error("{}", .0.message())]
    Entry(#[source] toml::de::Error),
    #[error("host {url:?}: {source}")]
    Host { url: String, source: Box<HostsError> },
    #[error("server: {0}")]
    Server(#[source] Box<HostsError>),
    #[error("{0}")]
    Address(String),
    #[error("capabilities: {0:?} is not one of pull, resolve and push")]
    Capability(String),
    #[error(transparent)]
    Origin(#[from] Error),
}

fn read(registry: &str, text: &str, directory: &Path) -> Result<Vec<Host>, HostsError> {
    let file: File = toml::from_str(text)?;
    let order = order(text);
    let mut named: Vec<(String, toml::Value)> = file.host.into_iter().collect();
    named.sort_by_key(|(name, _)| order.iter().position(|other| other == name));
    let mut hosts = Vec::new();
    for (url, value) in named {
        let in_host = |error: HostsError| HostsError::Host { url: url.clone(), source: Box::new(error) };
        let entry: Entry = value.try_into().map_err(|error| in_host(HostsError::Entry(error)))?;
        hosts.push(host(&url, entry, directory, registry).map_err(in_host)?);
    }
    let entry: Entry = file.rest.try_into().map_err(HostsError::Entry)?;
    let own = match &file.server {
        Some(url) => host(url, entry, directory, registry).map_err(|error| HostsError::Server(Box::new(error)))?,
        None => {
            let own = origin(registry)?;
            let scheme = if own.target.tls { "https" } else { "http" };
            let detect_protocol = own.detect_protocol;
            let url = format!("{scheme}://{}", own.target.authority());
            Host { detect_protocol, ..host(&url, entry, directory, registry)? }
        }
    };
    hosts.push(Host { origin: true, ..own });
    Ok(hosts)
}

/// The names of the `host` tables in the order of the file, which the parsed table does not keep.
fn order(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("[host.")?.trim_start_matches(['"', '\'']);
        Some(name[..name.find(['"', '\''])?].to_owned())
    });
    names.collect()
}

fn host(url: &str, entry: Entry, directory: &Path, registry: &str) -> Result<Host, HostsError> {
    // As in containerd, a host without a scheme uses HTTPS.
    let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let (target, path) = Target::with_path(&url).map_err(|error| HostsError::Address(error.to_string()))?;
    let path = path.trim_end_matches('/');
    let path = if entry.override_path || path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") };
    let capabilities = entry.capabilities.unwrap_or_else(|| vec!["pull".to_owned(), "resolve".to_owned()]);
    if let Some(unknown) = capabilities.iter().find(|one| !matches!(one.as_str(), "pull" | "resolve" | "push")) {
        return Err(HostsError::Capability(unknown.clone()));
    }
    let has = |name: &str| capabilities.iter().any(|one| one == name);
    let identity = match entry.client {
        Client::None => None,
        Client::Both(file) => Some((directory.join(&file), directory.join(&file))),
        Client::Pairs(pairs) => pairs.first().map(|[cert, key]| (directory.join(cert), directory.join(key))),
    };
    let header = |(name, values): (String, OneOrMany)| values.all().into_iter().map(move |value| (name.clone(), value));
    let origin = target == origin(registry)?.target;
    Ok(Host {
        path,
        resolve: has("resolve"),
        pull: has("pull"),
        origin,
        ca_files: entry.ca.all().into_iter().map(|file| directory.join(file)).collect(),
        identity,
        skip_verify: entry.skip_verify,
        headers: entry.header.into_iter().flat_map(header).collect(),
        ..Host::of(target, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(registry: &str, text: &str) -> Vec<String> {
        match read(registry, text, Path::new("/c")) {
            Ok(hosts) => hosts.iter().map(line).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    fn line(host: &Host) -> String {
        let scheme = if host.target.tls { "https" } else { "http" };
        let mut line = format!("{scheme}://{}{}", host.target.authority(), host.path);
        let marks =
            [(host.origin, "origin"), (host.resolve, "resolve"), (host.pull, "pull"), (host.skip_verify, "skip")];
        for (_, mark) in marks.iter().filter(|(set, _)| *set) {
            line.push(' ');
            line.push_str(mark);
        }
        host.ca_files.iter().for_each(|path| line.push_str(&format!(" {}", path.display())));
        host.headers.iter().for_each(|(name, value)| line.push_str(&format!(" {name}:{value}")));
        line
    }

    #[test]
    fn keeps_the_order_of_the_file() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("docker.io", "", &["https://registry-1.docker.io/v2 origin resolve pull"]),
            (
                "docker.io",
                "server = \"https://docker.io\"\n[host.\"https://z.example\"]\n[host.\"http://a.example:5000/x\"]\n\
                 capabilities = [\"pull\"]\nskip_verify = true\nca = [\"one.pem\", \"/two.pem\"]\n\
                 [host.\"http://a.example:5000/x\".header]\nx-a = \"1\"\n",
                &[
                    "https://z.example/v2 resolve pull",
                    "http://a.example:5000/x/v2 pull skip /c/one.pem /two.pem x-a:1",
                    "https://docker.io/v2 origin resolve pull",
                ],
            ),
            ("r.example", "ca = \"x.pem\"\n", &["https://r.example/v2 origin resolve pull /c/x.pem"]),
            ("r.example", "server = \"http://r.example:81\"\n", &["http://r.example:81/v2 origin resolve pull"]),
            (
                "r.example",
                "[host.\"https://m.example/a/v2/b\"]\noverride_path = true\n",
                &["https://m.example/a/v2/b resolve pull", "https://r.example/v2 origin resolve pull"],
            ),
        ];
        for (registry, text, expected) in cases {
            assert_eq!(lines(registry, text), *expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_field() {
        let cases: &[(&str, &str)] = &[
            ("server = 5", "server"),
            ("servr = \"x\"", "servr"),
            ("[host.\"ftp://x\"]", "ftp://x"),
            ("[host.\"https://x\"]\ncapabilities = [\"fly\"]", "\"fly\""),
            ("[host.\"https://x\"]\nskip_verify = \"yes\"", "https://x"),
            ("[host.\"https://x\"]\nskip_verfy = true", "skip_verfy"),
            ("x", "line 1"),
        ];
        for (text, expected) in cases {
            let found = lines("r.example", text);
            assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
        }
    }

    #[test]
    fn uses_plain_http_only_for_this_machine() {
        let cases = [
            ("localhost:5000", true, true),
            ("127.0.0.1:5000", true, true),
            ("[::1]:5000", true, true),
            ("127.0.0.1:80", false, false),
            ("10.0.0.1:5000", true, false),
            ("localhost.example.com", true, false),
            ("127.example.com", true, false),
        ];
        for (registry, tls, detect_protocol) in cases {
            let host = origin(registry).unwrap();
            assert_eq!((host.target.tls, host.detect_protocol), (tls, detect_protocol), "{registry}");
        }
    }
}
