//! The approval of definitions in groups of the Kubernetes community, by an annotation.

/// The value of the approval annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Missing,
    Invalid,
    /// The author has acknowledged that the definition is not approved.
    Bypassed,
    Approved,
}

/// The state of an annotation, with upstream's text.
pub fn approval_state(annotation: &str) -> (Approval, String) {
    const NAME: &str = "api-approved.kubernetes.io";
    if annotation.is_empty() {
        let why = format!(
            "protected groups must have approval annotation {NAME:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        return (Approval::Missing, why);
    }
    if annotation.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: {annotation:?}"));
    }
    if is_url(annotation) {
        return (Approval::Approved, format!("approved in {annotation}"));
    }
    let why = format!(
        "protected groups must have approval annotation {NAME:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
    );
    (Approval::Invalid, why)
}

/// A URL with a scheme and a host.
fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or("");
        !scheme.is_empty() && !host.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}
