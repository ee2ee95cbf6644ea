//! Name rules shared by kinds, used as `validate_name`; each accepts a name, or with `prefix` a generateName, and
//! returns upstream's messages.

use api::validation;

/// Any text, for kinds that validate their name against the rest of the object.
pub(crate) fn any(_: &str, _: bool) -> Vec<String> {
    Vec::new()
}

/// A DNS-1123 subdomain; a generateName prefix may end in '-'.
pub(crate) fn dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    masked(name, prefix, validation::dns1123_subdomain)
}

/// A DNS-1123 label: namespaces.
pub(crate) fn dns_label(name: &str, prefix: bool) -> Vec<String> {
    masked(name, prefix, validation::dns1123_label)
}

/// A URL path segment; every name must be at least that.
pub(crate) fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { validation::path_segment_prefix(name) } else { validation::path_segment_name(name) }
}

/// A prefix may end in a dash, since random letters follow. Upstream replaces its last two characters by a letter for
/// validation, so this does too.
fn masked(name: &str, prefix: bool, judge: fn(&str) -> Vec<String>) -> Vec<String> {
    let cut = name.len().wrapping_sub(2);
    match name.get(..cut) {
        Some(head) if prefix && name.ends_with('-') => judge(&format!("{head}a")),
        _ => judge(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_names() {
        let check = |rule: fn(&str, bool) -> Vec<String>, name: &str, prefix: bool, good: bool| {
            assert_eq!(rule(name, prefix).is_empty(), good, "{name:?} prefix {prefix}");
        };
        check(dns_subdomain, "a.b", false, true);
        check(dns_subdomain, "a-", false, false);
        check(dns_subdomain, "a-", true, true);
        check(dns_subdomain, "-", true, false);
        check(dns_subdomain, "a.", true, false);
        check(dns_label, "a.b", false, false);
        check(path_segment, "system:Node", false, true);
        check(path_segment, "..", false, false);
        check(path_segment, "..", true, true);
        check(path_segment, "a/b%", false, false);
    }
}
