//! URLs, parsed as Go parses request URIs.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::query::encode_path;
use percent_encoding::percent_decode_str;

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Map, Opaque, Url, Value};

pub(super) const ROWS: &[Row] = &[
    ("url", "string_to_url", "(string) -> kubernetes.URL"),
    ("isURL", "is_url_string", "(string) -> bool"),
    ("getScheme", "url_get_scheme", "kubernetes.URL.() -> string"),
    ("getHost", "url_get_host", "kubernetes.URL.() -> string"),
    ("getHostname", "url_get_hostname", "kubernetes.URL.() -> string"),
    ("getPort", "url_get_port", "kubernetes.URL.() -> string"),
    ("getEscapedPath", "url_get_escaped_path", "kubernetes.URL.() -> string"),
    ("getQuery", "url_get_query", "kubernetes.URL.() -> map<string, list<string>>"),
];

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "url" => |_, args| {
            let Value::String(text) = &args[0] else { return no_overload() };
            let message = |error| format!("URL parse error during conversion from string: {error}");
            let url = parse_url(text).map_err(|error| EvalError::failed(message(error)))?;
            Ok(Value::Opaque(Opaque::Url(Arc::new(url))))
        },
        "isURL" => |_, args| {
            let Value::String(text) = &args[0] else { return no_overload() };
            Ok(Value::Bool(parse_url(text).is_ok()))
        },
        "getScheme" => |_, args| part(args, |url| &url.scheme),
        "getHost" => |_, args| part(args, |url| &url.host),
        "getHostname" => |_, args| part(args, |url| split_port(&url.host).0),
        "getPort" => |_, args| part(args, |url| split_port(&url.host).1),
        "getEscapedPath" => |_, args| part(args, |url| &url.path),
        "getQuery" => |_, args| {
            let Value::Opaque(Opaque::Url(url)) = &args[0] else { return no_overload() };
            Ok(read_query(&url.query))
        },
        _ => return None,
    })
}

fn part<'a>(args: &[Value<'a>], read: fn(&Url) -> &str) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::Opaque(Opaque::Url(url))] => Ok(Value::string(read(url))),
        _ => no_overload(),
    }
}

/// Text that is no URL, with Go's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {text}: {cause}")]
pub(super) struct UrlError {
    text: String,
    cause: UrlCause,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum UrlCause {
    #[error("empty url")]
    Empty,
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("missing protocol scheme")]
    MissingScheme,
    #[error("invalid URI for request")]
    NotARequest,
    #[error("invalid URL escape {0}")]
    Escape(String),
    #[error("invalid port {0} after host")]
    Port(String),
    #[error("missing ']' in host")]
    MissingBracket,
    #[error("net/url: invalid userinfo")]
    UserInfo,
    #[error("invalid character {0} in host name")]
    HostCharacter(String),
}

/// Parses an absolute URL or a path.
pub(super) fn parse_url(text: &str) -> Result<Url, UrlError> {
    let fail = |cause| UrlError { text: api::quote::go_quote(text), cause };
    let whole = parse(text).map_err(fail)?;
    match text.split_once('#') {
        None => Ok(whole),
        // A request has no fragment, so the whole text must be valid with it, but a URL has one.
        Some((plain, fragment)) => {
            check_escapes(fragment).map_err(fail)?;
            let url = parse(plain).map_err(fail)?;
            Ok(Url { text: whole.text, ..url })
        }
    }
}

fn parse(text: &str) -> Result<Url, UrlCause> {
    if text.is_empty() {
        return Err(UrlCause::Empty);
    }
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(UrlCause::ControlCharacter);
    }
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') && scheme.is_empty() {
        return Err(UrlCause::NotARequest);
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(after) if !scheme.is_empty() || !rest.starts_with("///") => {
            let end = after.find('/').unwrap_or(after.len());
            (&after[..end], &after[end..])
        }
        _ => ("", rest),
    };
    let host = read_authority(authority)?;
    check_escapes(path)?;
    let scheme = scheme.to_ascii_lowercase();
    let path = if rest.starts_with('/') { escape_path(path) } else { String::new() };
    let text = format!("{scheme}|{authority}|{rest}|{query}");
    Ok(Url { scheme, host, path, query: query.to_owned(), text })
}

fn split_scheme(text: &str) -> Result<(&str, &str), UrlCause> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(UrlCause::MissingScheme),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// The host of an authority, without the user.
fn read_authority(authority: &str) -> Result<String, UrlCause> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(is_valid) {
            return Err(UrlCause::UserInfo);
        }
        check_escapes(user)?;
    }
    let port = match host.strip_prefix('[') {
        Some(inner) => {
            let end = inner.find(']').ok_or(UrlCause::MissingBracket)?;
            &inner[end + 1..]
        }
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(UrlCause::Port(api::quote::go_quote(port)));
    }
    let is_valid =
        |char: &char| !char.is_ascii() || char.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(*char);
    if let Some(char) = host.chars().find(|char| !is_valid(char)) {
        return Err(UrlCause::HostCharacter(api::quote::go_quote(&char.to_string())));
    }
    check_escapes(host)?;
    Ok(percent_decode_str(host).decode_utf8_lossy().into_owned())
}

fn check_escapes(text: &str) -> Result<(), UrlCause> {
    for (at, _) in text.match_indices('%') {
        let escape = &text.as_bytes()[at..(at + 3).min(text.len())];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            return Err(UrlCause::Escape(api::quote::go_quote(&String::from_utf8_lossy(escape))));
        }
    }
    Ok(())
}

/// The path as it was, if that is a valid encoding, or encoded.
fn escape_path(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
    if path.bytes().all(is_plain) {
        return path.to_owned();
    }
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    encode_path(&decoded)
}

/// The host without brackets, and the port.
fn split_port(host: &str) -> (&str, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    (inner.unwrap_or(name), port)
}

/// The values of each key of a query; pairs that cannot be decoded are dropped.
fn read_query<'a>(query: &str) -> Value<'a> {
    let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            check_escapes(text).ok()?;
            Some(percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned())
        };
        if let (Some(key), Some(value)) = (decode(key), decode(value)) {
            values.entry(key).or_default().push(Value::string(value));
        }
    }
    let entries = values.into_iter().map(|(key, values)| (Arc::from(key), Value::list(values)));
    Value::Map(Map::from_strings(entries))
}
