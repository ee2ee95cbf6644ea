//! Pushes an image to a registry, for tests and benchmarks.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::super::error::{Error, Result};
use super::super::manifest::Descriptor;
use super::super::store::Store;
use super::auth::{Credentials, encode};
use super::http::{Body, Target, Timeouts, whole};
use super::proxy::Proxies;
use super::{Client, Endpoint, Reference, RegistryRequest, redirect, registry_error, resolve, successful};

const CHUNK: usize = 256 << 10;

impl Client {
    /// A client for pushes to the registry itself.
    pub(crate) fn for_push(
        reference: &Reference,
        credentials: Option<Credentials>,
        directories: &[PathBuf],
        timeouts: Timeouts,
        proxies: Proxies,
    ) -> Result<Client> {
        let mut client = Client::new(reference, credentials, directories, timeouts, proxies)?;
        client.hosts.retain(|endpoint| endpoint.host.origin);
        client.actions = "pull,push";
        Ok(client)
    }

    fn origin(&self) -> Result<&Endpoint> {
        self.hosts.last().ok_or_else(|| self.no_host())
    }

    /// Pushes a blob of the store, unless the registry has it.
    pub(crate) async fn push_blob(&self, store: &Store, blob: &Descriptor) -> Result<()> {
        let endpoint = self.origin()?;
        let path = format!("blobs/{}", blob.digest);
        let head =
            self.request(endpoint, &RegistryRequest { method: Method::HEAD, ..RegistryRequest::get(&path) }).await?;
        if head.status.is_success() {
            return Ok(());
        }
        let start = RegistryRequest { method: Method::POST, ..RegistryRequest::get("blobs/uploads/") };
        let reply = successful(endpoint, "an upload", self.request(endpoint, &start).await?).await?;
        let location = reply.header(&LOCATION).map(str::to_owned);
        reply.discard().await;
        let location =
            location.ok_or_else(|| registry_error(endpoint, "sent no location for the upload".to_owned()))?;
        let (target, path) =
            resolve(&endpoint.target(), "/", &location).map_err(|error| registry_error(endpoint, error.to_string()))?;
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}digest={}", encode(blob.digest.as_str()));
        self.upload(endpoint, &target, &path, store, blob).await
    }

    async fn upload(
        &self,
        endpoint: &Endpoint,
        target: &Target,
        path: &str,
        store: &Store,
        blob: &Descriptor,
    ) -> Result<()> {
        if *target != endpoint.target() {
            return Err(registry_error(endpoint, format!("sent an upload location at {target}")));
        }
        let file = store.blob(&blob.digest);
        let open = || -> Body { FileBody::open(&file, blob.size).boxed() };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(blob.size));
        let request = RegistryRequest { method: Method::PUT, path: "", headers, body: Some(&open) };
        let reply = self.send(endpoint, &request, path).await?;
        if redirect(&reply).is_some() {
            return Err(registry_error(endpoint, "redirected an upload".to_owned()));
        }
        successful(endpoint, "the upload", reply).await?.discard().await;
        Ok(())
    }

    pub(crate) async fn push_manifest(&self, version: &str, media_type: &str, bytes: &[u8]) -> Result<()> {
        let endpoint = self.origin()?;
        let path = format!("manifests/{version}");
        let bytes = Bytes::copy_from_slice(bytes);
        let body = move || whole(bytes.clone());
        let mut request = RegistryRequest { method: Method::PUT, body: Some(&body), ..RegistryRequest::get(&path) };
        let kind =
            HeaderValue::from_str(media_type).map_err(|_| registry_error(endpoint, "invalid media type".to_owned()))?;
        request.headers.insert(CONTENT_TYPE, kind);
        let reply = self.request(endpoint, &request).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            return Err(super::denied(endpoint, version, "invalid credentials"));
        }
        successful(endpoint, version, reply).await?.discard().await;
        Ok(())
    }
}

/// A file as a body, read in chunks. Blocking reads are acceptable for a local file.
struct FileBody {
    file: Result<File, Option<std::io::Error>>,
    left: u64,
}

impl FileBody {
    fn open(path: &std::path::Path, size: u64) -> FileBody {
        FileBody { file: File::open(path).map_err(Some), left: size }
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let file = match &mut self.file {
            Ok(file) => file,
            Err(error) => return Poll::Ready(error.take().map(Err)),
        };
        let mut chunk = vec![0; CHUNK];
        match file.read(&mut chunk) {
            Ok(0) => Poll::Ready(None),
            Ok(read) => {
                chunk.truncate(read);
                self.left = self.left.saturating_sub(read as u64);
                Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl super::super::Images {
    /// Pushes an image of the store to the registry of a reference.
    pub async fn push(&self, image: &str, reference: &str, auth: Option<Credentials>) -> Result<()> {
        let reference = Reference::parse(reference)?;
        let inner = &self.inner;
        let _busy = inner.store.busy()?;
        let known = self.known()?;
        let id = known.index.resolve(image)?.ok_or_else(|| Error::NotFound(image.to_owned()))?;
        let record = &known.index.images[id];
        let options = &inner.options;
        let (timeouts, proxies) = (options.timeouts.clone(), options.proxies.clone());
        let client = Client::for_push(&reference, auth, &options.hosts, timeouts, proxies)?;
        let bytes = inner.store.read_blob(&record.manifest.digest, super::MAX_BYTES)?;
        let config = inner.store.read_blob(id, super::MAX_BYTES)?;
        client.push_blob(&inner.store, &Descriptor::new("", id.clone(), config.len() as u64)).await?;
        for layer in &record.layers {
            client.push_blob(&inner.store, layer).await?;
        }
        let version = reference.tag().unwrap_or_else(|| record.manifest.digest.as_str());
        client.push_manifest(version, &record.manifest.media_type, &bytes).await
    }
}
