//! The cause of a write, as the store keeps it beside the value: who wrote through which request, and for a component
//! what it acted on. What a client sends about itself is a claim: nothing is authorized by it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use kinds::User;

use crate::authorization::rbac::policy;
use crate::call::Origin;

/// `COMPONENT [RESOURCE KEY REVISION]`
pub(crate) const HEADER: &str = "tiphys-cause";
const TRACEPARENT: &str = "traceparent";

/// The first byte of an encoded cause. Other bytes are those of the user's name, which earlier versions stored alone.
const VERSION: u8 = 1;
const MAX_AGENT: usize = 128;
const MAX_USER: usize = 1024;
/// Longer than any key of an object.
const MAX_TEXT: usize = 512;
/// The components that a header may name, besides controllers.
const COMPONENTS: [&str; 3] = ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"];
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";

static CONTROLLERS: LazyLock<BTreeSet<String>> = LazyLock::new(policy::controller_users);

/// Who wrote, how, and why. Texts that are unknown are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause<'a> {
    pub user: Cow<'a, str>,
    pub user_agent: Cow<'a, str>,
    /// The audit ID of the request. Clients may choose it, so it is not unique.
    pub request: Cow<'a, str>,
    pub verb: Cow<'a, str>,
    pub subresource: Cow<'a, str>,
    /// The component's own name, such as `deployment-controller`.
    pub component: Cow<'a, str>,
    pub acted_on: Option<ActedOn<'a>>,
    /// W3C trace context of the request, without its version.
    pub traceparent: Cow<'a, str>,
}

/// The object that a component acted on, in the revision that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActedOn<'a> {
    /// `deployments.apps`
    pub resource: Cow<'a, str>,
    /// `namespace/name`, or the name.
    pub key: Cow<'a, str>,
    pub revision: u64,
}

impl<'a> Cause<'a> {
    /// The cause of a write of this user; the server itself writes without an origin.
    pub(crate) fn new(user: &'a User, origin: Option<Origin<'a>>) -> Cause<'a> {
        let mut cause = Cause { user: user.name.as_str().into(), ..Cause::default() };
        let Some(Origin { head, audit, .. }) = origin else { return cause };
        let text = |name: &'static str| head.header(name).unwrap_or_default();
        cause.user_agent = text("user-agent").into();
        cause.request = audit.id.to_str().unwrap_or_default().into();
        cause.verb = head.info.verb.into();
        cause.subresource = head.info.subresource.as_str().into();
        cause.traceparent = parse_traceparent(text(TRACEPARENT)).into();
        if let Some(claim) = head.header(HEADER).filter(|_| is_component(user)) {
            (cause.component, cause.acted_on) = parse_claim(claim);
        }
        cause
    }

    /// About 120 bytes, in one allocation.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.push(VERSION);
        put(&mut out, &self.user, MAX_USER);
        put(&mut out, &self.user_agent, MAX_AGENT);
        put_id(&mut out, &self.request);
        put(&mut out, &self.verb, MAX_TEXT);
        put(&mut out, &self.subresource, MAX_TEXT);
        put(&mut out, &self.traceparent, MAX_TEXT);
        put(&mut out, &self.component, MAX_TEXT);
        if let Some(of) = &self.acted_on {
            put(&mut out, &of.resource, MAX_TEXT);
            put(&mut out, &of.key, MAX_TEXT);
            out.extend_from_slice(&of.revision.to_le_bytes());
        }
        out
    }

    /// Reads a cause; one that this version does not understand is unknown.
    pub fn decode(bytes: &[u8]) -> Cause<'_> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => decode(rest).unwrap_or_default(),
            _ => Cause { user: String::from_utf8_lossy(bytes), ..Cause::default() },
        }
    }
}

/// Controllers, scheduler and kubelets run as these users, with their credentials.
fn is_component(user: &User) -> bool {
    let name = user.name.as_str();
    let is_node = || name.starts_with(NODE) && user.groups.iter().any(|group| group == NODES);
    COMPONENTS.contains(&name) || CONTROLLERS.contains(name) || is_node()
}

fn parse_claim(text: &str) -> (Cow<'_, str>, Option<ActedOn<'_>>) {
    let mut words = text.split(' ');
    let component = words.next().unwrap_or_default();
    let (resource, key, revision) = (words.next(), words.next(), words.next());
    let revision = revision.and_then(|text| text.parse().ok()).filter(|_| words.next().is_none());
    let of = match (resource, key, revision) {
        (Some(resource), Some(key), Some(revision)) => {
            Some(ActedOn { resource: resource.into(), key: key.into(), revision })
        }
        _ => None,
    };
    (component.into(), of)
}

/// `00-TRACE-PARENT-FLAGS` without the version; empty if it is not of that form.
fn parse_traceparent(text: &str) -> &str {
    let hex = |at: usize, byte: u8| match at {
        2 | 35 | 52 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    let is_valid = text.len() == 55 && text.bytes().enumerate().all(|(at, byte)| hex(at, byte));
    if is_valid && text.starts_with("00-") { &text[3..] } else { "" }
}

fn put(out: &mut Vec<u8>, text: &str, limit: usize) {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A UUID takes 16 bytes instead of 36: its length is written as 0xffff.
fn put_id(out: &mut Vec<u8>, id: &str) {
    match uuid_bytes(id) {
        Some(bytes) => {
            out.extend_from_slice(&u16::MAX.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        None => put(out, id, MAX_TEXT),
    }
}

/// The bytes of a UUID in its canonical form, which is the only one that can be restored.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    if text.len() != 36 || (0..36).any(|at| is_dash(at) != (text[at] == b'-')) {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digits = text.iter().filter(|&&byte| byte != b'-').map(|&byte| digit(byte));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    Some(bytes)
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

fn decode(mut rest: &[u8]) -> Option<Cause<'_>> {
    let rest = &mut rest;
    let mut cause = Cause { user: take(rest)?, user_agent: take(rest)?, request: take_id(rest)?, ..Cause::default() };
    cause.verb = take(rest)?;
    cause.subresource = take(rest)?;
    cause.traceparent = take(rest)?;
    cause.component = take(rest)?;
    if !rest.is_empty() {
        let (resource, key) = (take(rest)?, take(rest)?);
        let revision = u64::from_le_bytes(rest.get(..8)?.try_into().ok()?);
        cause.acted_on = Some(ActedOn { resource, key, revision });
    }
    Some(cause)
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Cow<'a, str>> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = after;
    Some(std::str::from_utf8(text).ok()?.into())
}

fn take_id<'a>(rest: &mut &'a [u8]) -> Option<Cow<'a, str>> {
    let Some(after) = rest.strip_prefix(&u16::MAX.to_le_bytes()) else { return take(rest) };
    let (bytes, after) = after.split_at_checked(16)?;
    *rest = after;
    Some(uuid_text(bytes).into())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;
    use crate::testing;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn full() -> Cause<'static> {
        Cause {
            user: "system:serviceaccount:kube-system:deployment-controller".into(),
            user_agent: "kube-controller-manager".into(),
            request: "0af76519-16cd-43dd-8448-eb211c80319c".into(),
            verb: "create".into(),
            subresource: "status".into(),
            component: "deployment-controller".into(),
            acted_on: Some(ActedOn { resource: "deployments.apps".into(), key: "a/web".into(), revision: 1 << 40 }),
            traceparent: TRACE[3..].into(),
        }
    }

    #[track_caller]
    fn check_restored(cause: &Cause<'_>) {
        assert_eq!(Cause::decode(&cause.encode()), *cause);
    }

    #[test]
    fn encoded_causes_are_restored() {
        check_restored(&Cause::default());
        check_restored(&full());
        check_restored(&Cause { acted_on: None, ..full() });
        for id in ["", "mine", "0AF76519-16cd-43dd-8448-eb211c80319c", "0af7651916cd43dd8448eb211c80319c----"] {
            check_restored(&Cause { request: id.into(), ..full() });
        }
    }

    #[test]
    fn causes_are_bounded() {
        let long = "ü".repeat(40_000);
        let of = ActedOn { resource: long.as_str().into(), key: long.as_str().into(), revision: 1 };
        let cause =
            Cause { user: long.as_str().into(), user_agent: long.as_str().into(), acted_on: Some(of), ..full() };
        assert!(cause.encode().len() < 3 << 10, "{}", cause.encode().len());
        assert_eq!(Cause::decode(&cause.encode()).user_agent.len(), MAX_AGENT);
    }

    #[test]
    fn foreign_bytes_are_an_unknown_cause_or_the_name_of_a_user() {
        assert_eq!(Cause::decode(b"").user, "");
        assert_eq!(Cause::decode(b"admin"), Cause { user: "admin".into(), ..Cause::default() });
        let encoded = full().encode();
        for length in 1..encoded.len() {
            // A cause of which a part is missing has no user of its own.
            let _ = Cause::decode(&encoded[..length]);
        }
    }

    /// The component and what it acted on, as a write of this user with this header has it.
    fn claimed(user: &str, groups: &[&str], header: &'static str) -> String {
        let mut call = testing::call(Method::PUT, "/api/v1/namespaces/a/pods/b/status", user);
        call.head.headers.insert(HEADER, HeaderValue::from_static(header));
        let groups = groups.iter().map(|group| (*group).to_string()).collect();
        let user = User { name: user.to_string(), groups, ..User::default() };
        let cause = Cause::new(&user, Some(call.origin()));
        let of = cause.acted_on.map(|of| format!(" {} {} {}", of.resource, of.key, of.revision));
        format!("{}{}", cause.component, of.unwrap_or_default())
    }

    #[test]
    fn only_components_name_what_they_act_on() {
        const CLAIM: &str = "some-controller pods a/b 7";
        const CONTROLLER: &str = "system:serviceaccount:kube-system:deployment-controller";
        for (user, groups, expected) in [
            (CONTROLLER, &[][..], CLAIM),
            ("system:kube-scheduler", &[], CLAIM),
            ("system:kube-controller-manager", &[], CLAIM),
            ("system:node:n1", &[NODES], CLAIM),
            ("system:node:n1", &[], ""),
            ("admin", &["system:masters"], ""),
            ("system:serviceaccount:default:deployment-controller", &[], ""),
        ] {
            assert_eq!(claimed(user, groups, CLAIM), expected, "{user}");
        }
        for (header, expected) in [
            ("kubelet", "kubelet"),
            ("kubelet pods a/b", "kubelet"),
            ("kubelet pods a/b seven", "kubelet"),
            ("kubelet pods a/b 7 8", "kubelet"),
        ] {
            assert_eq!(claimed("system:node:n1", &[NODES], header), expected, "{header}");
        }
    }

    #[test]
    fn a_request_is_the_cause_of_its_writes() {
        let mut call = testing::call(Method::PUT, "/api/v1/namespaces/a/pods/b/status", "admin");
        call.audit.id = HeaderValue::from_static("mine");
        call.head.headers.insert("user-agent", HeaderValue::from_static("kubectl/v1"));
        call.head.headers.insert(TRACEPARENT, HeaderValue::from_static(TRACE));
        let user = User { name: "admin".to_string(), ..User::default() };
        let cause = Cause::new(&user, Some(call.origin()));
        let texts = [&cause.user, &cause.user_agent, &cause.request, &cause.verb, &cause.subresource];
        assert_eq!(texts.map(|text| &**text), ["admin", "kubectl/v1", "mine", "update", "status"]);
        assert_eq!(cause.traceparent, TRACE[3..]);
        assert_eq!(parse_traceparent(&TRACE.to_uppercase()), "");
        assert_eq!(Cause::new(&user, None), Cause { user: "admin".into(), ..Cause::default() });
    }
}
