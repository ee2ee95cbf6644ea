//! The claims of an issuer's tokens: how they become a user, and the rules that claims and users must follow. The texts
//! of errors are upstream's.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::{Tree, validation};
use cel::Type;

use super::super::oidc::expressions::{CompileError, Expression, Rule, Variable};
use super::super::oidc::{Claim, Rules};
use super::Reader;

/// The limit for the rules and the extra attributes of one issuer.
const MAX_EXPRESSIONS: usize = 64;
const BOTH: &str = "claim and expression can't both be set";
const EITHER: &str = "claim or expression is required";
const WITH_EXPRESSION: &str = "may not be specified when expression is set";
const EMAIL: &str = "claims.email_verified must be used in claimMappings.username.expression or \
                     claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                     used in claimMappings.username.expression";

impl Reader {
    /// Reports with the path of a field.
    fn report(&mut self, at: &str, report: impl FnOnce(&Path<'_>, &mut Errors)) {
        let mut errors = Errors::new();
        report(&Path::root(at), &mut errors);
        self.errors.extend(errors.iter().map(ToString::to_string));
    }

    fn compile(&mut self, at: &str, text: &str, variable: Variable, output: Option<Type>) -> Option<Expression> {
        let error = match Expression::compile(text, variable, output) {
            Ok(expression) => return Some(expression),
            Err(error) => error,
        };
        self.report(at, |path, errors| match error {
            CompileError::Instantiation(_) => errors.internal(path, &error.to_string()),
            _ => errors.invalid(path, text, &error.to_string()),
        });
        None
    }

    fn has_too_many(&mut self, at: &str, list: &[Tree]) -> bool {
        if list.len() > MAX_EXPRESSIONS {
            self.report(at, |path, errors| errors.too_many(path, list.len(), MAX_EXPRESSIONS));
        }
        list.len() > MAX_EXPRESSIONS
    }

    pub(super) fn claim_rules(&mut self, at: &str, list: &[Tree], rules: &mut Rules) {
        if self.has_too_many(at, list) {
            return;
        }
        let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
        for (n, rule) in list.iter().enumerate() {
            let at = format!("{at}[{n}]");
            self.check_fields(&at, rule, &["claim", "requiredValue", "expression", "message"]);
            let (claim, value) = (self.text(&at, rule, "claim"), self.text(&at, rule, "requiredValue"));
            let (text, message) = (self.text(&at, rule, "expression"), self.text(&at, rule, "message"));
            match (claim.is_empty(), text.is_empty()) {
                (false, false) => self.report(&at, |path, errors| errors.invalid(path, claim.as_str(), BOTH)),
                (true, true) => self.report(&at, |path, errors| errors.required(path, EITHER)),
                (false, true) => {
                    self.check_claim_rule(&at, &claim, &message, claims.insert(claim.clone()));
                    rules.required.push((claim, value));
                }
                (true, false) => {
                    self.refuse_required_value(&at, &value);
                    let is_new = expressions.insert(text.clone());
                    let condition = self.condition(&format!("{at}.expression"), &text, Variable::Claims, is_new);
                    rules.expressions.claim_rules.extend(condition.map(|condition| Rule { condition, message }));
                }
            }
        }
    }

    fn check_claim_rule(&mut self, at: &str, claim: &str, message: &str, is_new: bool) {
        self.report(at, |path, errors| {
            if !message.is_empty() {
                errors.invalid(&path.field("message"), message, "may not be specified when claim is set");
            }
            if !is_new {
                errors.duplicate(&path.field("claim"), claim);
            }
        });
    }

    fn refuse_required_value(&mut self, at: &str, value: &str) {
        if !value.is_empty() {
            self.report(at, |path, errors| errors.invalid(&path.field("requiredValue"), value, WITH_EXPRESSION));
        }
    }

    fn condition(&mut self, at: &str, text: &str, variable: Variable, is_new: bool) -> Option<Expression> {
        if !is_new {
            self.report(at, |path, errors| errors.duplicate(path, text));
            return None;
        }
        self.compile(at, text, variable, Some(Type::Bool))
    }

    pub(super) fn user_rules(&mut self, at: &str, list: &[Tree], rules: &mut Rules) {
        if self.has_too_many(at, list) {
            return;
        }
        let mut seen = HashSet::new();
        for (n, rule) in list.iter().enumerate() {
            let at = format!("{at}[{n}]");
            self.check_fields(&at, rule, &["expression", "message"]);
            let (text, message) = (self.text(&at, rule, "expression"), self.text(&at, rule, "message"));
            let at = format!("{at}.expression");
            if text.is_empty() {
                self.report(&at, |path, errors| errors.required(path, ""));
                continue;
            }
            let condition = self.condition(&at, &text, Variable::User, seen.insert(text.clone()));
            rules.expressions.user_rules.extend(condition.map(|condition| Rule { condition, message }));
        }
    }

    /// Reads the mappings. The rules of claims must have been read, since they can use `claims.email_verified`.
    pub(super) fn mappings(&mut self, at: &str, mappings: &Tree, rules: &mut Rules) {
        self.check_fields(at, mappings, &["username", "groups", "uid", "extra"]);
        let (path, username) = (format!("{at}.username"), mappings.at("username"));
        if let Some(claim) = self.prefixed(&path, username, &mut rules.expressions.username) {
            rules.username = claim;
        } else if username.str("expression").is_empty() {
            self.report(&path, |path, errors| errors.required(path, EITHER));
        }
        rules.groups = self.prefixed(&format!("{at}.groups"), mappings.at("groups"), &mut rules.expressions.groups);
        self.uid(&format!("{at}.uid"), mappings.at("uid"), rules);
        self.extra(&format!("{at}.extra"), mappings.list("extra"), rules);
        self.check_email(&path, rules);
    }

    /// A claim with a prefix, or an expression.
    fn prefixed(&mut self, at: &str, tree: &Tree, compiled: &mut Option<Expression>) -> Option<Claim> {
        self.check_fields(at, tree, &["claim", "prefix", "expression"]);
        let (name, text) = (self.text(at, tree, "claim"), self.text(at, tree, "expression"));
        let prefix = self.text(at, tree, "prefix");
        if !name.is_empty() && !text.is_empty() {
            self.report(at, |path, errors| errors.invalid(path, "", BOTH));
        } else if !text.is_empty() {
            if tree.has("prefix") {
                let path = format!("{at}.prefix");
                self.report(&path, |path, errors| errors.invalid(path, prefix.as_str(), WITH_EXPRESSION));
            }
            *compiled = self.compile(&format!("{at}.expression"), &text, Variable::Claims, None);
        } else if !name.is_empty() && !tree.has("prefix") {
            let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            self.report(&format!("{at}.prefix"), |path, errors| errors.required(path, why));
        }
        (!name.is_empty()).then_some(Claim { name, prefix })
    }

    fn uid(&mut self, at: &str, tree: &Tree, rules: &mut Rules) {
        self.check_fields(at, tree, &["claim", "expression"]);
        let (claim, text) = (self.text(at, tree, "claim"), self.text(at, tree, "expression"));
        if !claim.is_empty() && !text.is_empty() {
            self.report(at, |path, errors| errors.invalid(path, "", BOTH));
        } else if !text.is_empty() {
            rules.expressions.uid = self.compile(&format!("{at}.expression"), &text, Variable::Claims, None);
        }
        rules.uid = Some(claim).filter(|claim| !claim.is_empty());
    }

    fn extra(&mut self, at: &str, list: &[Tree], rules: &mut Rules) {
        if self.has_too_many(at, list) {
            return;
        }
        let mut seen = HashSet::new();
        for (n, mapping) in list.iter().enumerate() {
            let at = format!("{at}[{n}]");
            self.check_fields(&at, mapping, &["key", "valueExpression"]);
            let (key, text) = (self.text(&at, mapping, "key"), self.text(&at, mapping, "valueExpression"));
            self.report(&format!("{at}.key"), |path, errors| check_extra_key(path, &key, errors));
            if !seen.insert(key.clone()) {
                self.report(&format!("{at}.key"), |path, errors| errors.duplicate(path, key.as_str()));
                continue;
            }
            let at = format!("{at}.valueExpression");
            if text.is_empty() {
                self.report(&at, |path, errors| errors.required(path, ""));
                continue;
            }
            let compiled = self.compile(&at, &text, Variable::Claims, None);
            rules.expressions.extra.extend(compiled.map(|expression| (key, expression)));
        }
    }

    /// An address that its owner did not confirm must not become a name by accident.
    fn check_email(&mut self, at: &str, rules: &Rules) {
        let expressions = &rules.expressions;
        let Some(username) = expressions.username.as_ref().filter(|username| username.uses_claim("email")) else {
            return;
        };
        let extra = expressions.extra.iter().map(|(_, expression)| expression);
        let conditions = expressions.claim_rules.iter().map(|rule| &rule.condition);
        let mut all = std::iter::once(username).chain(extra).chain(conditions);
        if !all.any(|expression| expression.uses_claim("email_verified")) {
            let path = format!("{at}.expression");
            self.report(&path, |path, errors| errors.invalid(path, username.as_str(), EMAIL));
        }
    }
}

fn check_extra_key(path: &Path<'_>, key: &str, errors: &mut Errors) {
    if key.is_empty() {
        errors.required(path, "");
        return;
    }
    for (value, message) in validation::domain_prefixed_path(key) {
        errors.invalid(path, value, &message);
    }
    if key.to_lowercase() != key {
        errors.invalid(path, key, "must be lowercase");
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_below =
        |reserved: &str| domain.strip_suffix(reserved).is_some_and(|front| front.is_empty() || front.ends_with('.'));
    if is_below("kubernetes.io") || is_below("k8s.io") {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.invalid(path, key, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of one issuer with these mappings and rules, in YAML's flow style.
    fn read(mappings: &str, claim_rules: &str, user_rules: &str) -> Result<Rules, Vec<String>> {
        let text = format!(
            "{{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration, jwt: [{{issuer: {{url: \
             'https://a', audiences: [x]}}, claimMappings: {{{mappings}}}, claimValidationRules: [{claim_rules}], \
             userValidationRules: [{user_rules}]}}]}}"
        );
        super::super::read(text.as_bytes(), &[]).map(|mut read| read.issuers.remove(0))
    }

    #[test]
    fn expressions_are_compiled() {
        let mappings = "username: {expression: 'claims.email'}, groups: {expression: '[claims.a, claims.b]'}, \
                        uid: {expression: claims.sub}, extra: [{key: example.com/a, valueExpression: claims.a}]";
        let rules = read(mappings, "{expression: claims.email_verified == true, message: m}", "{expression: 'true'}");
        let rules = rules.unwrap_or_else(|errors| panic!("{errors:?}"));
        let expressions = &rules.expressions;
        let all = [&expressions.username, &expressions.groups, &expressions.uid];
        assert!(all.iter().all(|expression| expression.is_some()), "{expressions:?}");
        assert_eq!((expressions.extra.len(), expressions.claim_rules.len(), expressions.user_rules.len()), (1, 1, 1));
    }

    #[test]
    fn errors_are_those_of_upstream() {
        let name = "username: {claim: sub, prefix: ''}";
        let check = |mappings: &str, claim_rules: &str, user_rules: &str, want: &str| {
            let errors = read(mappings, claim_rules, user_rules).err().unwrap_or_default();
            assert!(errors.iter().any(|error| error.starts_with(want)), "{mappings} {claim_rules}: {errors:?}");
        };
        let mapping = |mapping: &str, want: &str| check(mapping, "", "", &format!("jwt[0].claimMappings.{want}"));
        mapping(
            "username: {claim: a, prefix: '', expression: b}",
            "username: Invalid value: \"\": claim and expression",
        );
        mapping(
            "username: {expression: claims.a, prefix: p}",
            "username.prefix: Invalid value: \"p\": may not be specified when expression is set",
        );
        mapping(
            "username: {expression: foo.bar}",
            "username.expression: Invalid value: \"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared \
             reference to 'foo' (in container '')",
        );
        for expression in ["claims.email", "claims.?email.orValue(\"\")", "has(claims.email) ? \"a\" : \"b\""] {
            mapping(&format!("username: {{expression: '{expression}'}}"), "username.expression: Invalid value: ");
        }
        let with = |rest: &str| format!("{name}, {rest}");
        mapping(&with("groups: {claim: a, expression: b}"), "groups: Invalid value: \"\": claim and expression can't");
        mapping(&with("uid: {claim: a, expression: b}"), "uid: Invalid value: \"\": claim and expression can't both");
        mapping(&with("uid: {expression: '('}"), "uid.expression: Invalid value: \"(\": compilation failed: ERROR");
        mapping(&with("extra: [{valueExpression: claims.a}]"), "extra[0].key: Required value");
        mapping(
            &with("extra: [{key: foo, valueExpression: '1'}]"),
            "extra[0].key: Invalid value: \"foo\": must be a do",
        );
        mapping(
            &with("extra: [{key: a.b/C, valueExpression: '1'}]"),
            "extra[0].key: Invalid value: \"a.b/C\": must be l",
        );
        mapping(
            &with("extra: [{key: x.k8s.io/c, valueExpression: '1'}]"),
            "extra[0].key: Invalid value: \"x.k8s.io/c\": k8",
        );
        mapping(&with("extra: [{key: a.b/c}]"), "extra[0].valueExpression: Required value");
        let twice = "extra: [{key: a.b/c, valueExpression: '1'}, {key: a.b/c, valueExpression: '2'}]";
        mapping(&with(twice), "extra[1].key: Duplicate value: \"a.b/c\"");

        let rule = |rule: &str, want: &str| check(name, rule, "", &format!("jwt[0].claimValidationRules{want}"));
        rule("{claim: a, expression: b}", "[0]: Invalid value: \"a\": claim and expression can't both be set");
        rule("{message: a}", "[0]: Required value: claim or expression is required");
        rule("{claim: a, message: b}", "[0].message: Invalid value: \"b\": may not be specified when claim is set");
        rule("{claim: a}, {claim: a}", "[1].claim: Duplicate value: \"a\"");
        rule("{expression: 'true', requiredValue: a}", "[0].requiredValue: Invalid value: \"a\": may not be specified");
        rule("{expression: 'true'}, {expression: 'true'}", "[1].expression: Duplicate value: \"true\"");
        rule("{expression: claims.a}", "[0].expression: Invalid value: \"claims.a\": must evaluate to bool");

        let user = |rule: &str, want: &str| check(name, "", rule, &format!("jwt[0].userValidationRules{want}"));
        user("{message: a}", "[0].expression: Required value");
        user("{expression: 'true'}, {expression: 'true'}", "[1].expression: Duplicate value: \"true\"");
        user("{expression: user.username}", "[0].expression: Invalid value: \"user.username\": must evaluate to bool");
        user(
            "{expression: user.name == \"\"}",
            "[0].expression: Invalid value: \"user.name == \\\"\\\"\": compilation",
        );
        check(name, &"{claim: a},".repeat(65), "", "jwt[0].claimValidationRules: Too many");
    }

    #[test]
    fn confirmed_addresses_are_accepted() {
        let email = "username: {expression: 'claims.email'}";
        let used = "username: {expression: 'claims.?email_verified.orValue(false) ? claims.email : claims.sub'}";
        let extra = format!("{email}, extra: [{{key: a.b/c, valueExpression: 'string(claims.email_verified)'}}]");
        for (mappings, rules) in [(email, "{expression: claims.email_verified == true}"), (used, ""), (&extra, "")] {
            assert!(read(mappings, rules, "").is_ok(), "{mappings}");
        }
    }
}
