//! The rules of the grammar, walked for their errors only.

use super::kinds::{
    CALCULATION, END, EXPRESSION, Kinds, MEMBER, NAME, Next, OPTIONAL_EXPRESSION, OPTIONAL_NAME, PRIMARY, RELATION,
    may, must,
};
use super::{Kind, MAX_DEPTH, Walk, Walker};

impl Walker<'_> {
    pub(super) fn start(&mut self) -> Walk {
        self.rule("expr", must(Kinds::of(&[Kind::End])), Self::expression);
        self.expect(Kind::End, END)
    }

    fn expression(&mut self) -> Walk {
        self.rule("conditionalOr", may(Kinds::of(&[Kind::Question])), Self::or);
        if self.kind() != Kind::Question || self.aborted {
            return Ok(());
        }
        self.expect(Kind::Question, must(EXPRESSION))?;
        self.rule("conditionalOr", must(Kinds::of(&[Kind::Colon])), Self::or);
        self.expect(Kind::Colon, must(EXPRESSION))?;
        self.rule("expr", END, Self::expression);
        Ok(())
    }

    fn or(&mut self) -> Walk {
        let follow = may(Kinds::of(&[Kind::Or]));
        self.rule("conditionalAnd", follow, Self::and);
        while self.kind() == Kind::Or && !self.aborted {
            self.expect(Kind::Or, must(EXPRESSION))?;
            self.rule("conditionalAnd", follow, Self::and);
        }
        Ok(())
    }

    fn and(&mut self) -> Walk {
        let follow = may(Kinds::of(&[Kind::And]));
        self.rule("relation", follow, Self::relation);
        while self.kind() == Kind::And && !self.aborted {
            self.expect(Kind::And, must(EXPRESSION))?;
            self.rule("relation", follow, Self::relation);
        }
        Ok(())
    }

    fn relation(&mut self) -> Walk {
        self.rule("calc", may(RELATION), Self::calculation);
        while RELATION.has(self.kind()) && !self.aborted {
            self.expect(self.kind(), must(EXPRESSION))?;
            self.rule("relation", may(RELATION), Self::single_relation);
        }
        Ok(())
    }

    /// The right side of a relation, which has no further relation.
    fn single_relation(&mut self) -> Walk {
        self.rule("calc", may(RELATION), Self::calculation);
        Ok(())
    }

    fn calculation(&mut self) -> Walk {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            self.errors.push(self.source.error(None, message));
            return Err(self.abort());
        }
        self.rule("unary", may(CALCULATION), Self::unary);
        while CALCULATION.has(self.kind()) && !self.aborted {
            self.expect(self.kind(), must(EXPRESSION))?;
            self.rule("unary", may(CALCULATION), Self::unary);
        }
        self.depth -= 1;
        Ok(())
    }

    fn unary(&mut self) -> Walk {
        self.sync(must(EXPRESSION))?;
        match self.kind() {
            Kind::Exclamation => self.repeat(Kind::Exclamation, EXPRESSION)?,
            Kind::Minus if matches!(self.token(1).kind, Kind::Int | Kind::Float) => {}
            Kind::Minus if !PRIMARY.has(self.token(1).kind) => return self.no_alternative(2),
            Kind::Minus => self.repeat(Kind::Minus, PRIMARY)?,
            kind if !PRIMARY.has(kind) => return self.no_alternative(1),
            _ => {}
        }
        self.rule("member", END, Self::member);
        Ok(())
    }

    /// The signs before an operand.
    fn repeat(&mut self, sign: Kind, next: Kinds) -> Walk {
        let start = self.at;
        while self.kind() == sign && !self.aborted {
            // A further minus can also be the sign of a number.
            if sign == Kind::Minus && self.at > start && !PRIMARY.has(self.token(1).kind) {
                return self.no_alternative(2);
            }
            self.expect(sign, must(next))?;
            if !self.recovering && !next.has(self.kind()) {
                self.report_unwanted(next);
                let set = next.and(self.recovery_set());
                self.skip_until(set, 0);
            }
        }
        Ok(())
    }

    fn member(&mut self) -> Walk {
        self.rule("primary", may(MEMBER), Self::primary);
        while MEMBER.has(self.kind()) && !self.aborted {
            if self.kind() == Kind::LeftBracket {
                self.index()?;
            } else {
                self.dot()?;
            }
        }
        Ok(())
    }

    fn dot(&mut self) -> Walk {
        match (self.token(1).kind, self.token(2).kind) {
            (Kind::Identifier, Kind::LeftParen) => {
                self.expect(Kind::Dot, must(Kinds::of(&[Kind::Identifier])))?;
                self.expect(Kind::Identifier, must(Kinds::of(&[Kind::LeftParen])))?;
                self.arguments(may(MEMBER))
            }
            (kind, _) if OPTIONAL_NAME.has(kind) => {
                self.expect(Kind::Dot, must(OPTIONAL_NAME))?;
                if self.kind() == Kind::Question {
                    self.expect(Kind::Question, must(NAME))?;
                }
                self.rule("escapeIdent", may(MEMBER), Self::name);
                Ok(())
            }
            _ => self.no_alternative(2),
        }
    }

    fn name(&mut self) -> Walk {
        self.sync(must(NAME))?;
        if NAME.has(self.kind()) { self.expect(self.kind(), END) } else { self.no_alternative(1) }
    }

    fn index(&mut self) -> Walk {
        self.expect(Kind::LeftBracket, must(OPTIONAL_EXPRESSION))?;
        self.sync(must(OPTIONAL_EXPRESSION))?;
        if self.kind() == Kind::Question {
            self.expect(Kind::Question, must(EXPRESSION))?;
        }
        self.rule("expr", must(Kinds::of(&[Kind::RightBracket])), Self::expression);
        self.expect(Kind::RightBracket, may(MEMBER))
    }

    fn primary(&mut self) -> Walk {
        self.sync(must(PRIMARY))?;
        match self.kind() {
            Kind::Dot | Kind::Identifier => self.named(),
            Kind::LeftParen => {
                self.expect(Kind::LeftParen, must(EXPRESSION))?;
                self.rule("expr", must(Kinds::of(&[Kind::RightParen])), Self::expression);
                self.expect(Kind::RightParen, END)
            }
            Kind::LeftBracket => {
                self.braced(Kind::LeftBracket, Kind::RightBracket, OPTIONAL_EXPRESSION, "listInit", Self::elements)
            }
            Kind::LeftBrace => {
                self.braced(Kind::LeftBrace, Kind::RightBrace, OPTIONAL_EXPRESSION, "mapInitializerList", Self::entries)
            }
            kind if PRIMARY.has(kind) => {
                self.rule("literal", END, Self::literal);
                Ok(())
            }
            _ => self.no_alternative(1),
        }
    }

    fn literal(&mut self) -> Walk {
        if self.kind() == Kind::Minus {
            if !matches!(self.token(1).kind, Kind::Int | Kind::Float) {
                return self.no_alternative(2);
            }
            self.expect(Kind::Minus, must(Kinds::of(&[Kind::Int, Kind::Float])))?;
        }
        self.expect(self.kind(), END)
    }

    fn named(&mut self) -> Walk {
        let dot = usize::from(self.kind() == Kind::Dot);
        if self.token(dot).kind != Kind::Identifier {
            return self.no_alternative(dot + 1);
        }
        if let Some(length) = self.message_name(dot) {
            (0..length).for_each(|_| self.consume());
            self.matched();
            return self.braced(Kind::LeftBrace, Kind::RightBrace, OPTIONAL_NAME, "fieldInitializerList", Self::fields);
        }
        let is_call = self.token(dot + 1).kind == Kind::LeftParen;
        (0..=dot).for_each(|_| self.consume());
        self.matched();
        if is_call { self.arguments(END) } else { Ok(()) }
    }

    fn message_name(&self, dot: usize) -> Option<usize> {
        let mut length = dot + 1;
        while self.token(length).kind == Kind::Dot && self.token(length + 1).kind == Kind::Identifier {
            length += 2;
        }
        (self.token(length).kind == Kind::LeftBrace).then_some(length)
    }

    fn arguments(&mut self, after: Next) -> Walk {
        let close = Kinds::of(&[Kind::RightParen]);
        self.expect(Kind::LeftParen, must(EXPRESSION.and(close)))?;
        self.sync(must(EXPRESSION.and(close)))?;
        if EXPRESSION.has(self.kind()) {
            self.rule("exprList", must(close), Self::expressions);
        }
        self.expect(Kind::RightParen, after)
    }

    fn expressions(&mut self) -> Walk {
        let follow = may(Kinds::of(&[Kind::Comma]));
        self.rule("expr", follow, Self::expression);
        while self.kind() == Kind::Comma && !self.aborted {
            self.expect(Kind::Comma, must(EXPRESSION))?;
            self.rule("expr", follow, Self::expression);
        }
        Ok(())
    }

    /// A list, map or message: its content is optional, and so is a comma after it.
    fn braced(
        &mut self,
        open: Kind,
        close: Kind,
        first: Kinds,
        name: &'static str,
        content: fn(&mut Self) -> Walk,
    ) -> Walk {
        let rest = Kinds::of(&[Kind::Comma]).and(Kinds(1 << close as u8));
        self.expect(open, must(first.and(rest)))?;
        self.sync(must(first.and(rest)))?;
        if first.has(self.kind()) {
            self.rule(name, must(rest), content);
        }
        self.sync(must(rest))?;
        if self.kind() == Kind::Comma {
            self.expect(Kind::Comma, must(Kinds(1 << close as u8)))?;
        }
        self.expect(close, END)
    }

    /// Whether another item follows the comma.
    fn continues(&self, first: Kinds) -> bool {
        self.kind() == Kind::Comma && first.has(self.token(1).kind) && !self.aborted
    }

    fn elements(&mut self) -> Walk {
        let follow = may(Kinds::of(&[Kind::Comma]));
        self.rule("optExpr", follow, Self::optional_expression);
        while self.continues(OPTIONAL_EXPRESSION) {
            self.expect(Kind::Comma, must(OPTIONAL_EXPRESSION))?;
            self.rule("optExpr", follow, Self::optional_expression);
        }
        Ok(())
    }

    fn optional_expression(&mut self) -> Walk {
        self.sync(must(OPTIONAL_EXPRESSION))?;
        if self.kind() == Kind::Question {
            self.expect(Kind::Question, must(EXPRESSION))?;
        }
        self.rule("expr", END, Self::expression);
        Ok(())
    }

    fn entries(&mut self) -> Walk {
        self.pair(Self::optional_expression)?;
        while self.continues(OPTIONAL_EXPRESSION) {
            self.expect(Kind::Comma, must(OPTIONAL_EXPRESSION))?;
            self.pair(Self::optional_expression)?;
        }
        Ok(())
    }

    fn fields(&mut self) -> Walk {
        self.pair(Self::optional_name)?;
        while self.continues(OPTIONAL_NAME) {
            self.expect(Kind::Comma, must(OPTIONAL_NAME))?;
            self.pair(Self::optional_name)?;
        }
        Ok(())
    }

    fn pair(&mut self, key: fn(&mut Self) -> Walk) -> Walk {
        self.rule("key", must(Kinds::of(&[Kind::Colon])), key);
        self.expect(Kind::Colon, must(EXPRESSION))?;
        self.rule("expr", may(Kinds::of(&[Kind::Comma])), Self::expression);
        Ok(())
    }

    fn optional_name(&mut self) -> Walk {
        self.sync(must(OPTIONAL_NAME))?;
        if self.kind() == Kind::Question {
            self.expect(Kind::Question, must(NAME))?;
        }
        self.rule("escapeIdent", END, Self::name);
        Ok(())
    }
}
