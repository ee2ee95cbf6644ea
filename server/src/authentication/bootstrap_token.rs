//! Tokens by which a machine joins: Secrets `bootstrap-token-ID` of kube-system.

use api::{Tree, base64, time};
use aws_lc_rs::constant_time;
use kinds::User;
use thiserror::Error;

use super::{Authenticator, TokenRequest, TokenVerdict, Verdict};
use crate::common::users::with_authenticated_group;

const GROUP: &str = "system:bootstrappers";
const MAX_GROUP_BYTES: usize = GROUP.len() + 257;

pub(super) fn authenticate<'a>(auth: &'a Authenticator, request: TokenRequest<'a>) -> TokenVerdict<'a> {
    TokenVerdict::Now(verify(auth, request))
}

fn verify(auth: &Authenticator, request: TokenRequest<'_>) -> Verdict {
    let Some((id, secret)) = split(request.token).filter(|_| auth.config.bootstrap_tokens) else {
        return Verdict::Unknown;
    };
    let Some(object) = auth.storage.object("secrets", &format!("kube-system/bootstrap-token-{id}")) else {
        return Verdict::Unknown;
    };
    match owner(&object, id, secret, request.now) {
        Ok(user) => auth.config.for_any_audience(with_authenticated_group(user), request.audiences),
        Err(why) => Verdict::refused(format!("bootstrap token {id}: {why}")),
    }
}

/// `ID.SECRET`: six and sixteen lower-case letters or digits.
fn split(token: &str) -> Option<(&str, &str)> {
    let fits = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    token.split_once('.').filter(|(id, secret)| fits(id, 6) && fits(secret, 16))
}

/// Why a bootstrap token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum BootstrapTokenError {
    #[error("it is being deleted")]
    Deleting,
    #[error("the secret is not a bootstrap token of this id")]
    OtherSecret,
    #[error("the token does not match")]
    Mismatch,
    #[error("it has expired")]
    Expired,
    #[error("it is not for authentication")]
    Usage,
    #[error("auth-extra-groups has a name that is not allowed")]
    Groups,
}

fn owner(object: &Tree, id: &str, secret: &str, now: i64) -> Result<User, BootstrapTokenError> {
    let data = |key: &str| {
        let value = object.at("data").get(key).and_then(Tree::as_str).unwrap_or("");
        base64::decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    if object.at("metadata").has("deletionTimestamp") {
        return Err(BootstrapTokenError::Deleting);
    }
    if object.str("type") != "bootstrap.kubernetes.io/token" || data("token-id") != id {
        return Err(BootstrapTokenError::OtherSecret);
    }
    constant_time::verify_slices_are_equal(data("token-secret").as_bytes(), secret.as_bytes())
        .map_err(|_| BootstrapTokenError::Mismatch)?;
    if !is_current(&data("expiration"), now) {
        return Err(BootstrapTokenError::Expired);
    }
    if data("usage-bootstrap-authentication") != "true" {
        return Err(BootstrapTokenError::Usage);
    }
    let groups = groups(&data("auth-extra-groups")).ok_or(BootstrapTokenError::Groups)?;
    Ok(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// A time that cannot be read has passed.
fn is_current(expiration: &str, now: i64) -> bool {
    expiration.is_empty() || time::parse(expiration).is_ok_and(|time| time.seconds > now)
}

/// All groups, sorted; None if one is not a valid group for bootstrap tokens.
fn groups(extra: &str) -> Option<Vec<String>> {
    let extra: Vec<&str> = extra.split(',').filter(|group| !group.is_empty()).collect();
    if !extra.iter().all(|group| is_group(group)) {
        return None;
    }
    let mut groups: Vec<String> = extra.into_iter().chain([GROUP]).map(str::to_string).collect();
    groups.sort_unstable();
    groups.dedup();
    Some(groups)
}

fn is_group(group: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let Some(rest) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    group.len() <= MAX_GROUP_BYTES
        && rest.bytes().next_back().is_some_and(word)
        && rest.bytes().all(|byte| word(byte) || byte == b':' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn tokens_have_one_form() {
        assert_eq!(split("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in ["abcdef", "abcde.0123456789abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdefg", "."] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }

    fn secret(change: &[(&str, &str)]) -> Tree {
        let mut values = vec![
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"),
        ];
        values.extend_from_slice(change);
        let mut data = tree! {};
        values.iter().for_each(|(key, value)| data.set(key, base64::encode(value.as_bytes())));
        tree! { "type" => "bootstrap.kubernetes.io/token", "metadata" => tree! {}, "data" => data }
    }

    #[test]
    fn the_secret_decides() {
        let judged = |change: &[(&str, &str)]| owner(&secret(change), "abcdef", "0123456789abcdef", 1_000_000_000);
        let user = judged(&[("expiration", "2030-01-01T00:00:00Z")]).expect("a user");
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, [GROUP, "system:bootstrappers:a", "system:bootstrappers:b"]);
        let cases = [
            ("token-secret", "other", "the token does not match"),
            ("token-id", "other", "the secret is not a bootstrap token of this id"),
            ("expiration", "2001-01-01T00:00:00Z", "it has expired"),
            ("expiration", "never", "it has expired"),
            ("usage-bootstrap-authentication", "yes", "it is not for authentication"),
            ("auth-extra-groups", "system:masters", "auth-extra-groups has a name that is not allowed"),
            ("auth-extra-groups", "system:bootstrappers:", "auth-extra-groups has a name that is not allowed"),
        ];
        for (key, value, want) in cases {
            let error = judged(&[(key, value)]).expect_err("it is not accepted");
            assert_eq!(error.to_string(), want, "{key}={value}");
        }
    }
}
