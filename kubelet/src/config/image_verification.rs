//! The images that need credentials although they are on the node already.

/// For which images credentials are verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ImageVerification {
    NeverVerify,
    #[default]
    NeverVerifyPreloaded,
    /// Of preloaded images only the listed ones are exempt: names, or `NAME/*`.
    NeverVerifyListed(Vec<String>),
    AlwaysVerify,
}
