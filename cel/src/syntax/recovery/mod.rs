//! The syntax errors of an expression that does not parse. Clients get upstream's messages, which come from the error
//! strategy of its parser generator: a wrong token is deleted if the next one fits, a missing one is inserted if the
//! current one fits after it, and otherwise tokens are skipped until one that can follow. This walks the grammar in the
//! same way and only collects messages.

mod grammar;
mod kinds;

use super::source::{Issue, Source};
use super::token::{Kind, Token};

use kinds::{END, Kinds, Next, must};

/// As many recoveries are attempted.
const MAX_RECOVERIES: usize = 30;
/// The maximum number of tokens that one recovery skips.
const MAX_SKIPPED: usize = 256;
/// The maximum nesting of a rule of the grammar.
const MAX_DEPTH: usize = 250;

/// An error that ends a rule.
enum Exception {
    Mismatch(Kinds),
    /// No alternative fits the tokens from the index on; the last one does not fit.
    NoAlternative(usize, usize),
    /// There were too many errors.
    Abort,
}

type Walk = Result<(), Exception>;

/// The syntax errors of the tokens.
pub(super) fn find_errors(source: &Source<'_>, tokens: &[Token<'_>]) -> Vec<Issue> {
    let mut walker = Walker {
        source,
        tokens,
        at: 0,
        errors: Vec::new(),
        follow: Vec::new(),
        recovering: false,
        last_error: None,
        last_rules: Vec::new(),
        recoveries: 0,
        depth: 0,
        aborted: false,
    };
    walker.rule("start", END, Walker::start);
    walker.errors
}

struct Walker<'w> {
    source: &'w Source<'w>,
    tokens: &'w [Token<'w>],
    at: usize,
    errors: Vec<Issue>,
    /// The tokens that can follow each active rule in its caller.
    follow: Vec<Next>,
    /// Whether errors are suppressed, since no token was matched after the last one.
    recovering: bool,
    last_error: Option<usize>,
    last_rules: Vec<&'static str>,
    recoveries: usize,
    depth: usize,
    aborted: bool,
}

/// Tokens and messages.
impl<'w> Walker<'w> {
    fn token(&self, ahead: usize) -> Token<'w> {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> Kind {
        self.token(0).kind
    }

    fn consume(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn report(&mut self, at: Token<'_>, message: &str) {
        self.errors.push(self.source.error(Some(at.offset), format!("Syntax error: {message}")));
    }

    fn quote(token: Token<'_>) -> String {
        if token.kind == Kind::End { "'<EOF>'".to_owned() } else { quote_text(token.text) }
    }

    /// The source from one token to another, with the space between them.
    fn text(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        for at in from..=to {
            let token = self.tokens[at];
            if let Some(previous) = at.checked_sub(1).filter(|_| at > from).map(|at| self.tokens[at]) {
                let gap = token.byte - previous.byte - previous.text.len();
                text.push_str(&" ".repeat(gap));
            }
            text.push_str(token.text);
        }
        if self.tokens[to].kind == Kind::End { text.trim_end().to_owned() } else { text }
    }

    fn abort(&mut self) -> Exception {
        self.aborted = true;
        Exception::Abort
    }
}

fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}

/// The error strategy.
impl Walker<'_> {
    /// Runs a rule. Its errors are reported, and tokens are skipped until one that can follow.
    fn rule(&mut self, name: &'static str, follow: Next, body: fn(&mut Self) -> Walk) {
        if self.aborted {
            return;
        }
        self.follow.push(follow);
        let walked = body(self);
        if let Err(exception) = walked {
            self.report_exception(exception);
            self.recover(name);
        }
        self.follow.pop();
    }

    fn report_exception(&mut self, exception: Exception) {
        if self.recovering || self.aborted {
            return;
        }
        self.recovering = true;
        match exception {
            Exception::Mismatch(expected) => {
                let token = self.token(0);
                let message = format!("mismatched input {} expecting {}", Self::quote(token), expected.label());
                self.report(token, &message);
            }
            Exception::NoAlternative(from, to) => {
                let text = self.text(from, to);
                let keyword = text.strip_prefix('.').filter(|word| matches!(*word, "true" | "false" | "null"));
                let message = match keyword {
                    Some(word) => format!("mismatched input '{word}' expecting IDENTIFIER"),
                    None if self.tokens[from].kind == Kind::End => "no viable alternative at input '<EOF>'".to_owned(),
                    None => format!("no viable alternative at input {}", quote_text(&text)),
                };
                self.report(self.tokens[to], &message);
            }
            Exception::Abort => {}
        }
    }

    fn count_recovery(&mut self) -> Walk {
        if self.aborted {
            return Err(Exception::Abort);
        }
        if self.recoveries == MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.report(self.token(0), &message);
            return Err(self.abort());
        }
        self.recoveries += 1;
        Ok(())
    }

    fn recover(&mut self, name: &'static str) {
        if self.aborted || self.count_recovery().is_err() {
            return;
        }
        let stuck = self.last_error == Some(self.at) && self.last_rules.contains(&name);
        if stuck {
            self.consume();
        }
        self.last_error = Some(self.at);
        self.last_rules.push(name);
        let set = self.recovery_set();
        self.skip_until(set, usize::from(stuck));
    }

    fn recovery_set(&self) -> Kinds {
        self.follow.iter().fold(Kinds::NONE, |set, next| set.and(next.kinds))
    }

    fn skip_until(&mut self, set: Kinds, mut skipped: usize) {
        while self.kind() != Kind::End && !set.has(self.kind()) {
            if skipped >= MAX_SKIPPED {
                let message = format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                self.errors.push(self.source.error(None, message));
                self.aborted = true;
                return;
            }
            self.consume();
            skipped += 1;
        }
    }

    /// The tokens that can follow, also in the callers if the rule can end.
    fn expected(&self, next: Next) -> Kinds {
        let (mut kinds, mut end) = (next.kinds, next.end);
        for follow in self.follow.iter().rev() {
            if !end {
                break;
            }
            kinds = kinds.and(follow.kinds);
            end = follow.end;
        }
        kinds
    }

    fn matched(&mut self) {
        self.recovering = false;
        self.last_error = None;
        self.last_rules.clear();
    }

    /// Deletes a token if the one after it fits.
    fn delete_token(&mut self, next: Next) -> bool {
        let expected = self.expected(next);
        let fits = expected.has(self.token(1).kind);
        if fits {
            self.report_unwanted(expected);
            self.consume();
            self.matched();
        }
        fits
    }

    fn report_unwanted(&mut self, expected: Kinds) {
        if self.recovering {
            return;
        }
        self.recovering = true;
        let token = self.token(0);
        let message = format!("extraneous input {} expecting {}", Self::quote(token), expected.label());
        self.report(token, &message);
    }

    /// Checks the token at the start of a choice.
    fn sync(&mut self, next: Next) -> Walk {
        if self.recovering || next.end || next.kinds.has(self.kind()) || self.delete_token(next) {
            return Ok(());
        }
        Err(Exception::Mismatch(self.expected(next)))
    }

    /// Matches a token; `after` are the tokens that can follow it.
    fn expect(&mut self, kind: Kind, after: Next) -> Walk {
        if self.kind() == kind {
            self.matched();
            self.consume();
            return Ok(());
        }
        self.count_recovery()?;
        let next = must(Kinds::of(&[kind]));
        if self.delete_token(next) {
            self.consume();
            return Ok(());
        }
        if self.expected(after).has(self.kind()) {
            self.report_missing(next.kinds);
            return Ok(());
        }
        Err(Exception::Mismatch(next.kinds))
    }

    fn report_missing(&mut self, expected: Kinds) {
        if self.recovering {
            return;
        }
        self.recovering = true;
        let token = self.token(0);
        let message = format!("missing {} at {}", expected.label(), Self::quote(token));
        self.report(token, &message);
    }

    fn no_alternative(&self, tokens: usize) -> Walk {
        let to = (self.at + tokens - 1).min(self.tokens.len() - 1);
        Err(Exception::NoAlternative(self.at, to))
    }
}
