//! OpenID Connect discovery: how others verify the tokens of service accounts.

use api::{Tree, list, tree};

use crate::Server;
use crate::authentication::token::Tokens;
use crate::call::{Answer, Call, answer};

/// Answers the two documents; None where no tokens are made, or for another path.
pub fn route(server: &Server, call: &Call) -> Option<Answer> {
    let tokens = server.auth.tokens.as_ref()?;
    match call.path.as_str() {
        "/.well-known/openid-configuration" => Some(json(&configuration(server, tokens), "application/json")),
        "/openid/v1/jwks" => Some(json(&tree! { "keys" => tokens.jwks() }, "application/jwk-set+json")),
        _ => None,
    }
}

fn json(tree: &Tree, content_type: &'static str) -> Answer {
    answer(200, content_type, api::json::encode(tree, None))
}

fn configuration(server: &Server, tokens: &Tokens) -> Tree {
    let address = std::net::SocketAddr::new(server.config.advertise_address, server.config.port);
    tree! {
        "issuer" => server.config.issuer(),
        "jwks_uri" => format!("https://{address}/openid/v1/jwks"),
        "response_types_supported" => list!["id_token"],
        "subject_types_supported" => list!["public"],
        "id_token_signing_alg_values_supported" => tokens.algorithms(),
    }
}
