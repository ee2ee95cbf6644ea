//! Version skew between a component and the API server, and between API servers, by upstream's policy: a component is never
//! newer than the server, and at most some minor versions older; servers differ by one minor version at most.

use std::time::Duration;

use api::Tree;
use client::Client;

use crate::error::{Error, Result};

/// A server that does not respond yet is no reason against the start.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many minor versions older than the server a kubelet or a service proxy may be.
pub(crate) const NODE_VERSIONS: u32 = 3;
/// The same for controllers and scheduler.
pub(crate) const CONTROL_PLANE_VERSIONS: u32 = 1;

/// How many minor versions the servers of a control plane may differ.
const SERVER_VERSIONS: u32 = 1;

/// Why a component does not work with a server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Skew {
    #[error(
        "this server is of Kubernetes 1.{own}, and the one at {address} of 1.{other}: servers of a control plane may \
         differ by one minor version, upgrade them one after the other to each version between"
    )]
    Servers { own: u32, other: u32, address: String },
    #[error(
        "{component} of Kubernetes 1.{own} is newer than the API server, which is 1.{server}: upgrade the API server first"
    )]
    Newer { component: &'static str, own: u32, server: u32 },
    #[error(
        "{component} of Kubernetes 1.{own} is more than {allowed} minor versions older than the API server, which is \
         1.{server}: upgrade this component first"
    )]
    Older { component: &'static str, own: u32, server: u32, allowed: u32 },
}

/// Refuses to start a component that does not work with the server.
pub(crate) async fn check_server(client: &Client, component: &'static str, allowed: u32) -> Result<()> {
    let version = tokio::time::timeout(TIMEOUT, client.get_path("/version", "")).await;
    let Ok(Ok(version)) = version else { return Ok(()) };
    let Some(server) = minor(&version) else { return Ok(()) };
    compare(component, api::version::minor(), server, allowed).map_err(|skew| Error::Flags(vec![skew.to_string()]))
}

/// The version of this server as other servers of the control plane read it: `1.37`.
pub(crate) fn own_version() -> String {
    format!("1.{}", api::version::minor())
}

/// Refuses to run beside servers of other versions, which are known by their addresses.
pub(crate) fn check_servers<'a>(others: impl Iterator<Item = (&'a str, &'a str)>) -> Result<()> {
    let minors = others.filter_map(|(address, version)| Some((address, version.strip_prefix("1.")?.parse().ok()?)));
    compare_servers(api::version::minor(), minors).map_err(|skew| Error::Flags(vec![skew.to_string()]))
}

fn compare_servers<'a>(own: u32, mut others: impl Iterator<Item = (&'a str, u32)>) -> std::result::Result<(), Skew> {
    match others.find(|(_, other)| own.abs_diff(*other) > SERVER_VERSIONS) {
        Some((address, other)) => Err(Skew::Servers { own, other, address: address.to_string() }),
        None => Ok(()),
    }
}

/// Some distributions write `37+`.
fn minor(version: &Tree) -> Option<u32> {
    (version.str("major") == "1").then(|| version.str("minor").trim_end_matches('+').parse().ok())?
}

fn compare(component: &'static str, own: u32, server: u32, allowed: u32) -> std::result::Result<(), Skew> {
    if own > server {
        return Err(Skew::Newer { component, own, server });
    }
    if server - own > allowed {
        return Err(Skew::Older { component, own, server, allowed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn components_are_never_newer_and_not_much_older() {
        let check = |own, server, allowed, want: &str| {
            let refused = compare("kubelet", own, server, allowed).err().map(|skew| skew.to_string());
            let refused = refused.unwrap_or_default();
            assert!(refused.contains(want) && refused.is_empty() == want.is_empty(), "{refused}");
        };
        check(37, 37, NODE_VERSIONS, "");
        check(37, 40, NODE_VERSIONS, "");
        check(37, 41, NODE_VERSIONS, "upgrade this component first");
        check(37, 38, CONTROL_PLANE_VERSIONS, "");
        check(37, 39, CONTROL_PLANE_VERSIONS, "more than 1 minor versions older");
        check(37, 36, NODE_VERSIONS, "upgrade the API server first");
    }

    #[test]
    fn servers_differ_by_one_minor_version_at_most() {
        let check = |own: u32, others: &[u32]| compare_servers(own, others.iter().map(|other| ("10.0.0.1", *other)));
        assert_eq!(check(37, &[]), Ok(()));
        assert_eq!(check(37, &[36, 37, 38]), Ok(()), "in both orders of an upgrade");
        for other in [35, 39] {
            let why = check(37, &[37, other]).err().map(|skew| skew.to_string()).unwrap_or_default();
            assert!(why.contains(&format!("10.0.0.1 of 1.{other}")), "{why}");
        }
        assert_eq!(own_version(), "1.37");
    }

    #[test]
    fn versions_of_distributions_are_read() {
        let read = |major: &str, text: &str| minor(&tree! { "major" => major, "minor" => text });
        assert_eq!((read("1", "37"), read("1", "36+"), read("2", "1"), read("", "")), (Some(37), Some(36), None, None));
    }
}
