//! The text of an error with its causes.

use std::error::Error;

/// The message of an error and of all its causes, on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Nested(&'static str, Option<Box<Nested>>);

    impl fmt::Display for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    #[test]
    fn joins_all_causes() {
        let error = Nested("a", Some(Box::new(Nested("b", Some(Box::new(Nested("c", None)))))));
        assert_eq!(chain(&error), "a: b: c");
    }
}
