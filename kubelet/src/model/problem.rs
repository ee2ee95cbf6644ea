//! Why a pod or a container cannot run, as in its status and events.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}
