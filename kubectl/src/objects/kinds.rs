//! Sources besides files: a kustomization, and documents of web servers.

use std::path::Path;
use std::sync::Arc;

use api::Tree;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use http_client::{Address, Trust, tls};

use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::kubeconfig::ServerUrl;

/// The largest document of a web server.
const MAX_BODY: usize = 256 * 1024 * 1024;
const MAX_REDIRECTS: usize = 10;

/// The objects that a kustomization directory describes.
pub(super) fn kustomize(context: &Context, directory: &str) -> Result<Vec<Tree>> {
    let built = kustomize::build(&kustomize::Disk, Path::new(directory), kustomize::Options::default());
    let built = built.map_err(|error| Error::new(error.to_string()))?;
    built.warnings.iter().for_each(|warning| context.note(&format!("# Warning: {warning}")));
    Ok(built.resources)
}

/// Reads a document from a web server.
pub(super) async fn fetch(url: &str) -> Result<Vec<u8>> {
    let mut url = url.to_string();
    for _ in 0..MAX_REDIRECTS {
        let (code, location, body) = fetch_once(&url).await?;
        match (code.as_u16(), location) {
            (200, _) => return Ok(body.to_vec()),
            (301 | 302 | 303 | 307 | 308, Some(to)) => url = resolve(&url, &to)?,
            _ => {
                return message(format!(
                    "unable to read URL \"{url}\", server reported {code}, status code={}",
                    code.as_u16()
                ));
            }
        }
    }
    message(format!("unable to read URL \"{url}\": stopped after {MAX_REDIRECTS} redirects"))
}

fn resolve(base: &str, location: &str) -> Result<String> {
    if location.contains("://") {
        return Ok(location.to_string());
    }
    let server = ServerUrl::parse(base)?;
    let scheme = if server.is_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{}/{}", server.authority(), location.trim_start_matches('/')))
}

async fn fetch_once(url: &str) -> Result<(http::StatusCode, Option<String>, Bytes)> {
    let server = ServerUrl::parse(url)?;
    let failed = |error: &dyn std::error::Error| Error::new(format!("Get \"{url}\": {}", stdx::error::chain(error)));
    let trust = if server.is_tls { Trust::System } else { Trust::InsecureSkipVerify };
    let config = tls::config(&trust, None, &[tls::HTTP1]).map_err(|error| failed(&error))?;
    let address = Address::new(server.is_tls, &server.host, server.port);
    let stream = http_client::connect(&address, &Arc::new(config)).await.map_err(|error| failed(&error))?;
    let mut request = Request::new(Full::new(Bytes::new()));
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    *request.uri_mut() = path.parse().map_err(|_| Error::new(format!("invalid URL {url:?}")))?;
    let host = HeaderValue::from_str(&server.authority()).map_err(|error| failed(&error))?;
    request.headers_mut().insert(header::HOST, host);
    let response = http_client::send_once(stream, request).await.map_err(|error| failed(&error))?;
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_string);
    let code = response.status();
    let body = http_client::body::read(response.into_body(), MAX_BODY).await.map_err(|error| failed(&error))?;
    Ok((code, location, body))
}
