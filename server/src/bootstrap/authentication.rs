//! ConfigMap kube-system/extension-apiserver-authentication: how aggregated servers verify the cluster's clients and
//! its proxy. It follows the CA bundles while they change.

use std::sync::Arc;

use api::{Tree, tree};
use tokio::sync::watch;

use super::{MANAGER, Object, edit};
use crate::Server;
use crate::authentication::{Authentication, CaBundle};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

pub(super) fn config_map(auth: &Authentication) -> Object {
    Object {
        group: "",
        version: "v1",
        plural: "configmaps",
        manager: MANAGER,
        tree: tree! {
            "kind" => "ConfigMap", "apiVersion" => "v1",
            "metadata" => tree! { "name" => NAME, "namespace" => NAMESPACE }, "data" => data(auth),
        },
    }
}

fn data(auth: &Authentication) -> Tree {
    let mut data = tree! {};
    if let Some(clients) = &auth.clients {
        data.set("client-ca-file", clients.pem());
    }
    let Some(proxies) = &auth.request_header else { return data };
    let lists = [
        ("requestheader-allowed-names", &proxies.allowed_names),
        ("requestheader-extra-headers-prefix", &proxies.names.extra_prefixes),
        ("requestheader-group-headers", &proxies.names.groups),
        ("requestheader-uid-headers", &proxies.names.uid),
        ("requestheader-username-headers", &proxies.names.username),
    ];
    for (key, names) in lists {
        let names = Tree::List(names.iter().map(Tree::from).collect());
        data.set(key, String::from_utf8_lossy(&api::json::encode(&names, None)).into_owned());
    }
    data.set("requestheader-client-ca-file", proxies.cas.pem());
    data
}

/// Writes the current CA bundles, and again whenever one changes, until the server drains.
pub(super) async fn keep(server: Arc<Server>) {
    let mut closing = server.closing.subscribe();
    let mut clients = Changes::of(server.registry.authentication.config.clients.as_ref());
    let mut proxies =
        Changes::of(server.registry.authentication.config.request_header.as_ref().map(|proxies| &proxies.cas));
    loop {
        update_config_map(&server).await;
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = clients.next() => {}
            () = proxies.next() => {}
        }
    }
}

/// The changes of a CA bundle; without a bundle it never changes.
struct Changes(Option<watch::Receiver<u64>>);

impl Changes {
    fn of(cas: Option<&CaBundle>) -> Changes {
        Changes(cas.map(CaBundle::changes))
    }

    async fn next(&mut self) {
        let changed = match &mut self.0 {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending().await
        }
    }
}

async fn update_config_map(server: &Server) {
    let stored = server.registry.storage.object("configmaps", &format!("{NAMESPACE}/{NAME}")).unwrap_or_default();
    let wanted =
        merged(data(&server.registry.authentication.config), stored.at("data"), server.registry.storage.is_shared);
    if *stored.at("data") == wanted {
        return;
    }
    let set = |map: &mut Tree| map.set("data", wanted.clone());
    if let Err(status) = edit(server, ("", "v1", "configmaps", NAMESPACE), NAME, set).await {
        tracing::warn!(message = %status.message, "failed to update ConfigMap {NAMESPACE}/{NAME}");
    }
}

/// If other servers write to the same store, the CA certificates that they have published stay.
fn merged(mut own: Tree, stored: &Tree, shared: bool) -> Tree {
    for key in ["client-ca-file", "requestheader-client-ca-file"] {
        let there = stored.get(key).and_then(Tree::as_str).unwrap_or("");
        if !shared || there.is_empty() {
            continue;
        }
        let mut bundle = own.str(key).to_string();
        for certificate in there.split_inclusive("-----END CERTIFICATE-----\n").filter(|c| c.contains("BEGIN")) {
            if !bundle.contains(certificate.trim()) {
                bundle.push_str(certificate);
            }
        }
        own.set(key, bundle);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_servers_authorities_stay_on_a_shared_store() {
        let pem = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
        let both = format!("{}{}", pem("a"), pem("b"));
        let cases = [
            (true, pem("a"), both.clone(), both.clone()),
            (true, pem("a"), String::new(), pem("a")),
            (true, pem("a"), pem("a"), pem("a")),
            (false, pem("a"), both, pem("a")),
        ];
        for (shared, own, stored, want) in cases {
            let map = |pem: &str| tree! { "client-ca-file" => pem };
            assert_eq!(merged(map(&own), &map(&stored), shared).str("client-ca-file"), want, "{shared} {stored}");
        }
    }
}
