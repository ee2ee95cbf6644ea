//! Why a pod or a container cannot run, as its status and its events say it.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: Cow<'static, str>,
    pub message: String,
}
