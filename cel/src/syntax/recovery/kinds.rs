//! Sets of kinds of tokens, and those that the grammar needs.

use super::super::token::{KINDS, Kind};

/// A set of kinds of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(pub(super) u64);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);

    pub(super) const fn of(kinds: &[Kind]) -> Kinds {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u8;
            at += 1;
        }
        Kinds(bits)
    }

    pub(super) const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    pub(super) fn label(self) -> String {
        let labels: Vec<String> = KINDS.into_iter().filter(|kind| self.has(*kind)).map(Kind::label).collect();
        if labels.len() == 1 { labels.concat() } else { format!("{{{}}}", labels.join(", ")) }
    }
}

pub(super) const PRIMARY: Kinds = Kinds::of(&[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParen,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Identifier,
]);
pub(super) const EXPRESSION: Kinds = PRIMARY.and(Kinds::of(&[Kind::Exclamation]));
pub(super) const OPTIONAL_EXPRESSION: Kinds = EXPRESSION.and(Kinds::of(&[Kind::Question]));
pub(super) const NAME: Kinds = Kinds::of(&[Kind::Identifier, Kind::EscapedIdentifier]);
pub(super) const OPTIONAL_NAME: Kinds = NAME.and(Kinds::of(&[Kind::Question]));
pub(super) const RELATION: Kinds = Kinds::of(&[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
]);
pub(super) const CALCULATION: Kinds = Kinds::of(&[Kind::Star, Kind::Slash, Kind::Percent, Kind::Plus, Kind::Minus]);
pub(super) const MEMBER: Kinds = Kinds::of(&[Kind::Dot, Kind::LeftBracket]);

/// The tokens that can follow at a position inside a rule, and whether the rule can end there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) kinds: Kinds,
    pub(super) end: bool,
}

pub(super) const fn must(kinds: Kinds) -> Next {
    Next { kinds, end: false }
}

pub(super) const fn may(kinds: Kinds) -> Next {
    Next { kinds, end: true }
}

pub(super) const END: Next = may(Kinds::NONE);
