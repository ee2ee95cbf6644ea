//! The OpenAPI v2 and v3 documents of extension API servers. They are kept while a server is unavailable.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Tree, json};
use bytes::Bytes;
use http::Method;
use stdx::sync::Mutex;

use super::availability::{DiscoveryError, TIMEOUT};
use super::{Aggregator, ApiService};
use crate::outbound::callout::Url;
use crate::outbound::user_headers::user_headers;
use kinds::User;

/// The documents of one APIService.
#[derive(Default, Clone)]
pub(crate) struct ExtensionDocuments {
    /// The group version's part of the v2 document, and its hash.
    pub v2: Option<(String, Arc<Tree>)>,
    /// The v3 document as JSON, under the hash that the extension API server gives it.
    pub v3: Option<(String, Bytes)>,
}

#[derive(Default)]
pub(super) struct OpenApi {
    /// The documents by the name of the APIService.
    documents: Mutex<HashMap<String, ExtensionDocuments>>,
}

impl OpenApi {
    pub(super) fn get(&self, name: &str) -> ExtensionDocuments {
        self.documents.lock().get(name).cloned().unwrap_or_default()
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut ExtensionDocuments)) {
        change(self.documents.lock().entry(name.to_string()).or_default());
    }

    /// Drops the documents of all other APIServices.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.documents.lock().retain(|name, _| is_known(name));
    }
}

/// Reads the documents of an extension API server. If it has none, or the request fails, the cached documents stay.
pub(super) async fn refresh(aggregator: &Aggregator, service: &ApiService) {
    if let Err(error) = refresh_v2(aggregator, service).await {
        tracing::debug!(apiservice = service.name, %error, "OpenAPI v2 of an extension API server cannot be read");
    }
    match refresh_v3(aggregator, service).await {
        Ok(()) => {}
        Err(DiscoveryError::Code { code: 404, .. }) => convert_v2(aggregator, service),
        Err(error) => {
            tracing::debug!(apiservice = service.name, %error, "OpenAPI v3 of an extension API server cannot be read");
        }
    }
}

/// The v3 document of an extension API server that only has v2.
fn convert_v2(aggregator: &Aggregator, service: &ApiService) {
    let known = aggregator.openapi.get(&service.name);
    let Some((hash, document)) = known.v2 else { return };
    if known.v3.is_none_or(|(known, _)| known != hash) {
        let converted = Bytes::from(json::encode(&::openapi::convert_to_v3(&document), None));
        aggregator.openapi.update(&service.name, |known| known.v3 = Some((hash, converted)));
    }
}

async fn refresh_v3(aggregator: &Aggregator, service: &ApiService) -> Result<(), DiscoveryError> {
    let index = get(aggregator, service, "/openapi/v3").await?;
    let name = format!("apis/{}/{}", service.group, service.version);
    let index = json::decode(&index).unwrap_or_default();
    let Some(hash) = index.map("paths").get(&name).and_then(|path| hash_of(path.str("serverRelativeURL"))) else {
        return Ok(());
    };
    let known = aggregator.openapi.get(&service.name).v3;
    if known.is_some_and(|(known, _)| known == hash) {
        return Ok(());
    }
    let document = get(aggregator, service, &format!("/openapi/v3/{name}")).await?;
    if json::decode(&document).is_ok_and(|tree| matches!(tree, Tree::Map(_))) {
        aggregator.openapi.update(&service.name, |known| known.v3 = Some((hash, document)));
    }
    Ok(())
}

/// The hash in a document's URL, if our own URL can contain it.
fn hash_of(url: &str) -> Option<String> {
    let (_, hash) = url.split_once("?hash=")?;
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_plain = !hash.is_empty() && hash.len() <= 128 && hash.bytes().all(is_unreserved);
    is_plain.then(|| hash.to_string())
}

async fn refresh_v2(aggregator: &Aggregator, service: &ApiService) -> Result<(), DiscoveryError> {
    let document = get(aggregator, service, "/openapi/v2").await?;
    let hash = ::openapi::etag(&document);
    let known = aggregator.openapi.get(&service.name).v2;
    if known.is_some_and(|(known, _)| known == hash) {
        return Ok(());
    }
    if let Ok(tree @ Tree::Map(_)) = json::decode(&document) {
        let mut own = ::openapi::restrict(&tree, &service.group, &service.version);
        own.set("info", tree.at("info").clone());
        aggregator.openapi.update(&service.name, |known| known.v2 = Some((hash, Arc::new(own))));
    }
    Ok(())
}

async fn get(aggregator: &Aggregator, service: &ApiService, path: &str) -> Result<Bytes, DiscoveryError> {
    let address = aggregator.resolve(&service.service)?;
    let url = format!("https://{address}{path}");
    let client = aggregator.client(service)?;
    let user = User { name: "system:aggregator".to_string(), ..User::default() };
    let mut headers = user_headers(&user)?;
    headers.push((http::header::ACCEPT, http::HeaderValue::from_static("application/json")));
    match client.send_request(Method::GET, &Url::parse(&url)?, &headers, Vec::new(), TIMEOUT).await {
        Ok(response) if response.is_success() => Ok(response.body),
        Ok(response) => Err(DiscoveryError::Code { url, code: response.code }),
        Err(source) => Err(DiscoveryError::NoResponse { url, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_plain_hashes() {
        for hash in ["ABC", "0.1.0", "a_b-c~"] {
            assert_eq!(hash_of(&format!("/openapi/v3/apis/x/v1?hash={hash}")).as_deref(), Some(hash));
        }
        for url in ["", "/openapi/v3/apis/x/v1", "/x?hash=", "/x?hash=a&b=c", "/x?hash=a%20b"] {
            assert_eq!(hash_of(url), None, "{url}");
        }
    }

    #[test]
    fn documents_of_removed_services_are_dropped() {
        let openapi = OpenApi::default();
        openapi.update("a", |known| known.v3 = Some(("1".to_string(), Bytes::from_static(b"{}"))));
        openapi.retain(|name| name == "a");
        assert!(openapi.get("a").v3.is_some());
        openapi.retain(|_| false);
        assert!(openapi.get("a").v3.is_none());
    }
}
