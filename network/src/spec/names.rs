//! Names that are used as file names and device names.

use super::error::{Error, code};

/// Checks the name of a network or the ID of a container.
pub(crate) fn check_identifier(what: &str, text: &str) -> Result<(), Error> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    match text {
        "" => Err(Error::new(code::INVALID_ENVIRONMENT, format!("{what}: is missing"))),
        _ if first && rest => Ok(()),
        _ => Err(Error::new(code::INVALID_ENVIRONMENT, format!("{what}: invalid characters in {text:?}"))),
    }
}

/// Checks the name of a network interface.
pub(crate) fn check_interface(what: &str, text: &str) -> Result<(), Error> {
    let problem = match text {
        "" => "is missing",
        "." | ".." => "is . or ..",
        _ if text.len() > 15 => "has more than 15 characters",
        _ if text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) => "contains / or : or whitespace",
        _ => return Ok(()),
    };
    Err(Error::new(code::INVALID_ENVIRONMENT, format!("{what}: {problem}")))
}

/// A device name that is derived from its attachment, so that the device is found again without stored state.
pub(crate) fn derived(prefix: &str, parts: &[&str]) -> String {
    const NAME: usize = 15;
    // Parts are separated by a byte that none of them contains.
    let mut hash = stdx::fnv::fnv1a_64(parts.iter().flat_map(|part| part.bytes().chain([0])));
    // The last bytes hardly influence the upper bits of this hash: fold and spread them.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let digits = format!("{hash:016x}");
    format!("{prefix}{}", &digits[..NAME - prefix.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, good) in [("a", true), ("a.b_c-d", true), ("", false), ("-a", false), ("a/b", false), ("ä", false)]
        {
            assert_eq!(check_identifier("name", text).is_ok(), good, "{text}");
        }
        for (text, good) in
            [("eth0", true), ("", false), ("..", false), ("a/b", false), ("sixteen-letters-", false), ("a b", false)]
        {
            assert_eq!(check_interface("CNI_IFNAME", text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn derived_names_differ() {
        let names: std::collections::BTreeSet<_> =
            (0..10_000).map(|number| derived("veth", &["net", &format!("pod{number}"), "eth0"])).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 15 && name.starts_with("veth")));
        assert_ne!(derived("veth", &["a", "bc"]), derived("veth", &["ab", "c"]));
    }
}
