//! Tokens of OpenID Connect providers. A token names its issuer; the issuer's keys are fetched on first use, cached,
//! and fetched again for an unknown key.

pub(super) mod expressions;
mod keys;

use std::sync::Arc;

use api::{Map, Tree, list};
use arc_swap::ArcSwap;
use kinds::User;

use self::expressions::{ExpressionError, Expressions};
use super::jwt::{self, Unverified};
use super::{Authenticator, TokenRequest, TokenVerdict, Verdict};
use crate::common::users::with_authenticated_group;
use crate::outbound::callout::{Client, Url, UrlError};

/// Clocks of providers may be this much ahead.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 300;

/// Why a token with a valid signature is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ClaimError {
    #[error("verify token: expected audience in {0:?}")]
    Audience(Vec<String>),
    #[error("verify token: token is expired")]
    Expired,
    #[error("verify token: current time is before the nbf (not before) time")]
    NotYetValid,
    #[error("required claim {0} value does not match")]
    Required(String),
    #[error("email not verified")]
    EmailNotVerified,
    #[error("the username claim is empty")]
    EmptyUsername,
    #[error("parse groups claim {0:?}: must be a string or a list of strings")]
    Groups(String),
    #[error("the groups claim {0:?} is a distributed claim, which is not supported")]
    DistributedGroups(String),
    #[error("parse claim {0:?}: claim not present")]
    Missing(String),
    #[error("parse claim {0:?}: must be a string")]
    NotText(String),
    #[error("error evaluating {0} expression: {1}")]
    Expression(&'static str, ExpressionError),
    #[error("empty username via CEL expression is not allowed")]
    EmptyUsernameOfExpression,
}

/// One provider, and the mapping of its claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pub url: String,
    /// The URL of the discovery document, if it is not below the issuer's URL.
    pub discovery_url: Option<String>,
    /// The provider's CA bundle in PEM; None for the system's.
    pub certificate_authority: Option<String>,
    pub audiences: Vec<String>,
    pub algorithms: Vec<String>,
    pub username: Claim,
    pub groups: Option<Claim>,
    pub uid: Option<String>,
    /// Claims and the values that they must have.
    pub required: Vec<(String, String)>,
    /// Expressions for `username`, `groups` and `uid` replace the claims.
    pub expressions: Expressions,
}

/// A claim, and the prefix of the name that is built from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub prefix: String,
}

/// The providers; exchanged when the configuration file changes.
pub type Issuers = ArcSwap<Vec<Arc<Issuer>>>;

/// A provider with its keys.
pub struct Issuer {
    pub rules: Rules,
    keys: keys::Keys,
}

impl Issuer {
    /// The keys are fetched through `client` when they are first needed.
    pub fn new(rules: Rules, client: Client) -> Result<Issuer, UrlError> {
        let below = || format!("{}/.well-known/openid-configuration", rules.url.trim_end_matches('/'));
        let discovery = Url::parse(&rules.discovery_url.clone().unwrap_or_else(below))?;
        let keys = keys::Keys::new(client, discovery, rules.url.clone());
        Ok(Issuer { rules, keys })
    }

    /// Verifies a token. It waits if the keys have to be fetched.
    fn judge<'a>(
        self: Arc<Self>,
        auth: &'a Authenticator,
        token: Unverified<'a>,
        question: TokenRequest<'a>,
    ) -> TokenVerdict<'a> {
        if let Some(verified) = self.keys.verifies(&token) {
            return TokenVerdict::Now(self.conclude(auth, &token, verified, question));
        }
        TokenVerdict::Later(Box::pin(async move {
            match self.keys.refresh().await {
                Err(why) => Verdict::refused(format!("oidc: verify token: {why}")),
                Ok(()) => {
                    let verified = self.keys.verifies(&token).unwrap_or(false);
                    self.conclude(auth, &token, verified, question)
                }
            }
        }))
    }

    fn conclude(
        &self,
        auth: &Authenticator,
        token: &Unverified<'_>,
        verified: bool,
        question: TokenRequest<'_>,
    ) -> Verdict {
        if !verified {
            return Verdict::refused("oidc: verify token: failed to verify signature");
        }
        match owner(&self.rules, token, question.now) {
            Ok(user) => auth.config.for_any_audience(with_authenticated_group(user), question.audiences),
            Err(why) => Verdict::refused(format!("oidc: {why}")),
        }
    }
}

pub(crate) fn authenticate<'a>(auth: &'a Authenticator, question: TokenRequest<'a>) -> TokenVerdict<'a> {
    let issuers = auth.config.issuers.load();
    if issuers.is_empty() {
        return TokenVerdict::Now(Verdict::Unknown);
    }
    let Some(token) = jwt::split(question.token) else { return TokenVerdict::Now(Verdict::Unknown) };
    let named = token.claims.str("iss").to_string();
    let Some(issuer) = issuers.iter().find(|issuer| issuer.rules.url == named) else {
        return TokenVerdict::Now(Verdict::Unknown);
    };
    // Checked before any key is fetched: a token that is not allowed is not worth a fetch.
    if !issuer.rules.algorithms.iter().any(|allowed| allowed == token.algorithm()) {
        return TokenVerdict::Now(Verdict::refused("oidc: verify token: the algorithm is not allowed"));
    }
    issuer.clone().judge(auth, token, question)
}

/// The user of a token with a valid signature.
fn owner(rules: &Rules, token: &Unverified<'_>, now: i64) -> Result<User, ClaimError> {
    let claims = &token.claims;
    if !token.audiences().iter().any(|audience| rules.audiences.iter().any(|wanted| wanted == audience)) {
        return Err(ClaimError::Audience(rules.audiences.clone()));
    }
    check_time(claims, now)?;
    let user = User {
        name: username(rules, claims)?,
        groups: groups(rules, claims)?,
        uid: uid(rules, claims)?,
        extra: extra(rules, claims)?,
    };
    for (name, value) in &rules.required {
        if text(claims, name)? != *value {
            return Err(ClaimError::Required(name.clone()));
        }
    }
    let failed = |what: &'static str| move |error| ClaimError::Expression(what, error);
    rules.expressions.check_claims(claims).map_err(failed("claim validation"))?;
    rules.expressions.check_user(&user).map_err(failed("user info validation"))?;
    Ok(user)
}

fn check_time(claims: &Tree, now: i64) -> Result<(), ClaimError> {
    let seconds = |name: &str| match claims.get(name) {
        Some(Tree::Float(seconds)) => Some(*seconds as i64),
        other => other.and_then(Tree::as_int),
    };
    if seconds("exp").is_none_or(|end| end < now) {
        return Err(ClaimError::Expired);
    }
    if seconds("nbf").is_some_and(|start| now + NOT_BEFORE_LEEWAY_SECONDS < start) {
        return Err(ClaimError::NotYetValid);
    }
    Ok(())
}

fn username(rules: &Rules, claims: &Tree) -> Result<String, ClaimError> {
    if let Some(expression) = &rules.expressions.username {
        let name =
            expression.text("username", claims).map_err(|error| ClaimError::Expression("username claim", error))?;
        return if name.is_empty() { Err(ClaimError::EmptyUsernameOfExpression) } else { Ok(name) };
    }
    let claim = &rules.username;
    let name = text(claims, &claim.name)?;
    let verified = claims.get("email_verified").is_none_or(|verified| verified.as_bool() == Some(true));
    if claim.name == "email" && !verified {
        return Err(ClaimError::EmailNotVerified);
    }
    if name.is_empty() { Err(ClaimError::EmptyUsername) } else { Ok(format!("{}{name}", claim.prefix)) }
}

fn groups(rules: &Rules, claims: &Tree) -> Result<Vec<String>, ClaimError> {
    match (&rules.expressions.groups, &rules.groups) {
        (Some(expression), _) => expression.texts(claims).map_err(|error| ClaimError::Expression("group claim", error)),
        (None, Some(claim)) => groups_of_claim(claim, claims),
        (None, None) => Ok(Vec::new()),
    }
}

fn uid(rules: &Rules, claims: &Tree) -> Result<String, ClaimError> {
    match (&rules.expressions.uid, &rules.uid) {
        (Some(expression), _) => {
            expression.text("uid", claims).map_err(|error| ClaimError::Expression("uid claim", error))
        }
        (None, Some(claim)) => text(claims, claim),
        (None, None) => Ok(String::new()),
    }
}

/// The attributes of the configuration, and the token's own name.
fn extra(rules: &Rules, claims: &Tree) -> Result<Map, ClaimError> {
    let mut extra = rules.expressions.extra(claims).map_err(|error| ClaimError::Expression("extra claim", error))?;
    let id = claims.str("jti");
    if !id.is_empty() {
        extra.insert("authentication.kubernetes.io/credential-id", list![format!("JTI={id}")]);
    }
    Ok(extra)
}

/// A single group may be a string.
fn groups_of_claim(claim: &Claim, claims: &Tree) -> Result<Vec<String>, ClaimError> {
    let bad = || ClaimError::Groups(claim.name.clone());
    let prefixed = |group: &Tree| group.as_str().map(|group| format!("{}{group}", claim.prefix)).ok_or_else(bad);
    match claims.get(&claim.name) {
        Some(Tree::List(all)) => all.iter().map(prefixed).collect(),
        Some(Tree::Null) => Ok(Vec::new()),
        Some(one) => Ok(vec![prefixed(one)?]),
        None if claims.at("_claim_names").has(&claim.name) => Err(ClaimError::DistributedGroups(claim.name.clone())),
        None => Ok(Vec::new()),
    }
}

fn text(claims: &Tree, name: &str) -> Result<String, ClaimError> {
    match claims.get(name) {
        None => Err(ClaimError::Missing(name.to_string())),
        Some(value) => value.as_str().map(str::to_string).ok_or_else(|| ClaimError::NotText(name.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn judged(claims: &str) -> Result<String, ClaimError> {
        let rules = Rules {
            audiences: vec!["a".to_string(), "b".to_string()],
            username: Claim { name: "email".to_string(), prefix: "x:".to_string() },
            groups: Some(Claim { name: "roles".to_string(), prefix: "r:".to_string() }),
            uid: Some("sub".to_string()),
            required: vec![("tenant".to_string(), "t".to_string())],
            ..Rules::default()
        };
        let base = r#"{"aud":["z","b"],"exp":2000,"email":"e","roles":["p","q"],"sub":"s","tenant":"t"}"#;
        let mut tree = json::decode(base.as_bytes()).expect("claims");
        for (key, value) in json::decode(claims.as_bytes()).expect("changes").as_map().expect("a map").iter() {
            tree.set(key, value.clone());
        }
        let token = Unverified { header: Tree::Null, claims: tree, signed: "", signature: Vec::new() };
        owner(&rules, &token, 1000).map(|user| format!("{} {} {}", user.name, user.uid, user.groups.join(",")))
    }

    #[test]
    fn claims_become_a_user() {
        let cases = [
            ("{}", "x:e s r:p,r:q"),
            (r#"{"aud":"a","roles":"one"}"#, "x:e s r:one"),
            (r#"{"email_verified":true,"nbf":1200}"#, "x:e s r:p,r:q"),
        ];
        for (claims, want) in cases {
            assert_eq!(judged(claims).as_deref(), Ok(want), "{claims}");
        }
    }

    #[test]
    fn groups_that_are_kept_elsewhere_are_not_followed() {
        let claim = Claim { name: "roles".to_string(), prefix: String::new() };
        let of = |text: &str| groups_of_claim(&claim, &json::decode(text.as_bytes()).expect("claims"));
        assert_eq!(of("{}"), Ok(Vec::new()));
        assert_eq!(of(r#"{"_claim_names":{"other":"s"}}"#), Ok(Vec::new()));
        let error = of(r#"{"_claim_names":{"roles":"s"},"_claim_sources":{"s":{"endpoint":"https://a"}}}"#);
        assert_eq!(
            error.map_err(|error| error.to_string()),
            Err("the groups claim \"roles\" is a distributed claim, which is not supported".to_string())
        );
    }

    #[test]
    fn bad_claims_are_refused() {
        let cases = [
            (r#"{"aud":"c"}"#, "expected audience"),
            (r#"{"aud":7}"#, "expected audience"),
            (r#"{"exp":999}"#, "token is expired"),
            (r#"{"exp":"never"}"#, "token is expired"),
            (r#"{"nbf":1400}"#, "before the nbf"),
            (r#"{"email":7}"#, "must be a string"),
            (r#"{"email":""}"#, "the username claim is empty"),
            (r#"{"email_verified":false}"#, "email not verified"),
            (r#"{"email_verified":"yes"}"#, "email not verified"),
            (r#"{"roles":[7]}"#, "a string or a list of strings"),
            (r#"{"tenant":"u"}"#, "required claim tenant value does not match"),
            (r#"{"sub":null}"#, "must be a string"),
        ];
        for (claims, want) in cases {
            let got = judged(claims).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(got.contains(want), "{claims}: {got}");
        }
    }
}
