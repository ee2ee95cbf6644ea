//! Bearer tokens of browsers. A page cannot set headers for a WebSocket, so it sends the token as a subprotocol.

use api::base64::decode_url;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use thiserror::Error;

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Why the token of a subprotocol cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum SubprotocolError {
    #[error("multiple base64.bearer.authorization tokens specified")]
    MultipleTokens,
    #[error("missing additional subprotocol")]
    NoOtherSubprotocol,
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
}

/// Removes the subprotocol with the token, and returns the token if it is valid.
pub(crate) fn take_token(headers: &mut HeaderMap) -> Result<Option<String>, SubprotocolError> {
    let upgrade = headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let Some(given) = headers.get(header::SEC_WEBSOCKET_PROTOCOL).filter(|_| upgrade) else { return Ok(None) };
    let all: Vec<String> = given.to_str().unwrap_or("").split(',').map(|word| word.trim().to_string()).collect();
    let (tokens, others): (Vec<String>, Vec<String>) = all.into_iter().partition(|word| word.starts_with(PREFIX));
    let Some(token) = tokens.first() else { return Ok(None) };
    replace(headers, header::SEC_WEBSOCKET_PROTOCOL, &others.join(", "));
    if tokens.len() > 1 {
        return Err(SubprotocolError::MultipleTokens);
    }
    // The server must choose a subprotocol, and the token is not one.
    if others.iter().all(String::is_empty) {
        return Err(SubprotocolError::NoOtherSubprotocol);
    }
    let token = decode_url(&token[PREFIX.len()..]).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    token.map(Some).ok_or(SubprotocolError::Encoding)
}

fn replace(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    match HeaderValue::from_str(text) {
        Ok(value) if !text.is_empty() => drop(headers.insert(name, value)),
        _ => drop(headers.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::base64::encode_url;

    #[test]
    fn a_token_is_one_of_the_subprotocols() {
        let token = format!("{PREFIX}{}", encode_url(b"s3cret"));
        let cases = [
            ("websocket", format!("v4.channel.k8s.io, {token}"), Ok(Some("s3cret")), "v4.channel.k8s.io"),
            ("websocket", "v4.channel.k8s.io".to_string(), Ok(None), "v4.channel.k8s.io"),
            ("spdy/3.1", format!("a,{token}"), Ok(None), &format!("a,{token}")),
            ("websocket", token.clone(), Err(SubprotocolError::NoOtherSubprotocol), ""),
            ("WebSocket", format!("a,{token},{token}"), Err(SubprotocolError::MultipleTokens), "a"),
            ("websocket", format!("a,{PREFIX}!"), Err(SubprotocolError::Encoding), "a"),
        ];
        for (upgrade, given, want, left) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::UPGRADE, upgrade.parse().expect("a value"));
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, given.parse().expect("a value"));
            let got = take_token(&mut headers);
            assert_eq!(got.as_ref().map(|token| token.as_deref()).map_err(|error| *error), want, "{given}");
            let header = headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
            assert_eq!(header.unwrap_or(""), left, "{given}");
        }
    }
}
