use super::*;

fn endpoint(at: usize) -> Tree {
    tree! { "addresses" => list![format!("10.0.0.{at}")] }
}

fn slice(name: &str, from: usize, to: usize) -> Arc<Tree> {
    let endpoints: Vec<Tree> = (from..to).map(endpoint).collect();
    Arc::new(tree! { "metadata" => tree! { "name" => name, "labels" => tree! {} }, "endpoints" => endpoints })
}

/// Slices with the given numbers of endpoints, and the desired endpoints: the created, updated and deleted slices.
fn check(existing: &[(usize, usize)], wanted: std::ops::Range<usize>, want: (usize, &[&str], &[&str])) {
    let existing: Vec<Arc<Tree>> =
        existing.iter().enumerate().map(|(at, (from, to))| slice(&format!("s{at}"), *from, *to)).collect();
    let wanted = wanted.map(endpoint).map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let empty = tree! { "metadata" => tree! { "labels" => tree! {} } };
    let template = Template { empty, owns_annotations: false, max_endpoints: 10 };
    let changes = pack(&template, &existing, wanted);
    let updated: Vec<&str> = changes.update.iter().map(|slice| slice.str("metadata.name")).collect();
    let deleted: Vec<&str> = changes.delete.iter().map(|slice| slice.str("metadata.name")).collect();
    assert_eq!((changes.create.len(), updated.as_slice(), deleted.as_slice()), want);
}

#[test]
fn changes_few_slices() {
    check(&[], 0..25, (3, &[], &[]));
    check(&[(0, 10), (10, 15)], 0..15, (0, &[], &[]));
    check(&[(0, 10), (10, 15)], 0..17, (0, &["s1"], &[]));
    check(&[(0, 3), (3, 10)], 0..12, (0, &["s1"], &[]));
    check(&[(0, 10), (10, 15)], 1..17, (0, &["s0", "s1"], &[]));
    check(&[(0, 10), (10, 15)], 1..16, (0, &["s0"], &[]));
    check(&[(0, 10), (10, 15)], 0..10, (0, &[], &["s1"]));
    check(&[(0, 9), (9, 18)], 0..28, (1, &[], &[]));
    check(&[(0, 12)], 0..12, (1, &["s0"], &[]));
    check(&[(0, 5), (0, 5)], 0..5, (0, &[], &["s1"]));
}
