//! Differences of texts, line by line, with some lines around them.

/// Equal lines that are shown before and after a difference.
const CONTEXT: usize = 3;
/// The comparisons of lines for one difference; texts that need more are shown as replaced.
const MAX_COMPARISONS: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The differing lines, marked with `-` and `+`, between equal ones; empty if there are none.
pub(super) fn difference(before: &[String], after: &[String]) -> Vec<String> {
    let lines = compare(before, after);
    let is_change = |at: usize| !matches!(lines[at], Line::Same(_));
    let is_near = |at: usize| (at.saturating_sub(CONTEXT)..lines.len().min(at + CONTEXT + 1)).any(is_change);
    let mut shown = Vec::new();
    let mut last = None;
    for (at, line) in lines.iter().enumerate().filter(|(at, _)| is_near(*at)) {
        if last.is_some_and(|last| at > last + 1) {
            shown.push("  ...".to_string());
        }
        last = Some(at);
        shown.push(match line {
            Line::Same(text) => format!("  {text}"),
            Line::Removed(text) => format!("- {text}"),
            Line::Added(text) => format!("+ {text}"),
        });
    }
    shown
}

fn compare<'a>(before: &'a [String], after: &'a [String]) -> Vec<Line<'a>> {
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (head, before) = before.split_at(same);
    let after = &after[same..];
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    let (before, tail) = before.split_at(before.len() - tail);
    let after = &after[..after.len() - tail.len()];
    let mut lines: Vec<Line<'_>> = head.iter().map(|line| Line::Same(line)).collect();
    compare_middle(before, after, &mut lines);
    lines.extend(tail.iter().map(|line| Line::Same(line)));
    lines
}

/// The longest common subsequence.
fn compare_middle<'a>(before: &'a [String], after: &'a [String], lines: &mut Vec<Line<'a>>) {
    let width = after.len() + 1;
    if before.len() * width > MAX_COMPARISONS {
        lines.extend(before.iter().map(|line| Line::Removed(line)));
        lines.extend(after.iter().map(|line| Line::Added(line)));
        return;
    }
    // The length of the common subsequence of what is left of both, from each position.
    let mut lengths = vec![0u32; (before.len() + 1) * width];
    for old in (0..before.len()).rev() {
        for new in (0..after.len()).rev() {
            lengths[old * width + new] = match before[old] == after[new] {
                true => lengths[(old + 1) * width + new + 1] + 1,
                false => lengths[(old + 1) * width + new].max(lengths[old * width + new + 1]),
            };
        }
    }
    let (mut old, mut new) = (0, 0);
    while old < before.len() || new < after.len() {
        let is_same = old < before.len() && new < after.len() && before[old] == after[new];
        let removes = old < before.len()
            && (new == after.len() || lengths[(old + 1) * width + new] >= lengths[old * width + new + 1]);
        if is_same {
            lines.push(Line::Same(&before[old]));
            (old, new) = (old + 1, new + 1);
        } else if removes {
            lines.push(Line::Removed(&before[old]));
            old += 1;
        } else {
            lines.push(Line::Added(&after[new]));
            new += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, expected: &[&str]) {
        let lines =
            |text: &str| text.split(' ').filter(|word| !word.is_empty()).map(str::to_string).collect::<Vec<_>>();
        assert_eq!(difference(&lines(before), &lines(after)), expected, "{before:?} {after:?}");
    }

    #[test]
    fn shows_changes_with_the_lines_around_them() {
        check("", "", &[]);
        check("a b", "a b", &[]);
        check("", "a", &["+ a"]);
        check("a", "", &["- a"]);
        check("a b c", "a x c", &["  a", "- b", "+ x", "  c"]);
        check("a b c d", "b c d e", &["- a", "  b", "  c", "  d", "+ e"]);
        check("1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 x", &["  6", "  7", "  8", "- 9", "+ x"]);
        let far = "a 1 2 3 4 5 6 7 8 b";
        check(
            far,
            "x 1 2 3 4 5 6 7 8 y",
            &["- a", "+ x", "  1", "  2", "  3", "  ...", "  6", "  7", "  8", "- b", "+ y"],
        );
    }

    #[test]
    fn large_differences_are_replacements() {
        let lines = |from: usize| (from..from + 3000).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(difference(&lines(0), &lines(10_000)).len(), 6000);
    }
}
