//! A transport that adds an object to lists of network policies which the server would not accept.

use std::sync::Arc;

use api::{Tree, json};
use bytes::Bytes;
use client::{Body, ObjectFrames, ResponseFuture, Transport};
use http::{Request, Response};
use http_body_util::Full;

pub struct OddPolicies {
    pub inner: Arc<dyn Transport>,
    pub policy: Tree,
}

impl Transport for OddPolicies {
    fn send(&self, mut request: Request<Bytes>) -> ResponseFuture<'_> {
        let query = request.uri().query().unwrap_or_default();
        if !request.uri().path().ends_with("/networkpolicies") || query.contains("watch=") {
            return self.inner.send(request);
        }
        request.extensions_mut().remove::<ObjectFrames>();
        Box::pin(async {
            let (parts, body) = self.inner.send(request).await?.into_parts();
            let mut list = json::decode(&body.whole().await?).expect("a list");
            list.list_entry("items").push(self.policy.clone());
            let body = Bytes::from(json::encode(&list, None));
            Ok(Response::from_parts(parts, Body::new(Full::new(body))))
        })
    }
}
