//! The servers of a cluster as a node knows them: from its flag, from an earlier start, and from the endpoints of the
//! `kubernetes` Service.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use api::{Tree, tree};
use server::outbound::callout::Url;

use crate::error::{Error, Result};
use crate::machine::files::write_private;

const FILE: &str = "servers.json";
/// More servers are ignored.
const MAX_SERVERS: usize = 64;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerAddress {
    /// A name or an IP address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl ServerAddress {
    /// The address of `https://HOST:PORT`.
    pub(crate) fn of_url(url: &str) -> Result<ServerAddress> {
        let wrong = |why: &dyn fmt::Display| Error::Flags(vec![format!("--server: {url:?}: {why}")]);
        let parsed = Url::parse(url).map_err(|why| wrong(&why))?;
        if !parsed.tls || !matches!(parsed.path.as_str(), "" | "/") {
            return Err(wrong(&"it must be https://HOST:PORT"));
        }
        Ok(ServerAddress { host: parsed.host.trim_matches(['[', ']']).to_string(), port: parsed.port })
    }
}

/// The addresses in the EndpointSlices of the `kubernetes` Service. Addresses that only their own machine reaches are
/// left out.
pub(super) fn of_slices<'a>(slices: impl Iterator<Item = &'a Tree>) -> BTreeSet<ServerAddress> {
    let mut found = BTreeSet::new();
    for slice in slices.filter(|slice| ["IPv4", "IPv6"].contains(&slice.str("addressType"))) {
        let port = slice.list("ports").iter().find(|port| ["https", ""].contains(&port.str("name")));
        let Some(port) = port.and_then(|port| u16::try_from(port.int("port")?).ok()) else { continue };
        let ready =
            slice.list("endpoints").iter().filter(|endpoint| endpoint.at("conditions.ready").as_bool() != Some(false));
        let hosts = ready.flat_map(|endpoint| endpoint.list("addresses")).filter_map(Tree::as_str);
        let usable = hosts.filter(|host| host.parse::<std::net::IpAddr>().is_ok_and(|ip| !ip.is_loopback()));
        found.extend(usable.map(|host| ServerAddress { host: host.to_string(), port }));
    }
    found.into_iter().take(MAX_SERVERS).collect()
}

/// The servers that a data directory keeps, for the next start.
#[derive(Debug, Clone)]
pub(super) struct ServerFile(PathBuf);

impl ServerFile {
    pub(super) fn of(data_dir: &Path) -> ServerFile {
        ServerFile(data_dir.join(FILE))
    }

    /// A file that cannot be read names no servers: that of the flag is enough.
    pub(super) fn read(&self) -> BTreeSet<ServerAddress> {
        let object: Tree =
            std::fs::read(&self.0).ok().and_then(|bytes| api::json::decode(&bytes).ok()).unwrap_or_default();
        let servers = object.list("servers").iter().take(MAX_SERVERS);
        let server = |server: &Tree| {
            let port = u16::try_from(server.int("port")?).ok()?;
            Some(ServerAddress { host: server.str("host").to_string(), port })
        };
        servers.filter_map(server).collect()
    }

    pub(super) fn write(&self, servers: &BTreeSet<ServerAddress>) -> Result<()> {
        let server =
            |server: &ServerAddress| tree! { "host" => server.host.as_str(), "port" => i64::from(server.port) };
        let servers: Vec<Tree> = servers.iter().map(server).collect();
        let text = api::json::encode(&tree! { "servers" => servers }, None);
        write_private(&self.0, &String::from_utf8_lossy(&text))
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn server(host: &str, port: u16) -> ServerAddress {
        ServerAddress { host: host.to_string(), port }
    }

    #[test]
    fn reads_servers_from_urls() {
        let check = |url: &str, want: Option<ServerAddress>| assert_eq!(ServerAddress::of_url(url).ok(), want, "{url}");
        check("https://10.0.0.1:6443", Some(server("10.0.0.1", 6443)));
        check("https://[fd00::1]:6443/", Some(server("fd00::1", 6443)));
        check("https://api.example", Some(server("api.example", 443)));
        check("http://10.0.0.1:6443", None);
        check("https://10.0.0.1:6443/x", None);
        assert_eq!(server("fd00::1", 1).to_string(), "[fd00::1]:1");
    }

    #[test]
    fn reads_servers_from_endpoint_slices() {
        let endpoint = |ip: &str, ready: bool| {
            tree! { "addresses" => list![ip], "conditions" => tree! { "ready" => ready } }
        };
        let slice = tree! {
            "addressType" => "IPv4",
            "ports" => list![tree! { "name" => "https", "port" => 6443 }],
            "endpoints" => list![
                endpoint("10.0.0.2", true), endpoint("10.0.0.1", true), endpoint("10.0.0.3", false),
                endpoint("127.0.0.1", true), endpoint("no address", true),
            ],
        };
        let names = tree! { "addressType" => "FQDN", "endpoints" => list![endpoint("a", true)] };
        let found = of_slices([&slice, &names].into_iter());
        assert_eq!(found, BTreeSet::from([server("10.0.0.1", 6443), server("10.0.0.2", 6443)]));
    }

    #[test]
    fn keeps_servers_for_the_next_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = ServerFile::of(dir.path());
        assert!(file.read().is_empty());
        let servers = BTreeSet::from([server("10.0.0.1", 6443), server("fd00::1", 1)]);
        file.write(&servers).expect("written");
        assert_eq!(file.read(), servers);
        std::fs::write(dir.path().join(FILE), "damaged").expect("a file");
        assert!(file.read().is_empty());
    }
}
