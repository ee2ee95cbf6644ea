//! CEL in the configuration of an issuer: expressions that map the claims of a token to a user, and rules that claims
//! and users must follow. They are compiled when the configuration is read.

use std::sync::{Arc, LazyLock};

use api::{Map, Tree, tree};
use cel::{Budget, DeclType, Env, EvalError, Issues, Program, Type, Value};
use kinds::User;

/// The maximum size of lists and maps in claims and users.
const UNBOUNDED: u64 = u64::MAX;

/// Why an expression is rejected, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(in crate::authentication) enum CompileError {
    #[error("compilation failed: {0}")]
    Compilation(Issues),
    #[error("must evaluate to {0}")]
    Output(Type),
    #[error("program instantiation failed: {0}")]
    Instantiation(EvalError),
}

/// Why the value of an expression is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpressionError {
    #[error("expression '{0}' resulted in error: {1}")]
    Failed(String, String),
    #[error("{0} claim expression must return a string")]
    NotText(&'static str),
    #[error("expression must return a string or a list of strings")]
    NotTexts,
    #[error("validation expression must return a boolean")]
    NotBool,
    #[error("validation expression '{0}' failed: {1}")]
    Rule(String, String),
}

/// The expressions of an issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expressions {
    pub(in crate::authentication) username: Option<Expression>,
    pub(in crate::authentication) groups: Option<Expression>,
    pub(in crate::authentication) uid: Option<Expression>,
    /// The keys of extra attributes, and what their values are.
    pub(in crate::authentication) extra: Vec<(String, Expression)>,
    pub(in crate::authentication) claim_rules: Vec<Rule>,
    pub(in crate::authentication) user_rules: Vec<Rule>,
}

/// A condition, and the message for users who do not meet it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::authentication) struct Rule {
    pub(in crate::authentication) condition: Expression,
    pub(in crate::authentication) message: String,
}

/// A compiled expression. Two are equal if their texts are.
#[derive(Clone)]
pub(in crate::authentication) struct Expression {
    text: String,
    program: Arc<Program>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// The variable that an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::authentication) enum Variable {
    Claims,
    User,
}

impl Variable {
    fn name(self) -> &'static str {
        match self {
            Variable::Claims => "claims",
            Variable::User => "user",
        }
    }

    fn env(self) -> &'static Env {
        static CLAIMS: LazyLock<Env> = LazyLock::new(|| {
            base_env().declared_variable("claims", &DeclType::map(DeclType::scalar(Type::Dyn), UNBOUNDED))
        });
        static USER: LazyLock<Env> = LazyLock::new(|| base_env().declared_variable("user", &user_type()));
        match self {
            Variable::Claims => &CLAIMS,
            Variable::User => &USER,
        }
    }
}

fn base_env() -> Env {
    Env::new(cel::Expressions::Stored).time_zones(kinds::time_zones::database())
}

fn user_type() -> DeclType {
    let text = || DeclType::scalar(Type::String);
    let texts = || DeclType::list(text(), UNBOUNDED);
    let fields =
        [("username", text()), ("uid", text()), ("groups", texts()), ("extra", DeclType::map(texts(), UNBOUNDED))];
    DeclType::object("kubernetes.UserInfo", fields.map(|(name, of)| (name.to_string(), of)))
}

impl Expression {
    /// The type of a value from claims is only known at evaluation; a condition must be a bool.
    pub(in crate::authentication) fn compile(
        text: &str,
        variable: Variable,
        output: Option<Type>,
    ) -> Result<Expression, CompileError> {
        let program = variable.env().compile(text).map_err(CompileError::Compilation)?;
        if let Some(output) = output.filter(|output| output != program.output_type()) {
            return Err(CompileError::Output(output));
        }
        if let Some(error) = program.instantiation_error() {
            return Err(CompileError::Instantiation(error.clone()));
        }
        Ok(Expression { text: text.to_string(), program: Arc::new(program) })
    }

    pub(in crate::authentication) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the expression reads a claim by its name.
    pub(in crate::authentication) fn uses_claim(&self, claim: &str) -> bool {
        self.program.selects_field(Variable::Claims.name(), claim)
    }

    fn evaluate<'a>(&self, variable: Variable, tree: &'a Tree) -> Result<Value<'a>, ExpressionError> {
        let activation = [(variable.name(), Value::read_claims(tree))];
        let evaluation = self.program.evaluate(&activation, Budget::default());
        evaluation.result.map_err(|error| ExpressionError::Failed(self.text.clone(), error.to_string()))
    }

    /// The text that claims are mapped to; `what` names it in errors.
    pub(super) fn text(&self, what: &'static str, claims: &Tree) -> Result<String, ExpressionError> {
        let value = self.evaluate(Variable::Claims, claims)?;
        value.as_str().map(str::to_string).ok_or(ExpressionError::NotText(what))
    }

    /// The strings that claims map to: a string, a list of strings or null. Empty strings are dropped.
    pub(super) fn texts(&self, claims: &Tree) -> Result<Vec<String>, ExpressionError> {
        let all = match self.evaluate(Variable::Claims, claims)? {
            Value::Null => Vec::new(),
            Value::List(list) => list.iter().map(|item| text_of(&item.ok())).collect::<Result<_, _>>()?,
            one => vec![text_of(&Some(one))?],
        };
        Ok(all.into_iter().filter(|text| !text.is_empty()).collect())
    }
}

fn text_of(value: &Option<Value<'_>>) -> Result<String, ExpressionError> {
    value.as_ref().and_then(Value::as_str).map(str::to_string).ok_or(ExpressionError::NotTexts)
}

impl Expressions {
    /// The extra attributes of a user; attributes without a value are dropped.
    pub(super) fn extra(&self, claims: &Tree) -> Result<Map, ExpressionError> {
        let mut extra = Map::new();
        for (key, expression) in &self.extra {
            let values = expression.texts(claims)?;
            if !values.is_empty() {
                extra.insert(key.as_str(), Tree::List(values.iter().map(Tree::from).collect()));
            }
        }
        Ok(extra)
    }

    pub(super) fn check_claims(&self, claims: &Tree) -> Result<(), ExpressionError> {
        check(&self.claim_rules, Variable::Claims, claims)
    }

    pub(super) fn check_user(&self, user: &User) -> Result<(), ExpressionError> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let user = tree! {
            "username" => &user.name, "uid" => &user.uid, "extra" => Tree::Map(user.extra.clone()),
            "groups" => user.groups.iter().map(Tree::from).collect::<Vec<_>>(),
        };
        check(&self.user_rules, Variable::User, &user)
    }
}

/// All rules are evaluated first: an error of one is reported before the failure of another.
fn check(rules: &[Rule], variable: Variable, tree: &Tree) -> Result<(), ExpressionError> {
    let values = rules.iter().map(|rule| rule.condition.evaluate(variable, tree)).collect::<Result<Vec<_>, _>>()?;
    for (rule, value) in rules.iter().zip(values) {
        match value.as_bool() {
            Some(true) => {}
            Some(false) => return Err(ExpressionError::Rule(rule.condition.text.clone(), rule.message.clone())),
            None => return Err(ExpressionError::NotBool),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    const CLAIMS: &str = r#"{"sub":"s","n":7,"roles":["a","","b"],"one":"x","mixed":["a",1],"nothing":null,"a.b":"dot",
        "nested":{"c-d":["e"],"f__g":"h"},"list":[{"k/l":"m"}],"yes":true}"#;

    fn compile(text: &str) -> Expression {
        Expression::compile(text, Variable::Claims, None).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn claims_become_texts() {
        let claims = json::decode(CLAIMS.as_bytes()).expect("claims");
        let check = |expression: &str, want: Result<&[&str], &str>| {
            let got = compile(expression).texts(&claims).map_err(|error| error.to_string());
            let want = want.map(|texts| texts.iter().map(ToString::to_string).collect()).map_err(str::to_string);
            assert_eq!(got, want, "{expression}");
        };
        let wrong = "expression must return a string or a list of strings";
        check("claims.roles", Ok(&["a", "b"]));
        check("claims.one", Ok(&["x"]));
        check("''", Ok(&[]));
        check("claims.nothing", Ok(&[]));
        check("[claims.sub] + claims.roles.map(r, 'x:' + r)", Ok(&["s", "x:a", "x:", "x:b"]));
        check("claims.mixed", Err(wrong));
        check("claims.n", Err(wrong));
        check("claims.nested", Err(wrong));
        check("claims.a__dot__b", Ok(&["dot"]));
        check("claims['a.b']", Ok(&["dot"]));
        check("claims.nested.c__dash__d", Ok(&["e"]));
        check("claims.nested.f__underscores__g", Ok(&["h"]));
        check("claims.list[0].k__slash__l", Ok(&["m"]));
        check("claims.n == 7 && claims.n == 7.0 && type(claims.n) == double ? 'number' : ''", Ok(&["number"]));
        check("has(claims.a__dot__b) && !has(claims.missing) ? 'has' : ''", Ok(&["has"]));
        check("claims.?missing.orValue('other')", Ok(&["other"]));
        check("claims.missing", Err("expression 'claims.missing' resulted in error: no such key: missing"));
    }

    #[test]
    fn names_are_texts() {
        let claims = json::decode(CLAIMS.as_bytes()).expect("claims");
        assert_eq!(compile("claims.sub").text("username", &claims).as_deref(), Ok("s"));
        for expression in ["claims.n", "claims.roles", "claims.nothing", "claims.yes"] {
            assert_eq!(compile(expression).text("uid", &claims), Err(ExpressionError::NotText("uid")), "{expression}");
        }
    }

    #[test]
    fn rules_decide_for_the_user() {
        let extra = tree! { "a.b/c" => api::list!["d"] };
        let user = User {
            name: "system:x".to_string(),
            groups: vec!["g".to_string()],
            extra: extra.as_map().cloned().unwrap_or_default(),
            ..User::default()
        };
        let check = |expression: &str, want: Result<(), &str>| {
            let condition = Expression::compile(expression, Variable::User, Some(Type::Bool)).expect("a rule");
            let user_rules = vec![Rule { condition, message: "why".to_string() }];
            let expressions = Expressions { user_rules, ..Expressions::default() };
            let got = expressions.check_user(&user).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_string), "{expression}");
        };
        check("user.groups == ['g'] && user.uid == '' && user.extra['a.b/c'] == ['d']", Ok(()));
        check("user.extra.a__dot__b__slash__c[0] == 'd'", Ok(()));
        let system = "!user.username.startsWith('system:')";
        check(system, Err("validation expression '!user.username.startsWith('system:')' failed: why"));
        check(
            "user.groups[7] == 'g'",
            Err("expression 'user.groups[7] == 'g'' resulted in error: index out of bounds: 7"),
        );
    }

    #[test]
    fn expensive_expressions_are_stopped() {
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let claims = tree! { "l" => many.iter().map(Tree::from).collect::<Vec<_>>() };
        let text = "claims.l.map(a, claims.l.map(b, claims.l.map(c, a + b + c).size())).size() > 0 ? 'a' : 'b'";
        let error = compile(text).texts(&claims).expect_err("it costs too much");
        assert!(error.to_string().contains("cost limit"), "{error}");
    }
}
