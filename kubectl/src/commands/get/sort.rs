//! `--sort-by`.

use std::cmp::Ordering;

use api::Tree;
use api::quantity::Quantity;

use crate::error::{Result, message};
use crate::print::JsonPath;

/// Sorts objects by the value of a path.
pub(crate) fn objects(path: &str, objects: &mut Vec<Tree>) -> Result<()> {
    let taken = std::mem::take(objects);
    *objects = sorted(path, taken, |object| object)?;
    Ok(())
}

/// Sorts the rows of a table by the value of a path in their objects.
pub(super) fn table(path: &str, table: &mut Tree) -> Result<()> {
    let Some(Tree::List(rows)) = table.get_mut("rows") else { return Ok(()) };
    let taken = std::mem::take(rows);
    *rows = sorted(path, taken, |row| row.at("object"))?;
    Ok(())
}

fn sorted(path: &str, items: Vec<Tree>, object: impl Fn(&Tree) -> &Tree) -> Result<Vec<Tree>> {
    let parsed = JsonPath::relaxed(path)?;
    let mut keyed = Vec::with_capacity(items.len());
    let mut has_value = items.is_empty();
    for item in items {
        let value = parsed.values(object(&item))?.into_iter().next();
        has_value |= value.is_some();
        keyed.push((value, item));
    }
    if !has_value {
        return message(format!(
            "couldn't find any field with path {} in the list of objects",
            api::field::go_quote(&full(path))
        ));
    }
    keyed.sort_by(|(a, _), (b, _)| match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => compare(a, b),
    });
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

fn full(path: &str) -> String {
    let inside = path.trim_start_matches('{').trim_end_matches('}').trim_start_matches('.');
    format!("{{.{inside}}}")
}

fn compare(a: &Tree, b: &Tree) -> Ordering {
    match (a, b) {
        (Tree::Int(a), Tree::Int(b)) => a.cmp(b),
        (Tree::Bool(a), Tree::Bool(b)) => a.cmp(b),
        (Tree::Str(a), Tree::Str(b)) => match (Quantity::parse(a), Quantity::parse(b)) {
            (Ok(a), Ok(b)) => a.as_f64().total_cmp(&b.as_f64()),
            _ => natural(a, b),
        },
        (a, b) => number(a).total_cmp(&number(b)),
    }
}

fn number(value: &Tree) -> f64 {
    match value {
        Tree::Int(value) => *value as f64,
        Tree::Float(value) => *value,
        _ => 0.0,
    }
}

/// `a9` before `a10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (x, y) = (digits(a), digits(b));
        if x > 0 && y > 0 {
            let trim = |text: &[u8]| text.iter().skip_while(|byte| **byte == b'0').copied().collect::<Vec<u8>>();
            let (left, right) = (trim(&a[..x]), trim(&b[..y]));
            let order = left.len().cmp(&right.len()).then_with(|| left.cmp(&right));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[x..], &b[y..]);
            continue;
        }
        match (a.first(), b.first()) {
            (Some(x), Some(y)) if x == y => (a, b) = (&a[1..], &b[1..]),
            (x, y) => return x.cmp(&y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn sorts_by_values() {
        let check = |values: &[Tree], want: &[Tree]| {
            let mut all: Vec<Tree> = values.iter().map(|value| tree! { "x" => value.clone() }).collect();
            objects(".x", &mut all).expect("sorted");
            let got: Vec<Tree> = all.iter().map(|object| object.at("x").clone()).collect();
            assert_eq!(got, want);
        };
        check(&["a10".into(), "a9".into()], &["a9".into(), "a10".into()]);
        check(&[Tree::Int(3), Tree::Int(1)], &[Tree::Int(1), Tree::Int(3)]);
        check(&["1Gi".into(), "500Mi".into()], &["500Mi".into(), "1Gi".into()]);
        assert!(objects(".y", &mut vec![tree! {}]).is_err());
    }
}
