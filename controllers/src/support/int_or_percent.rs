//! Numbers that may be percentages: `3` or `25%`.

use api::Tree;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// None if it is neither a number nor a percentage.
pub(crate) fn scaled_value(value: &Tree, whole: i64, round: Rounding) -> Option<i64> {
    if let Some(number) = value.as_int() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let hundredths = percent.saturating_mul(whole);
    Some(match round {
        Rounding::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0),
        Rounding::Down => hundredths.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded() {
        let check = |value: Tree, whole, up, down| {
            assert_eq!(scaled_value(&value, whole, Rounding::Up), up, "{value:?} of {whole}");
            assert_eq!(scaled_value(&value, whole, Rounding::Down), down, "{value:?} of {whole}");
        };
        check(Tree::from(3), 10, Some(3), Some(3));
        check(Tree::from("25%"), 10, Some(3), Some(2));
        check(Tree::from("25%"), 4, Some(1), Some(1));
        check(Tree::from("0%"), 4, Some(0), Some(0));
        check(Tree::from("150%"), 3, Some(5), Some(4));
        check(Tree::from("many"), 4, None, None);
        check(Tree::Null, 4, None, None);
    }
}
