//! Static pods of a URL, which is polled: a pod, or a PodList. A response that cannot be fetched or read changes
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json, yaml};
use bytes::Bytes;
use http_body_util::Empty;
use http_client::{ConnectError, Stream, Trust, body, connect::secure, dial, tls};
use tokio::sync::watch;

use super::{MOST, SourceContent, manifest};
use crate::config::Config;
use crate::pod::worker::Workers;

const PATIENCE: Duration = Duration::from_secs(10);

/// The URL of static pods, and the headers of its requests.
pub(crate) struct Source {
    uri: http::Uri,
    headers: Vec<(String, String)>,
}

/// A source that cannot be used. The error names the field.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("staticPodURL (--manifest-url) {url:?}: {source}")]
    Url { url: String, source: http::uri::InvalidUri },
    #[error("staticPodURL (--manifest-url) {0:?}: must be an http or https URL")]
    Scheme(String),
    #[error("staticPodURLHeader (--manifest-url-header): {0}")]
    Headers(#[from] http::Error),
}

/// Static pods that cannot be fetched or read.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("found no CA bundle in {}", tls::SYSTEM_BUNDLES.join(", "))]
    NoCaBundle,
    #[error(transparent)]
    TlsConfig(#[from] tls::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Body(#[from] body::BodyError<hyper::Error>),
    #[error("it returned {0}")]
    Status(http::StatusCode),
    #[error("the request timed out")]
    Timeout,
}

/// A response that has no static pods.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
}

impl Source {
    /// An error names the field that is wrong.
    pub(crate) fn new(url: &str, headers: &[(String, String)]) -> Result<Source, SourceError> {
        let uri: http::Uri = url.parse().map_err(|source| SourceError::Url { url: url.to_string(), source })?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(SourceError::Scheme(url.to_string()));
        }
        let source = Source { uri, headers: headers.to_vec() };
        source.request()?;
        Ok(source)
    }

    fn request(&self) -> http::Result<http::Request<Empty<Bytes>>> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = http::Request::get(path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header(http::header::HOST, self.uri.authority().map_or("", |place| place.as_str()));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Empty::new())
    }

    async fn fetch(&self) -> Result<Bytes, FetchError> {
        let work = async {
            let (host, is_safe) = (self.uri.host().unwrap_or_default(), self.uri.scheme_str() == Some("https"));
            let host = host.trim_matches(['[', ']']);
            let port = self.uri.port_u16().unwrap_or(if is_safe { 443 } else { 80 });
            let stream = dial(host, port).await?;
            if !is_safe {
                return exchange(Stream::Tcp(stream), self.request()?).await;
            }
            let tls = tls::config(&system_trust()?, None, &[])?;
            exchange(secure(stream, host, &Arc::new(tls)).await?, self.request()?).await
        };
        tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(FetchError::Timeout))
    }
}

fn system_trust() -> Result<Trust, FetchError> {
    tls::system_bundle().map(Trust::CaBundle).ok_or(FetchError::NoCaBundle)
}

async fn exchange(stream: Stream, request: http::Request<Empty<Bytes>>) -> Result<Bytes, FetchError> {
    let answer = http_client::send_once(stream, request).await?;
    if answer.status() != http::StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    Ok(body::read(answer.into_body(), MOST).await?)
}

/// A pod, or the pods of a list; an empty response has none.
fn read(bytes: &[u8], node: &str, url: &str) -> Result<SourceContent, ReadError> {
    if bytes.is_empty() {
        return Ok(SourceContent::default());
    }
    let tree = yaml::decode(bytes)?;
    let is_list = (tree.str("apiVersion"), tree.str("kind")) == ("v1", "PodList");
    let texts: Vec<Vec<u8>> = match is_list {
        true => tree.list("items").iter().map(whole).map(|item| json::encode(&item, None)).collect(),
        false => vec![bytes.to_vec()],
    };
    let pods = texts.iter().map(|text| manifest::read(text, node, "http", url)).collect::<Result<Vec<_>, _>>()?;
    let mut found = SourceContent::default();
    pods.into_iter().for_each(|pod| found.add(url.to_string(), Ok(pod)));
    Ok(found)
}

/// Items of a PodList may omit apiVersion and kind.
fn whole(item: &Tree) -> Tree {
    let mut item = item.clone();
    item.set_default("apiVersion", "v1");
    item.set_default("kind", "Pod");
    item
}

/// Follows the URL until it is dropped; `known_once` becomes true once its pods are known.
pub(crate) async fn follow(
    config: Arc<Config>,
    workers: Arc<Workers>,
    source: Source,
    known_once: watch::Sender<bool>,
) {
    let (url, mut seen) = (source.uri.to_string(), None);
    let mut known = super::Pods::new();
    loop {
        match source.fetch().await {
            Ok(bytes) if seen.as_ref() == Some(&bytes) => {}
            Ok(bytes) => match read(&bytes, &config.node_name, &url) {
                Ok(pods) => {
                    super::apply(&workers, &mut known, pods);
                    seen = Some(bytes);
                    known_once.send_replace(true);
                }
                Err(error) => tracing::error!(url, why = %error, "failed to read static pods"),
            },
            Err(error) => tracing::error!(url, why = %error, "failed to fetch static pods"),
        }
        tokio::time::sleep(config.http_check_frequency).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    #[test]
    fn reads_a_pod_or_a_list() {
        let pod = |name: &str| format!("{{metadata: {{name: {name}}}, spec: {{containers: [{{name: a, image: i}}]}}}}");
        let one = format!("{{apiVersion: v1, kind: Pod, {}", &pod("web")[1..]);
        let list = format!("{{apiVersion: v1, kind: PodList, items: [{}, {}]}}", pod("a"), pod("b"));
        let names = |text: &str| {
            let pods = read(text.as_bytes(), "n1", "http://x/");
            pods.map(|found| found.pods.values().map(|own| pod::name(&own.pod).to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names(&one).expect("a pod"), ["web-n1"]);
        let mut two = names(&list).expect("pods");
        two.sort();
        assert_eq!(two, ["a-n1", "b-n1"]);
        assert!(names("").expect("no pods").is_empty());
        for wrong in ["{apiVersion: v1, kind: Service}", &list.replace("image: i", "")] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
        let read = read(one.as_bytes(), "n1", "http://x/").expect("a pod");
        assert!(read.pods.values().all(|own| pod::annotation(&own.pod, pod::SOURCE) == "http"));
    }

    #[test]
    fn rejects_invalid_sources() {
        let header = |name: &str| vec![(name.to_string(), "x".to_string())];
        assert!(Source::new("https://example.org/pods", &header("Metadata-Flavor")).is_ok());
        for url in ["example.org", "ftp://example.org/", "http://"] {
            assert!(
                Source::new(url, &[]).err().is_some_and(|why| why.to_string().starts_with("staticPodURL")),
                "{url}"
            );
        }
        assert!(
            Source::new("http://x/", &header("a b"))
                .err()
                .is_some_and(|why| why.to_string().contains("staticPodURLHeader"))
        );
    }

    #[tokio::test]
    async fn sends_configured_headers() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/pods?x=1", listener.local_addr().expect("an address"));
        let answers = tokio::spawn(async move {
            let mut requests = Vec::new();
            for answer in ["200 OK\r\ncontent-length: 2\r\n\r\nhi", "500 No\r\ncontent-length: 0\r\n\r\n"] {
                let (mut socket, _) = listener.accept().await.expect("a client");
                let mut text = vec![0; 4096];
                let length = socket.read(&mut text).await.expect("a request");
                requests.push(String::from_utf8_lossy(&text[..length]).to_lowercase());
                socket.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.expect("an answer");
            }
            requests
        });
        let source = Source::new(&url, &[("Who".to_string(), "me".to_string())]).expect("a source");
        assert_eq!(source.fetch().await.expect("a response"), "hi");
        assert!(source.fetch().await.is_err_and(|why| why.to_string().contains("500")));
        let requests = answers.await.expect("requests");
        assert!(requests[0].starts_with("get /pods?x=1 ") && requests[0].contains("who: me"), "{requests:?}");
    }
}
