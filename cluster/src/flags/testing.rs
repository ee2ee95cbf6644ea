//! Shared helpers of the tests of flag tables.

use super::Flag;
use crate::error::Result;

/// Parses arguments; the error as users see it.
pub(crate) fn read<F>(parse: fn(&[String]) -> Result<F>, arguments: &[&str]) -> Result<F, String> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    parse(&arguments).map_err(|error| error.describe())
}

/// Checks that each argument is refused with a text.
pub(crate) fn check_refused<F>(parse: fn(&[String]) -> Result<F>, cases: &[(&str, &str)]) {
    for (argument, want) in cases {
        let error = read(parse, &[argument]).err().expect("refused");
        assert!(error.contains(want), "{argument}: {error}");
    }
}

/// Checks that the flags of each part are sorted by name.
pub(crate) fn check_sorted<F>(parts: &[&[Flag<F>]]) {
    for part in parts {
        let names: Vec<&str> = part.iter().map(|flag| flag.name).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
