//! AuthenticationConfiguration: token issuers and anonymous access. Each error names the field.

mod claims;

use std::collections::HashSet;

use api::Tree;

use super::Anonymous;
use super::jwt::ALGORITHMS;
use super::oidc::Rules;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: &[&str] = &["v1", "v1beta1", "v1alpha1"];
const MAX_ISSUERS: usize = 64;

/// An AuthenticationConfiguration that was read.
#[derive(Debug, Default, PartialEq)]
pub struct Configuration {
    pub issuers: Vec<Rules>,
    /// None if the file does not set it.
    pub anonymous: Option<Anonymous>,
}

/// All errors are reported at once, each as `field: why`.
pub fn read(text: &[u8], own_issuers: &[String]) -> Result<Configuration, Vec<String>> {
    let tree = api::yaml::decode(text).map_err(|error| vec![error.to_string()])?;
    let mut reader = Reader { errors: Vec::new() };
    let configuration = reader.configuration(&tree, own_issuers);
    if reader.errors.is_empty() { Ok(configuration) } else { Err(reader.errors) }
}

struct Reader {
    errors: Vec<String>,
}

impl Reader {
    fn error(&mut self, at: &str, why: impl std::fmt::Display) {
        self.errors.push(format!("{at}: {why}"));
    }

    /// A misspelt field must not be passed over.
    fn check_fields(&mut self, at: &str, tree: &Tree, known: &[&str]) {
        let Some(map) = tree.as_map() else {
            if !tree.is_null() {
                self.error(at, "it must be a map");
            }
            return;
        };
        for key in map.keys().filter(|key| !known.contains(key)) {
            let joint = if at.is_empty() { "" } else { "." };
            self.errors.push(format!("{at}{joint}{key}: unknown field"));
        }
    }

    fn text(&mut self, at: &str, tree: &Tree, key: &str) -> String {
        match tree.get(key) {
            None | Some(Tree::Null) => String::new(),
            Some(Tree::Str(text)) => text.to_string(),
            Some(_) => {
                self.error(&format!("{at}.{key}"), "it must be a text");
                String::new()
            }
        }
    }

    fn configuration(&mut self, tree: &Tree, own_issuers: &[String]) -> Configuration {
        self.check_fields("", tree, &["apiVersion", "kind", "jwt", "anonymous"]);
        if tree.str("kind") != "AuthenticationConfiguration" {
            self.error("kind", "it must be AuthenticationConfiguration");
        }
        if !tree.str("apiVersion").strip_prefix(GROUP).is_some_and(|v| VERSIONS.contains(&v.trim_start_matches('/'))) {
            self.error("apiVersion", format!("it must be {GROUP}/ with one of {}", VERSIONS.join(", ")));
        }
        let list = tree.list("jwt");
        if list.len() > MAX_ISSUERS {
            self.error("jwt", format!("there can be no more than {MAX_ISSUERS}"));
        }
        let issuers: Vec<Rules> =
            list.iter().enumerate().map(|(at, jwt)| self.issuer(&format!("jwt[{at}]"), jwt, own_issuers)).collect();
        let mut seen = HashSet::new();
        for (at, rules) in issuers.iter().enumerate() {
            if !seen.insert(rules.url.clone()) {
                self.error(&format!("jwt[{at}].issuer.url"), "the same URL again");
            }
        }
        Configuration { issuers, anonymous: self.anonymous(tree.at("anonymous")) }
    }

    fn issuer(&mut self, at: &str, jwt: &Tree, own_issuers: &[String]) -> Rules {
        self.check_fields(at, jwt, &["issuer", "claimMappings", "claimValidationRules", "userValidationRules"]);
        let mut rules = Rules { algorithms: ALGORITHMS.iter().map(ToString::to_string).collect(), ..Rules::default() };
        self.provider(&format!("{at}.issuer"), jwt.at("issuer"), own_issuers, &mut rules);
        self.claim_rules(&format!("{at}.claimValidationRules"), jwt.list("claimValidationRules"), &mut rules);
        self.mappings(&format!("{at}.claimMappings"), jwt.at("claimMappings"), &mut rules);
        self.user_rules(&format!("{at}.userValidationRules"), jwt.list("userValidationRules"), &mut rules);
        rules
    }

    fn provider(&mut self, at: &str, issuer: &Tree, own_issuers: &[String], rules: &mut Rules) {
        let known =
            ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
        self.check_fields(at, issuer, &known);
        rules.url = self.text(at, issuer, "url");
        self.check_url(&format!("{at}.url"), &rules.url);
        if own_issuers.contains(&rules.url) {
            self.error(&format!("{at}.url"), "it is the issuer of service account tokens");
        }
        rules.discovery_url = Some(self.text(at, issuer, "discoveryURL")).filter(|url| !url.is_empty());
        if let Some(url) = rules.discovery_url.clone() {
            self.check_url(&format!("{at}.discoveryURL"), &url);
        }
        let authority = self.text(at, issuer, "certificateAuthority");
        rules.certificate_authority = Some(authority).filter(|pem| !pem.is_empty());
        if !self.text(at, issuer, "egressSelectorType").is_empty() {
            self.error(&format!("{at}.egressSelectorType"), "egress selectors are not supported");
        }
        self.audiences(at, issuer, rules);
    }

    fn audiences(&mut self, at: &str, issuer: &Tree, rules: &mut Rules) {
        for (n, audience) in issuer.list("audiences").iter().enumerate() {
            match audience.as_str() {
                Some(text) => rules.audiences.push(text.to_string()),
                None => self.error(&format!("{at}.audiences[{n}]"), "it must be a text"),
            }
        }
        let policy = self.text(at, issuer, "audienceMatchPolicy");
        if rules.audiences.is_empty() || rules.audiences.iter().any(String::is_empty) {
            self.error(&format!("{at}.audiences"), "at least one is required, and none may be empty");
        }
        if !matches!(policy.as_str(), "" | "MatchAny") || (policy.is_empty() && rules.audiences.len() > 1) {
            let why = "it must be MatchAny for several audiences, and nothing else for one";
            self.error(&format!("{at}.audienceMatchPolicy"), why);
        }
    }

    fn check_url(&mut self, at: &str, url: &str) {
        match crate::outbound::callout::Url::parse(url) {
            Err(why) => self.error(at, why),
            Ok(parsed) if !parsed.tls => self.error(at, "the scheme must be https"),
            Ok(_) if url.contains('?') => self.error(at, "it must not have a query"),
            Ok(_) => {}
        }
    }

    fn anonymous(&mut self, tree: &Tree) -> Option<Anonymous> {
        if tree.is_null() {
            return None;
        }
        self.check_fields("anonymous", tree, &["enabled", "conditions"]);
        let conditions = tree.list("conditions");
        let mut paths = Vec::new();
        for (n, condition) in conditions.iter().enumerate() {
            let at = format!("anonymous.conditions[{n}]");
            self.check_fields(&at, condition, &["path"]);
            paths.push(self.text(&at, condition, "path"));
        }
        Some(match (tree.bool("enabled"), conditions.is_empty()) {
            (true, true) => Anonymous::Anywhere,
            (true, false) => Anonymous::Only(paths),
            (false, true) => Anonymous::Never,
            (false, false) => {
                self.error("anonymous.conditions", "there must be none where anonymous callers are not let in");
                Anonymous::Never
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: 'https://a.example', audiences: [x, w], audienceMatchPolicy: MatchAny}
  claimMappings:
    username: {claim: sub, prefix: 'a:'}
    groups: {claim: roles, prefix: ''}
    uid: {claim: oid}
  claimValidationRules: [{claim: tenant, requiredValue: t}]
- issuer: {url: 'https://b.example/x', discoveryURL: 'https://c/d', audiences: [z]}
  claimMappings: {username: {claim: email, prefix: ''}}
anonymous: {enabled: true, conditions: [{path: /livez}]}
";

    #[test]
    fn a_file_becomes_issuers() {
        let read = read(GOOD.as_bytes(), &["https://own".to_string()]).expect("a configuration");
        let [a, b] = read.issuers.as_slice() else { panic!("{read:?}") };
        assert_eq!((a.url.as_str(), a.audiences.len(), a.algorithms.len()), ("https://a.example", 2, 9));
        assert_eq!(a.username, super::super::oidc::Claim { name: "sub".to_string(), prefix: "a:".to_string() });
        assert_eq!(a.required, [("tenant".to_string(), "t".to_string())]);
        assert_eq!((b.discovery_url.as_deref(), b.groups.as_ref()), (Some("https://c/d"), None));
        assert_eq!(read.anonymous, Some(Anonymous::Only(vec!["/livez".to_string()])));
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            ("config.k8s.io/v1", "config.k8s.io/v9", "apiVersion: it must be"),
            ("kind: Auth", "kind: Oth", "kind: it must be AuthenticationConfiguration"),
            ("https://a.example", "http://a.example", "jwt[0].issuer.url: the scheme must be https"),
            ("https://a.example", "https://own", "jwt[0].issuer.url: it is the issuer of service account tokens"),
            ("https://b.example/x", "https://a.example", "jwt[1].issuer.url: the same URL again"),
            ("https://c/d", "https://c/d?x", "jwt[1].issuer.discoveryURL: it must not have a query"),
            ("audienceMatchPolicy: MatchAny", "", "jwt[0].issuer.audienceMatchPolicy: it must be MatchAny"),
            ("audiences: [z]", "audiences: [7]", "jwt[1].issuer.audiences[0]: it must be a text"),
            ("audiences: [z]", "audiences: []", "jwt[1].issuer.audiences: at least one is required"),
            (
                ", prefix: 'a:'",
                "",
                "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set",
            ),
            (
                "username: {claim: email, prefix: ''}",
                "",
                "jwt[1].claimMappings.username: Required value: claim or expression",
            ),
            (
                "claim: tenant, requiredValue: t",
                "",
                "jwt[0].claimValidationRules[0]: Required value: claim or expression",
            ),
            ("anonymous:", "annonymous:", "annonymous: unknown field"),
            ("enabled: true", "enabled: false", "anonymous.conditions: there must be none"),
            ("kind: AuthenticationConfiguration", "kind: [", "line"),
        ];
        for (from, to, want) in cases {
            assert!(GOOD.contains(from), "{from}");
            let errors =
                read(GOOD.replacen(from, to, 1).as_bytes(), &["https://own".to_string()]).err().unwrap_or_default();
            assert!(errors.iter().any(|error| error.contains(want)), "{from} -> {to}: {errors:?}");
        }
    }
}
