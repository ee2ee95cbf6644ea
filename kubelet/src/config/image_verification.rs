//! Which images need credentials although they are on the node already.

/// Which images are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ImageVerification {
    NeverVerify,
    #[default]
    NeverVerifyPreloaded,
    /// Of those that nobody pulled here only the listed ones are free: names, or `NAME/*`.
    NeverVerifyListed(Vec<String>),
    AlwaysVerify,
}
