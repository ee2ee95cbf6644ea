//! An audit event as it is written: `audit.k8s.io/v1` JSON, or upstream's legacy line. Both are written
//! straight from the call, since every request may have one.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use api::json::write_string;
use api::time::{Timestamp, format_micros, write_micros};
use api::{Tree, json};
use bytes::Bytes;
use http::HeaderMap;
use kinds::User;

use crate::authorization::Decision;
use crate::call::{AuditRecord, Call, Peer};
use crate::request::audit::RequestRecord;
use crate::request::audit::{Level, Stage};
use crate::request::head::RequestHead;
use crate::request::negotiate::Media;

/// The maximum length of a recorded user agent.
const MAX_USER_AGENT: usize = 1024;

pub(super) fn timestamp(time: SystemTime) -> api::Str {
    format_micros(since_epoch(time))
}

fn since_epoch(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

/// The response, as far as it is known.
#[derive(Default)]
pub(super) struct Outcome<'a> {
    pub code: u16,
    /// The Status of a rejection, whose fields are written next to the code.
    pub status: Option<&'a api::status::Status>,
    pub response: Option<Tree>,
}

/// Whether the bodies of request and response are in an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bodies {
    Shown,
    /// The event would be too large with its bodies; an annotation reports that they are omitted.
    LeftOut,
}

/// The maximum length of a head.
pub(crate) const HEAD_BYTES: usize = 192;

/// The start of an event: what changes between stages. The rest and a bracket follow.
pub(super) fn head(level: Level, stage: Stage, time: SystemTime) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.extend_from_slice(b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"");
    out.extend_from_slice(level.name().as_bytes());
    out.extend_from_slice(b"\",\"stage\":\"");
    out.extend_from_slice(stage.name().as_bytes());
    out.extend_from_slice(b"\",\"stageTimestamp\":\"");
    write_micros(&mut out, since_epoch(time));
    out.push(b'"');
    out
}

/// All fields except those of `head`, each preceded by a comma.
pub(super) fn rest(call: &Call, trail: &RequestRecord, outcome: Option<&Outcome<'_>>, bodies: Bodies) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    text(&mut out, "auditID", call.audit.id.to_str().unwrap_or(""));
    let uri = call.head.info.path.as_str();
    out.extend_from_slice(b",\"requestURI\":");
    if call.head.raw_query.is_empty() {
        write_string(&mut out, uri);
    } else {
        write_string(&mut out, &format!("{uri}?{}", call.head.raw_query));
    }
    text(&mut out, "verb", call.head.info.verb);
    user(&mut out, "user", call.caller.original_user().or(call.caller.user.as_deref()));
    if call.caller.original_user().is_some() {
        user(&mut out, "impersonatedUser", call.caller.user.as_deref());
    }
    if !call.caller.impersonation_mode.is_empty() {
        let constraint = Tree::from(format!("impersonate:{}", call.caller.impersonation_mode));
        object(&mut out, "authenticationMetadata", &api::tree! { "impersonationConstraint" => constraint });
    }
    out.extend_from_slice(b",\"sourceIPs\":");
    write_source_ips(&mut out, &call.head, &call.peer);
    if let Some(agent) = call.head.header(http::header::USER_AGENT) {
        text(&mut out, "userAgent", &shortened(agent));
    }
    object_ref(&mut out, &call.head, trail);
    if let Some(outcome) = outcome {
        response_status(&mut out, outcome);
    }
    if bodies == Bodies::Shown
        && trail.decision.level >= Level::Request
        && let Some(tree) = request_object(&call.head, trail)
    {
        object(&mut out, "requestObject", &tree);
    }
    if bodies == Bodies::Shown
        && let Some(tree) = outcome.and_then(|outcome| outcome.response.as_ref())
    {
        object(&mut out, "responseObject", tree);
    }
    out.extend_from_slice(b",\"requestReceivedTimestamp\":\"");
    write_micros(&mut out, since_epoch(trail.received));
    out.push(b'"');
    annotations(&mut out, &call.audit, bodies);
    out
}

fn key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    key(out, name);
    write_string(out, value);
}

fn texts<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a str>) {
    out.push(b'[');
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, value);
    }
    out.push(b']');
}

fn object(out: &mut Vec<u8>, name: &str, tree: &Tree) {
    key(out, name);
    json::encode_into(out, tree, None);
}

fn user(out: &mut Vec<u8>, name: &str, user: Option<&User>) {
    key(out, name);
    out.push(b'{');
    if let Some(user) = user {
        out.extend_from_slice(b"\"username\":");
        write_string(out, &user.name);
        if !user.uid.is_empty() {
            text(out, "uid", &user.uid);
        }
        if !user.groups.is_empty() {
            key(out, "groups");
            texts(out, user.groups.iter().map(String::as_str));
        }
        if !user.extra.is_empty() {
            key(out, "extra");
            json::encode_into(out, &Tree::Map(user.extra.clone()), None);
        }
    }
    out.push(b'}');
}

fn object_ref(out: &mut Vec<u8>, head: &RequestHead, trail: &RequestRecord) {
    let info = &head.info;
    if !info.is_resource {
        return;
    }
    let given = SentObject::of(head, trail);
    key(out, "objectRef");
    out.extend_from_slice(b"{\"resource\":");
    write_string(out, &info.resource);
    let fields = [
        ("namespace", first(&info.namespace, &given.namespace)),
        ("name", first(&info.name, &given.name)),
        ("uid", &given.uid),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("resourceVersion", &given.resource_version),
        ("subresource", &info.subresource),
    ];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        text(out, name, value);
    }
    out.push(b'}');
}

/// The value from the path, otherwise from the body.
fn first<'a>(path: &'a str, body: &'a str) -> &'a str {
    if path.is_empty() { body } else { path }
}

/// The identity of the object in a request's body.
#[derive(Default)]
struct SentObject {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl SentObject {
    const PATHS: [&str; 4] = ["metadata.namespace", "metadata.name", "metadata.uid", "metadata.resourceVersion"];

    /// Patches and DeleteOptions are not objects.
    fn of(head: &RequestHead, trail: &RequestRecord) -> SentObject {
        if !matches!(head.info.verb, "create" | "update") {
            return SentObject::default();
        }
        let Some(bytes) = trail.request.as_ref().filter(|bytes| !bytes.is_empty()) else {
            return SentObject::default();
        };
        let kind = head.header(http::header::CONTENT_TYPE).unwrap_or("");
        let tree = if kind.contains("protobuf") || kind.contains("yaml") {
            decoded(bytes, kind, false)
        } else {
            json::decode_only(bytes, &SentObject::PATHS).ok()
        };
        let Some(tree) = tree else { return SentObject::default() };
        let [namespace, name, uid, resource_version] = SentObject::PATHS.map(|path| tree.str(path).to_string());
        SentObject { namespace, name, uid, resource_version }
    }
}

fn response_status(out: &mut Vec<u8>, outcome: &Outcome<'_>) {
    key(out, "responseStatus");
    out.extend_from_slice(b"{\"metadata\":{}");
    if let Some(status) = outcome.status {
        text(out, "status", "Failure");
        text(out, "message", &status.message);
        text(out, "reason", &status.reason);
        if let Some(details) = status.to_tree().get("details") {
            object(out, "details", details);
        }
    }
    out.extend_from_slice(b",\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(outcome.code).as_bytes());
    out.push(b'}');
}

fn annotations(out: &mut Vec<u8>, record: &AuditRecord, bodies: Bodies) {
    record.annotations.read(|all| {
        if all.is_empty() && record.decision.is_none() && bodies == Bodies::Shown {
            return;
        }
        key(out, "annotations");
        let start = out.len();
        if let Some((decision, reason)) = &record.decision {
            let decision = if *decision == Decision::Allow { "allow" } else { "forbid" };
            text(out, "authorization.k8s.io/decision", decision);
            key(out, "authorization.k8s.io/reason");
            reason.write_json(out);
        }
        for (name, value) in all {
            out.push(b',');
            write_string(out, name);
            out.push(b':');
            write_string(out, value);
        }
        if bodies == Bodies::LeftOut {
            text(out, "audit.k8s.io/truncated", "true");
        }
        // The brace replaces the first comma.
        out[start] = b'{';
        out.push(b'}');
    });
}

fn shortened(agent: &str) -> Cow<'_, str> {
    if agent.len() <= MAX_USER_AGENT {
        return Cow::Borrowed(agent);
    }
    let end = (0..=MAX_USER_AGENT).rev().find(|at| agent.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}...TRUNCATED", &agent[..end]))
}

fn write_source_ips(out: &mut Vec<u8>, head: &RequestHead, peer: &Peer) {
    let behind = ["x-forwarded-for", "x-real-ip"].iter().any(|name| head.headers.contains_key(*name));
    match peer.address.ip().to_canonical() {
        // Most clients send no such header and have an IPv4 address.
        IpAddr::V4(v4) if !behind => {
            out.extend_from_slice(b"[\"");
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
            out.extend_from_slice(b"\"]");
        }
        ip => texts(out, source_ips(&head.headers, ip).iter().map(String::as_str)),
    }
}

/// The client addresses that proxies report, then the peer itself.
pub(crate) fn source_ips(headers: &HeaderMap, peer: std::net::IpAddr) -> Vec<String> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let reported = value("x-forwarded-for").split(',').chain([value("x-real-ip")]);
    let mut ips: Vec<String> = Vec::new();
    let peer = peer.to_canonical();
    for ip in reported.filter_map(|ip| ip.trim().parse().ok()).chain([peer]).map(|ip: std::net::IpAddr| ip.to_string())
    {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips
}

fn request_object(head: &RequestHead, trail: &RequestRecord) -> Option<Tree> {
    let bytes = trail.request.as_ref().filter(|bytes| !bytes.is_empty())?;
    let kind = head.header(http::header::CONTENT_TYPE).unwrap_or("");
    decoded(bytes, kind, trail.decision.omit_managed_fields)
}

/// A body of any media type as a tree.
pub(super) fn decoded(bytes: &Bytes, content_type: &str, omit_managed_fields: bool) -> Option<Tree> {
    let mut tree = if content_type.starts_with(Media::Protobuf.name()) {
        api::protobuf::decode(bytes, None).ok()?
    } else if content_type.contains("yaml") {
        api::yaml::decode(bytes).ok()?
    } else {
        json::decode(bytes).ok()?
    };
    if omit_managed_fields {
        tree.remove_at("metadata.managedFields");
        tree.list_mut("items").iter_mut().for_each(|item| {
            item.remove_at("metadata.managedFields");
        });
    }
    Some(tree)
}

/// A line of upstream's legacy format.
pub(super) fn legacy(call: &Call, stage: Stage, time: SystemTime, code: Option<u16>) -> Vec<u8> {
    let original = call.caller.original_user();
    let user = original.or(call.caller.user.as_deref());
    let name = user.map_or("<none>", |user| &user.name);
    let groups = user.map_or("<none>".to_string(), |user| quoted_list(&user.groups));
    let as_user = original.and(call.caller.user.as_deref());
    let query = if call.head.raw_query.is_empty() { String::new() } else { format!("?{}", call.head.raw_query) };
    let ip = source_ips(&call.head.headers, call.peer.address.ip()).into_iter().next().unwrap_or_default();
    let namespace = if call.head.info.namespace.is_empty() { "<none>" } else { &call.head.info.namespace };
    format!(
        "{} AUDIT: id={:?} stage={:?} ip={ip:?} method={:?} user={name:?} groups={groups:?} as={:?} asgroups={:?} user-agent={:?} namespace={namespace:?} uri={:?} response=\"{}\"",
        timestamp(time),
        call.audit.id.to_str().unwrap_or(""),
        stage.name(),
        call.head.info.verb,
        as_user.map_or("<self>", |user| &user.name),
        as_user.map_or("<lookup>".to_string(), |user| quoted_list(&user.groups)),
        call.head.header(http::header::USER_AGENT).unwrap_or(""),
        format!("{}{query}", call.head.info.path),
        code.map_or("<deferred>".to_string(), |code| code.to_string()),
    )
    .into_bytes()
}

fn quoted_list(list: &[String]) -> String {
    list.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_once_the_peer_last() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "192.0.2.7, bad, 192.0.2.8".parse().expect("a value"));
        headers.insert("x-real-ip", "192.0.2.7".parse().expect("a value"));
        let ips = source_ips(&headers, "127.0.0.1".parse().expect("an address"));
        assert_eq!(ips, ["192.0.2.7", "192.0.2.8", "127.0.0.1"]);
    }

    #[test]
    fn long_agents_are_cut_at_a_character() {
        assert_eq!(shortened("curl/8"), "curl/8");
        let long = "ä".repeat(600);
        assert!(shortened(&long).ends_with("...TRUNCATED") && shortened(&long).len() <= 1024 + 12);
    }

    #[test]
    fn managed_fields_can_be_left_out() {
        let body = Bytes::from_static(
            br#"{"metadata":{"name":"a","managedFields":[{}]},"items":[{"metadata":{"managedFields":[1]}}]}"#,
        );
        let tree = decoded(&body, "application/json", true).expect("JSON");
        assert!(
            !tree.at("metadata").has("managedFields") && !tree.list("items")[0].at("metadata").has("managedFields")
        );
    }
}
