//! The authentication stage.

use std::sync::Arc;

use api::{json, tree};
use bytes::Bytes;
use http::{Request, header};

use super::local;
use crate::Server;
use crate::authentication;
use crate::authentication::legacy_token::LAST_USED;
use crate::call::{Call, StageResult};
use crate::common::users::system_user;

/// Puts the user of the credentials into the call.
pub(super) fn authenticate<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    let step = authentication::authenticate(&server.registry.authentication, call);
    label_used_secrets(server);
    step
}

/// Labels the secrets whose tokens were used, in the background.
fn label_used_secrets(server: &Arc<Server>) {
    for (secret, today) in server.registry.authentication.config.legacy_uses.take() {
        tokio::spawn(label_used_secret(server.clone(), secret, today));
    }
}

async fn label_used_secret(server: Arc<Server>, secret: String, today: String) {
    let Some((namespace, name)) = secret.split_once('/') else { return };
    let labels = tree! { "metadata" => tree! { "labels" => tree! { LAST_USED => today } } };
    let request = Request::patch(format!("/api/v1/namespaces/{namespace}/secrets/{name}"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Bytes::from(json::encode(&labels, None)));
    let Ok(request) = request else { return };
    let response = local::handle(&server, request, Arc::new(system_user())).await;
    if !response.status().is_success() {
        tracing::debug!(secret, code = response.status().as_u16(), "failed to label the secret of a used token");
    }
}
