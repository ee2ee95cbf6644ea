//! Version skew between a component and the API server, by upstream's policy: a component is never newer than the server,
//! and at most some minor versions older.

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

/// Why a component does not work with a server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Skew {
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
    let Some((own, server)) = own_minor().zip(minor(&version)) else { return Ok(()) };
    compare(component, own, server, allowed).map_err(|skew| Error::Flags(vec![skew.to_string()]))
}

/// Of `v1.37.0+…`.
fn own_minor() -> Option<u32> {
    server::routes::openapi::VERSION.split('.').nth(1)?.parse().ok()
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
    fn versions_of_distributions_are_read() {
        let read = |major: &str, text: &str| minor(&tree! { "major" => major, "minor" => text });
        assert_eq!((read("1", "37"), read("1", "36+"), read("2", "1"), read("", "")), (Some(37), Some(36), None, None));
        assert_eq!(own_minor(), Some(37));
    }
}
