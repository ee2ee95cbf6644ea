//! Unified line diffs in error messages. The matching is that of Python's difflib, like upstream's: lines that are
//! very common in a long text are not used as anchors.

use std::collections::HashMap;

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// In longer texts very common lines are ignored.
const COMMON_FROM: usize = 200;

/// The hunks of a unified diff, without a header; empty if nothing differs.
pub(crate) fn unified(old: &[String], new: &[String]) -> String {
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    let mut out = String::new();
    for hunk in hunks(&changes(&old, &new)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (from, to) = (range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        out.push_str(&format!("@@ -{from} +{to} @@\n"));
        for step in &hunk {
            step.write(&old, &new, &mut out);
        }
    }
    out
}

/// A part of both texts, equal or not; ends are exclusive.
#[derive(Debug, Clone, Copy)]
struct Step {
    equal: bool,
    old: (usize, usize),
    new: (usize, usize),
}

impl Step {
    fn write(&self, old: &[&str], new: &[&str], out: &mut String) {
        let mut lines = |sign: char, lines: &[&str]| {
            for line in lines {
                out.push(sign);
                out.push_str(line);
                out.push('\n');
            }
        };
        if self.equal {
            return lines(' ', &old[self.old.0..self.old.1]);
        }
        lines('-', &old[self.old.0..self.old.1]);
        lines('+', &new[self.new.0..self.new.1]);
    }
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// Groups the steps so that each group has at most three equal lines at its ends.
fn hunks(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut hunks: Vec<Vec<Step>> = vec![Vec::new()];
    let last = steps.len().saturating_sub(1);
    for (index, step) in steps.iter().enumerate() {
        let mut step = *step;
        let length = step.old.1 - step.old.0;
        if step.equal && index == 0 {
            step = tail(step);
        }
        if step.equal && index == last {
            step = head(step);
        } else if step.equal && index > 0 && length > 2 * CONTEXT {
            if let Some(hunk) = hunks.last_mut() {
                hunk.push(head(step));
            }
            hunks.push(Vec::new());
            step = tail(step);
        }
        if let Some(hunk) = hunks.last_mut() {
            hunk.push(step);
        }
    }
    hunks.retain(|hunk| hunk.iter().any(|step| !step.equal));
    hunks
}

fn head(step: Step) -> Step {
    let length = CONTEXT.min(step.old.1 - step.old.0);
    Step { old: (step.old.0, step.old.0 + length), new: (step.new.0, step.new.0 + length), ..step }
}

fn tail(step: Step) -> Step {
    let length = CONTEXT.min(step.old.1 - step.old.0);
    Step { old: (step.old.1 - length, step.old.1), new: (step.new.1 - length, step.new.1), ..step }
}

fn changes(old: &[&str], new: &[&str]) -> Vec<Step> {
    let mut matches = Vec::new();
    let places = anchors(new);
    // A worklist instead of recursion keeps the stack small whatever the texts.
    let mut todo = vec![(0, old.len(), 0, new.len())];
    while let Some((a, a_end, b, b_end)) = todo.pop() {
        let (at, to, length) = longest_match(old, new, &places, (a, a_end), (b, b_end));
        if length > 0 {
            matches.push((at, to, length));
            todo.push((a, at, b, to));
            todo.push((at + length, a_end, to + length, b_end));
        }
    }
    matches.sort_unstable();
    steps(&matches, old.len(), new.len())
}

fn steps(matches: &[(usize, usize, usize)], old_length: usize, new_length: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut a, mut b) = (0, 0);
    for (at, to, length) in matches.iter().copied().chain([(old_length, new_length, 0)]) {
        if at > a || to > b {
            steps.push(Step { equal: false, old: (a, at), new: (b, to) });
        }
        (a, b) = (at + length, to + length);
        if length == 0 {
            continue;
        }
        match steps.last_mut() {
            Some(step) if step.equal => (step.old.1, step.new.1) = (a, b),
            _ => steps.push(Step { equal: true, old: (at, a), new: (to, b) }),
        }
    }
    steps
}

/// The positions of each line in the new text, without very common lines.
fn anchors<'a>(new: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if new.len() >= COMMON_FROM {
        let most = new.len() / 100 + 1;
        places.retain(|_, places| places.len() <= most);
    }
    places
}

/// The longest run of equal lines, the first of several; extended over common lines at both ends.
fn longest_match(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (a, a_end): (usize, usize),
    (b, b_end): (usize, usize),
) -> (usize, usize, usize) {
    let (mut best_a, mut best_b, mut best) = (a, b, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in old.iter().enumerate().take(a_end).skip(a) {
        let mut next = HashMap::new();
        let here = places.get(line).map(Vec::as_slice).unwrap_or(&[]);
        for j in here.iter().copied().filter(|j| (b..b_end).contains(j)) {
            let length = j.checked_sub(1).and_then(|j| lengths.get(&j)).copied().unwrap_or(0) + 1;
            next.insert(j, length);
            if length > best {
                (best_a, best_b, best) = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    while best_a > a && best_b > b && old[best_a - 1] == new[best_b - 1] {
        (best_a, best_b, best) = (best_a - 1, best_b - 1, best + 1);
    }
    while best_a + best < a_end && best_b + best < b_end && old[best_a + best] == new[best_b + best] {
        best += 1;
    }
    (best_a, best_b, best)
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
        // Insertions are shown as inserted, not with a brace of the neighbour.
        check("[ { b } ]", "[ { a } { b } ]", "@@ -1,4 +1,7 @@\n [\n+{\n+a\n+}\n {\n b\n }\n");
    }
}
