//! A unified diff with three lines of context, for the errors that show what an update tried to change.

use std::fmt::Write;

const CONTEXT: usize = 3;

/// A line of both, of the old alone or of the new alone.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Edit<'a> {
    Keep(&'a str),
    Remove(&'a str),
    Add(&'a str),
}

/// The changes from `old` to `new`; "" where there are none.
pub fn unified(old: &[String], new: &[String]) -> String {
    let edits = edits(old, new);
    let mut out = String::new();
    let mut at = 0;
    while let Some((from, to)) = next_hunk(&edits, at) {
        write_hunk(&edits, from, to, &mut out);
        at = to;
    }
    out
}

/// Along a longest common subsequence. Objects have a few hundred lines at most, so the table is small.
fn edits<'a>(old: &'a [String], new: &'a [String]) -> Vec<Edit<'a>> {
    let width = new.len() + 1;
    let mut lengths = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = if old[i] == new[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::with_capacity(old.len() + new.len());
    while i < old.len() || j < new.len() {
        let remove = || j == new.len() || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1];
        if i < old.len() && j < new.len() && old[i] == new[j] {
            out.push(Edit::Keep(&old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && remove() {
            out.push(Edit::Remove(&old[i]));
            i += 1;
        } else {
            out.push(Edit::Add(&new[j]));
            j += 1;
        }
    }
    out
}

/// The range of edits of the next hunk at or after `at`: changes that are close share one.
fn next_hunk(edits: &[Edit<'_>], at: usize) -> Option<(usize, usize)> {
    let changed = |edit: &Edit<'_>| !matches!(edit, Edit::Keep(_));
    let first = at + edits[at..].iter().position(changed)?;
    let mut last = first;
    while let Some(gap) = edits[last + 1..].iter().position(changed).filter(|gap| *gap <= 2 * CONTEXT) {
        last += gap + 1;
    }
    Some((first.saturating_sub(CONTEXT).max(at), (last + 1 + CONTEXT).min(edits.len())))
}

fn write_hunk(edits: &[Edit<'_>], from: usize, to: usize, out: &mut String) {
    let count = |range: &[Edit<'_>]| {
        let kept = range.iter().filter(|edit| matches!(edit, Edit::Keep(_))).count();
        let removed = range.iter().filter(|edit| matches!(edit, Edit::Remove(_))).count();
        (kept + removed, range.len() - removed)
    };
    let (before, hunk) = (count(&edits[..from]), count(&edits[from..to]));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "@@ -{} +{} @@", span(before.0, hunk.0), span(before.1, hunk.1));
    for edit in &edits[from..to] {
        let _ = match edit {
            Edit::Keep(line) => writeln!(out, " {line}"),
            Edit::Remove(line) => writeln!(out, "-{line}"),
            Edit::Add(line) => writeln!(out, "+{line}"),
        };
    }
}

fn span(before: usize, count: usize) -> String {
    match count {
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        _ => format!("{},{count}", before + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_three_lines_of_context() {
        let check = |old: &str, new: &str, want: &str| {
            let split = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
            assert_eq!(unified(&split(old), &split(new)), want, "{old} {new}");
        };
        check("a b", "a b", "");
        check("a b c d e f", "a b c X e f", "@@ -1,6 +1,6 @@\n a\n b\n c\n-d\n+X\n e\n f\n");
        check(
            "a 1 2 3 4 5 6 7 8 b",
            "x 1 2 3 4 5 6 7 8 y",
            "@@ -1,4 +1,4 @@\n-a\n+x\n 1\n 2\n 3\n@@ -7,4 +7,4 @@\n 6\n 7\n 8\n-b\n+y\n",
        );
    }
}
