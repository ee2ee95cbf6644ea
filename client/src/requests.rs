//! Requests as functions.

use std::sync::Arc;

use api::{Tree, json};
use bytes::Bytes;
use http::{Method, Request, header};

use crate::{Body, Error, Resource, Result, Transport, Watch};

#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    /// Who is said to own the fields that are written.
    agent: &'static str,
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>, agent: &'static str) -> Client {
        Client { transport, agent }
    }

    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Tree> {
        self.call(Method::GET, &resource.object_path(namespace, name), "", None).await
    }

    /// A page of a list; `query` is what stands behind the question mark.
    pub async fn list(&self, resource: Resource, namespace: &str, query: &str) -> Result<Tree> {
        self.call(Method::GET, &with_query(&resource.path(namespace), query), "", None).await
    }

    pub async fn create(&self, resource: Resource, namespace: &str, object: &Tree) -> Result<Tree> {
        self.call(Method::POST, &resource.path(namespace), "application/json", Some(object)).await
    }

    pub async fn update(&self, resource: Resource, namespace: &str, name: &str, object: &Tree) -> Result<Tree> {
        self.call(Method::PUT, &resource.object_path(namespace, name), "application/json", Some(object)).await
    }

    /// Server-side apply, which takes the fields from whoever has them.
    pub async fn apply(&self, resource: Resource, namespace: &str, object: &Tree, manager: &str) -> Result<Tree> {
        let path = resource.object_path(namespace, object.str("metadata.name"));
        let path = with_query(&path, &format!("fieldManager={manager}&force=true"));
        self.call(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    pub async fn watch(&self, resource: Resource, query: &str) -> Result<Watch> {
        let path = with_query(&with_query(&resource.path(""), "watch=true"), query);
        let (code, body) = self.send(Method::GET, &path, "", None).await?;
        if code == 200 {
            return Ok(Watch::new(body));
        }
        Err(Error::status(code, &decode(&body.whole().await?)?))
    }

    async fn call(&self, method: Method, path: &str, media: &str, object: Option<&Tree>) -> Result<Tree> {
        let (code, body) = self.send(method, path, media, object).await?;
        let tree = decode(&body.whole().await?)?;
        if (200..300).contains(&code) { Ok(tree) } else { Err(Error::status(code, &tree)) }
    }

    async fn send(&self, method: Method, path: &str, media: &str, object: Option<&Tree>) -> Result<(u16, Body)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, self.agent);
        if !media.is_empty() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let body = object.map_or_else(Bytes::new, |object| Bytes::from(json::encode(object, None)));
        let request = request.body(body).map_err(|error| Error::Transport(error.to_string()))?;
        let (parts, body) = self.transport.send(request).await?.into_parts();
        Ok((parts.status.as_u16(), body))
    }
}

fn with_query(path: &str, query: &str) -> String {
    match (query, path.contains('?')) {
        ("", _) => path.to_string(),
        (query, true) => format!("{path}&{query}"),
        (query, false) => format!("{path}?{query}"),
    }
}

fn decode(bytes: &[u8]) -> Result<Tree> {
    json::decode(bytes).map_err(|error| Error::Answer(error.to_string()))
}
