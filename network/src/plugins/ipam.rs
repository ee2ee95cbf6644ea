//! Delegation to IPAM plugins.

use super::Call;
use crate::spec::command::Verb;
use crate::spec::error::Error;
use crate::spec::result::AddResult;

/// Runs the IPAM plugin of the configuration; None if it has none.
pub(super) fn delegate(call: &Call<'_>, verb: Verb) -> Result<Option<AddResult>, Error> {
    match call.conf["ipam"]["type"].as_str().unwrap_or_default() {
        "" => Ok(None),
        kind => call.delegate.delegate(verb, kind, call.conf, call.target).map(Some),
    }
}
