//! The nearest of several names.

/// The number of changed, added and removed characters, up to a limit.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The name that was probably meant: at most two characters differ, and not everything.
pub fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    let scored = names.map(|name| (distance(&text, name), name));
    let (score, name) = scored.min_by_key(|(score, _)| *score)?;
    (score <= 2 && score < text.chars().count()).then_some(name)
}

/// Whether two names are as near as upstream requires for its suggestions of commands.
pub fn is_similar(text: &str, name: &str) -> bool {
    distance(&text.to_lowercase(), name) <= 2 || name.starts_with(&text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest() {
        let names = ["namespace", "output", "watch"];
        assert_eq!(nearest("namesapce", names.into_iter()), Some("namespace"));
        assert_eq!(nearest("ouput", names.into_iter()), Some("output"));
        assert_eq!(nearest("zzz", names.into_iter()), None);
        assert_eq!(nearest("", names.into_iter()), None);
    }
}
