//! The connection that a kubeconfig and flags describe.

use std::path::{Path, PathBuf};

use api::Tree;

use super::{Config, Section};
use crate::error::{Error, Result, message};

/// Where the service account of a pod is mounted.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Flags that replace fields of the kubeconfig.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) context: String,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) namespace: String,
    pub(crate) server: String,
    pub(crate) tls_server_name: String,
    pub(crate) insecure: Option<bool>,
    pub(crate) certificate_authority: String,
    pub(crate) client_certificate: String,
    pub(crate) client_key: String,
    pub(crate) token: String,
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) disable_compression: Option<bool>,
    pub(crate) impersonation: Impersonation,
}

/// Acting as another user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    pub(crate) user: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: Vec<(String, String)>,
}

/// An exec credential plugin, or an OpenID provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exec {
    pub(crate) spec: Tree,
    /// Commands with a path are relative to the kubeconfig.
    pub(crate) directory: PathBuf,
}

/// The parts of a server's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// A prefix of all paths, without a slash at its end.
    pub(crate) path: String,
}

/// Everything that a client needs to connect.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) server: ServerUrl,
    pub(crate) tls_server_name: String,
    pub(crate) insecure: bool,
    pub(crate) certificate_authority: Option<Vec<u8>>,
    /// Certificate and key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) token: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) basic: Option<(String, String)>,
    pub(crate) exec: Option<Exec>,
    pub(crate) auth_provider: Tree,
    /// The name of the user's entry, for the write-back of refreshed tokens.
    pub(crate) user: String,
    pub(crate) cluster: Tree,
    pub(crate) proxy: String,
    pub(crate) impersonation: Impersonation,
    pub(crate) compression: bool,
    pub(crate) namespace: String,
}

impl ServerUrl {
    /// Parses `https://host:port/path`, `host:port` or `host`.
    pub(crate) fn parse(text: &str) -> Result<ServerUrl> {
        let invalid = || Error::new(format!("unable to parse \"{text}\" as a server URL"));
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(invalid()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_port(authority).ok_or_else(invalid)?;
        if host.is_empty() {
            return Err(Error::new("host must be a URL or a host:port pair: \"\"".to_string()));
        }
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/').to_string();
        Ok(ServerUrl { is_tls, host: host.to_string(), port, path })
    }

    /// `host:port`, without the port if it is the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.is_tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }

    /// The whole URL.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// Host and port of `host`, `host:port`, `[v6]:port`.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => Some((host, None)),
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
        None => Some((authority, None)),
    }
}

/// Resolves the context, its cluster and its user, and applies the flags.
pub(crate) fn connection(config: &Config, flags: &Overrides) -> Result<Connection> {
    if config.is_empty()
        && flags.server.is_empty()
        && let Some(connection) = in_cluster(flags)?
    {
        return Ok(connection);
    }
    let context = context(config, flags)?;
    let named =
        |flag: &str, field: &str| if flag.is_empty() { context.str(field).to_string() } else { flag.to_string() };
    let (cluster_name, user_name) = (named(&flags.cluster, "cluster"), named(&flags.user, "user"));
    let cluster = entry(config, Section::Clusters, &cluster_name, !flags.cluster.is_empty(), "cluster")?;
    let user = entry(config, Section::Users, &user_name, !flags.user.is_empty(), "auth info")?;
    let mut connection = base(flags, &cluster)?;
    connection.namespace = named(&flags.namespace, "namespace");
    if connection.namespace.is_empty() {
        connection.namespace = "default".to_string();
    }
    let origin = config.entries.get(&(Section::Users, user_name.clone())).map(|entry| entry.origin.clone());
    connection.user = user_name;
    set_credentials(&mut connection, &user, flags)?;
    if !user.at("exec").is_null() && flags.token.is_empty() {
        let directory = origin.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_path_buf();
        connection.exec = Some(Exec { spec: user.at("exec").clone(), directory });
    }
    Ok(connection)
}

fn context(config: &Config, flags: &Overrides) -> Result<Tree> {
    let name = if flags.context.is_empty() { &config.current_context } else { &flags.context };
    match config.get(Section::Contexts, name) {
        Some(context) => Ok(context.clone()),
        None if name.is_empty() => Ok(Tree::Null),
        None => {
            Err(Error::Plain(format!("Error in configuration: context was not found for specified context: {name}")))
        }
    }
}

fn entry(config: &Config, section: Section, name: &str, is_flag: bool, noun: &str) -> Result<Tree> {
    match config.get(section, name) {
        Some(entry) => Ok(entry.clone()),
        None if is_flag => message(format!("{noun} \"{name}\" does not exist")),
        None => Ok(Tree::Null),
    }
}

fn base(flags: &Overrides, cluster: &Tree) -> Result<Connection> {
    let server = if flags.server.is_empty() { cluster.str("server") } else { &flags.server };
    let server = ServerUrl::parse(if server.is_empty() { "http://localhost:8080" } else { server })?;
    let from =
        |flag: &str, field: &str| if flag.is_empty() { cluster.str(field).to_string() } else { flag.to_string() };
    let insecure = flags.insecure.unwrap_or_else(|| cluster.bool("insecure-skip-tls-verify"));
    let authority = data_or_file(cluster, "certificate-authority", &flags.certificate_authority)?;
    if insecure && authority.is_some() && flags.insecure.is_none() {
        return message("specifying a root certificates file with the insecure flag is not allowed".to_string());
    }
    Ok(Connection {
        server,
        tls_server_name: from(&flags.tls_server_name, "tls-server-name"),
        insecure,
        certificate_authority: authority.filter(|_| !insecure),
        identity: None,
        token: String::new(),
        token_file: None,
        basic: None,
        exec: None,
        auth_provider: Tree::Null,
        user: String::new(),
        cluster: cluster.clone(),
        proxy: cluster.str("proxy-url").to_string(),
        impersonation: Impersonation::default(),
        compression: !flags.disable_compression.unwrap_or_else(|| cluster.bool("disable-compression")),
        namespace: String::new(),
    })
}

fn set_credentials(connection: &mut Connection, user: &Tree, flags: &Overrides) -> Result<()> {
    let certificate = data_or_file(user, "client-certificate", &flags.client_certificate)?;
    let key = data_or_file(user, "client-key", &flags.client_key)?;
    connection.identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return message(format!(
                "client-key-data or client-key must be specified for {} to use the clientCert authentication method",
                connection.user
            ));
        }
        (None, Some(_)) => None,
    };
    let text = |flag: &str, field: &str| if flag.is_empty() { user.str(field).to_string() } else { flag.to_string() };
    connection.token = text(&flags.token, "token");
    if flags.token.is_empty() && !user.str("tokenFile").is_empty() {
        connection.token_file = Some(PathBuf::from(user.str("tokenFile")));
        connection.token = String::new();
    }
    let (name, password) = (text(&flags.username, "username"), text(&flags.password, "password"));
    let has_token = !connection.token.is_empty() || connection.token_file.is_some();
    connection.basic = (!name.is_empty() && !has_token).then_some((name, password));
    if flags.token.is_empty() {
        connection.auth_provider = user.at("auth-provider").clone();
    }
    connection.impersonation = impersonation(user, &flags.impersonation);
    Ok(())
}

fn impersonation(user: &Tree, flags: &Impersonation) -> Impersonation {
    let texts = |list: &[Tree]| list.iter().filter_map(Tree::as_str).map(str::to_string).collect::<Vec<_>>();
    let text = |flag: &str, field: &str| if flag.is_empty() { user.str(field).to_string() } else { flag.to_string() };
    let extra = user.map("as-user-extra").iter().flat_map(|(key, values)| {
        texts(values.as_list().unwrap_or_default()).into_iter().map(move |value| (key.to_string(), value))
    });
    Impersonation {
        user: text(&flags.user, "as"),
        uid: text(&flags.uid, "as-uid"),
        groups: if flags.groups.is_empty() { texts(user.list("as-groups")) } else { flags.groups.clone() },
        extra: if flags.extra.is_empty() { extra.collect() } else { flags.extra.clone() },
    }
}

/// `NAME-data` in base64, or the file `NAME`; a flag with a file wins.
fn data_or_file(entry: &Tree, field: &str, flag: &str) -> Result<Option<Vec<u8>>> {
    let read = |path: &str| match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => {
            message(format!("unable to read {field} {path} due to open {path}: {}", crate::error::io_text(&error)))
        }
    };
    if !flag.is_empty() {
        return read(flag);
    }
    match (entry.str(&format!("{field}-data")), entry.str(field)) {
        ("", "") => Ok(None),
        ("", path) => read(path),
        (data, _) => match api::base64::decode(data) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => message(format!("{field}-data is not base64: {error}")),
        },
    }
}

/// The service account of the pod in which the command runs.
fn in_cluster(flags: &Overrides) -> Result<Option<Connection>> {
    let (Ok(host), Ok(port)) = (std::env::var("KUBERNETES_SERVICE_HOST"), std::env::var("KUBERNETES_SERVICE_PORT"))
    else {
        return Ok(None);
    };
    let directory = Path::new(SERVICE_ACCOUNT);
    let token_file = directory.join("token");
    if host.is_empty() || !token_file.exists() {
        return Ok(None);
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let overrides = Overrides { server: format!("https://{host}:{port}"), ..flags.clone() };
    let mut connection = base(&overrides, &Tree::Null)?;
    if connection.certificate_authority.is_none() && !connection.insecure {
        connection.certificate_authority = std::fs::read(directory.join("ca.crt")).ok();
    }
    set_credentials(&mut connection, &Tree::Null, flags)?;
    if connection.token.is_empty() {
        connection.token_file = Some(token_file);
    }
    let own = std::fs::read_to_string(directory.join("namespace")).unwrap_or_default();
    let namespace = if flags.namespace.is_empty() { own.trim() } else { &flags.namespace };
    connection.namespace = if namespace.is_empty() { "default".to_string() } else { namespace.to_string() };
    Ok(Some(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_server_urls() {
        let check =
            |text: &str, url: &str| assert_eq!(ServerUrl::parse(text).map(|url| url.url()).ok(), Some(url.into()));
        check("https://a:6443/", "https://a:6443");
        check("https://a", "https://a");
        check("a:80", "http://a");
        check("https://[::1]:6443/k8s/x/", "https://[::1]:6443/k8s/x");
        check("http://localhost:8080", "http://localhost:8080");
        assert!(ServerUrl::parse("ftp://a").is_err());
        assert!(ServerUrl::parse("https://a:b").is_err());
    }
}
