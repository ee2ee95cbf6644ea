//! The plugin that a plugin asks for addresses.

use super::Call;
use crate::cni::error::Error;
use crate::cni::invoke::Verb;
use crate::cni::result::Attachment;

/// Asks the IPAM plugin of the configuration; None where it names none.
pub fn ask(call: &Call<'_>, verb: Verb) -> Result<Option<Attachment>, Error> {
    match call.conf["ipam"]["type"].as_str().unwrap_or_default() {
        "" => Ok(None),
        kind => call.invoker.invoke(verb, kind, call.conf, call.target).map(Some),
    }
}
