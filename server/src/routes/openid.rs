//! OpenID Connect discovery, with which other servers verify the tokens of service accounts.

use api::{Tree, list, tree};

use crate::authentication::token::Tokens;
use crate::call::{HttpResponse, build_response};
use crate::request::head::RequestHead;
use crate::routes::Routes;

/// Serves the two documents; None without a signing key, or for another path.
pub(crate) fn route(routes: &Routes, head: &RequestHead) -> Option<HttpResponse> {
    let tokens = routes.registry.authentication.config.tokens.as_ref()?;
    match head.path.as_str() {
        "/.well-known/openid-configuration" => Some(json(&configuration(routes, tokens), "application/json")),
        "/openid/v1/jwks" => Some(json(&tree! { "keys" => tokens.jwks() }, "application/jwk-set+json")),
        _ => None,
    }
}

fn json(tree: &Tree, content_type: &'static str) -> HttpResponse {
    build_response(200, content_type, api::json::encode(tree, None))
}

fn configuration(routes: &Routes, tokens: &Tokens) -> Tree {
    let address = std::net::SocketAddr::new(routes.registry.config.advertise_address, routes.registry.config.port);
    tree! {
        "issuer" => routes.registry.config.issuer(),
        "jwks_uri" => format!("https://{address}/openid/v1/jwks"),
        "response_types_supported" => list!["id_token"],
        "subject_types_supported" => list!["public"],
        "id_token_signing_alg_values_supported" => tokens.algorithms(),
    }
}
