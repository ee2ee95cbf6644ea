//! The identity in the impersonation headers of a request.

use std::collections::BTreeMap;

use api::field::go_quote;
use api::status::Status;
use http::{HeaderMap, HeaderName};

use crate::authentication::extra_key;

pub(super) const USER: &str = "impersonate-user";
pub(super) const UID: &str = "impersonate-uid";
pub(super) const GROUP: &str = "impersonate-group";
pub(super) const EXTRA: &str = "impersonate-extra-";

/// The requested identity, verbatim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ImpersonatedUser {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedUser {
    /// None without impersonation headers.
    pub(super) fn take(headers: &mut HeaderMap) -> Result<Option<ImpersonatedUser>, Status> {
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let requested = ImpersonatedUser::read(headers);
        let has_groups_or_extra =
            headers.keys().any(|name| name.as_str().starts_with(EXTRA)) || headers.contains_key(GROUP);
        if requested.name.is_empty() && (has_groups_or_extra || !requested.uid.is_empty()) {
            return Err(Status::bad_request(format!(
                "requested {} without impersonating a user name",
                requested.go_syntax()
            )));
        }
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
        for name in names.iter().filter(|name| is_ours(name.as_str())) {
            headers.remove(name);
        }
        Ok((!requested.name.is_empty()).then_some(requested))
    }

    fn read(headers: &HeaderMap) -> ImpersonatedUser {
        let values = |name: &str| {
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                extra.entry(extra_key(key)).or_default().extend(values(name.as_str()));
            }
        }
        ImpersonatedUser {
            name: values(USER).next().unwrap_or_default(),
            uid: values(UID).next().unwrap_or_default(),
            groups: values(GROUP).collect(),
            extra,
        }
    }

    /// Whether only the name is set.
    pub(crate) fn has_only_name(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    /// The value in Go's format, which is part of upstream's message.
    fn go_syntax(&self) -> String {
        let texts = |all: &[String]| {
            let quoted: Vec<String> = all.iter().map(|text| go_quote(text)).collect();
            format!("[]string{{{}}}", quoted.join(", "))
        };
        let groups = if self.groups.is_empty() { "[]string(nil)".to_string() } else { texts(&self.groups) };
        let pairs: Vec<String> =
            self.extra.iter().map(|(key, values)| format!("{}:{}", go_quote(key), texts(values))).collect();
        let extra = if pairs.is_empty() { "(nil)".to_string() } else { format!("{{{}}}", pairs.join(", ")) };
        let (name, uid) = (go_quote(&self.name), go_quote(&self.uid));
        format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:map[string][]string{extra}}}")
    }
}

fn is_ours(name: &str) -> bool {
    matches!(name, USER | UID | GROUP) || name.starts_with(EXTRA)
}
