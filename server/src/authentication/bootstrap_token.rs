//! Tokens by which a machine joins: Secrets `bootstrap-token-ID` of kube-system.

use api::{Tree, base64, time};
use aws_lc_rs::constant_time;
use kinds::User;

use super::{Authenticator, TokenRequest, TokenVerdict, Verdict};
use crate::common::users::with_authenticated_group;

const GROUP: &str = "system:bootstrappers";
const MAX_GROUP_BYTES: usize = GROUP.len() + 257;

pub(super) fn authenticate<'a>(auth: &'a Authenticator, question: TokenRequest<'a>) -> TokenVerdict<'a> {
    TokenVerdict::Now(judge(auth, question))
}

fn judge(auth: &Authenticator, question: TokenRequest<'_>) -> Verdict {
    let Some((id, secret)) = split(question.token).filter(|_| auth.config.bootstrap_tokens) else {
        return Verdict::Unknown;
    };
    let Some(object) = auth.storage.object("secrets", &format!("kube-system/bootstrap-token-{id}")) else {
        return Verdict::Unknown;
    };
    match owner(&object, id, secret, question.now) {
        Ok(user) => auth.config.for_any_audience(with_authenticated_group(user), question.audiences),
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

fn owner(object: &Tree, id: &str, secret: &str, now: i64) -> Result<User, &'static str> {
    let data = |key: &str| {
        let value = object.at("data").get(key).and_then(Tree::as_str).unwrap_or("");
        base64::decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    if object.at("metadata").has("deletionTimestamp") {
        return Err("it is being deleted");
    }
    if object.str("type") != "bootstrap.kubernetes.io/token" || data("token-id") != id {
        return Err("the secret is not a bootstrap token of this id");
    }
    constant_time::verify_slices_are_equal(data("token-secret").as_bytes(), secret.as_bytes())
        .map_err(|_| "the token does not match")?;
    if !is_current(&data("expiration"), now) {
        return Err("it has expired");
    }
    if data("usage-bootstrap-authentication") != "true" {
        return Err("it is not for authentication");
    }
    let groups = groups(&data("auth-extra-groups")).ok_or("auth-extra-groups has a name that is not allowed")?;
    Ok(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// A time that cannot be read has passed.
fn is_current(expiration: &str, now: i64) -> bool {
    expiration.is_empty() || time::parse(expiration).is_ok_and(|time| time.seconds > now)
}

/// All of them sorted, or None where one is not a group of such tokens.
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
            assert_eq!(judged(&[(key, value)]), Err(want), "{key}={value}");
        }
    }
}
