//! The version of Kubernetes that this build implements, as servers, kubelets and commands report it.

use std::sync::{LazyLock, OnceLock};

/// Of 1.37.
const MINOR: u32 = 37;

static REPORTED: OnceLock<u32> = OnceLock::new();
static GIT_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("v1.{}.0+tiphys.{}", minor(), env!("CARGO_PKG_VERSION")));

/// The minor version.
pub fn minor() -> u32 {
    *REPORTED.get_or_init(|| MINOR)
}

/// The version of `/version`, of `kubectl version` and of Node objects: `v1.37.0+…`.
pub fn git_version() -> &'static str {
    &GIT_VERSION
}

/// Lets this process report another minor version, so that tests run an upgrade with one binary. Without effect once the
/// version was read. A release build has no such function: the check of version skew cannot be switched off there.
#[cfg(debug_assertions)]
pub fn report_minor(minor: u32) {
    let _ = REPORTED.set(minor);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree() {
        assert!(git_version().starts_with(&format!("v1.{}.0+tiphys.", minor())), "{}", git_version());
        report_minor(minor() + 1);
        assert_eq!(minor(), MINOR, "the version does not change any more");
    }
}
