//! Semantic equality, which does not distinguish empty from missing values.

use api::Tree;

/// Equal except for empty values, so that objects written by another server are not rolled out again.
pub(crate) fn is_same(a: &Tree, b: &Tree) -> bool {
    match (a, b) {
        (Tree::Map(a), Tree::Map(b)) => {
            let of_a = a.iter().all(|(key, value)| is_same(value, b.get(key).unwrap_or(&Tree::Null)));
            of_a && b.iter().all(|(key, value)| a.contains(key) || is_empty(value))
        }
        (Tree::List(a), Tree::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (a, b) => a == b || (is_empty(a) && is_empty(b)),
    }
}

fn is_empty(tree: &Tree) -> bool {
    match tree {
        Tree::Null => true,
        Tree::List(items) => items.is_empty(),
        Tree::Map(map) => map.iter().all(|(_, value)| is_empty(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn empty_equals_missing() {
        let check = |a: Tree, b: Tree, want| {
            assert_eq!(is_same(&a, &b), want, "{a:?} {b:?}");
            assert_eq!(is_same(&b, &a), want, "{b:?} {a:?}");
        };
        check(tree! {}, tree! { "a" => Tree::Null, "b" => list![], "c" => tree! { "d" => tree! {} } }, true);
        check(tree! {}, tree! { "a" => "" }, false);
        check(tree! { "a" => 1 }, tree! { "a" => 2 }, false);
        check(tree! { "a" => list![1, 2] }, tree! { "a" => list![1] }, false);
        check(tree! { "a" => list![tree! {}] }, tree! { "a" => list![tree! { "b" => list![] }] }, true);
    }
}
