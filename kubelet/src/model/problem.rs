//! Why a pod or a container cannot run, as its status and its events say it.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}
