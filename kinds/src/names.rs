//! The rules for names that kinds share.

/// A DNS-1123 subdomain; a prefix for generateName may end in '-'.
pub fn dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    let _ = (name, prefix);
    Vec::new()
}
