//! What the kernel has.

use super::set::{Element, parse_elements};
use super::{Family, kind, message, open};
use crate::netlink::Error;

/// The header that stands before the attributes of an answer.
const HEADER: usize = 4;

pub fn table_exists(family: Family, table: &str) -> Result<bool, Error> {
    let mut message = message(kind::GET_TABLE, 0, family);
    message.put_text(1, table);
    Ok(open()?.get(format!("look for the table {table}"), message)?.is_some())
}

pub fn chain_exists(family: Family, table: &str, chain: &str) -> Result<bool, Error> {
    let mut message = message(kind::GET_CHAIN, 0, family);
    message.put_text(1, table);
    message.put_text(3, chain);
    Ok(open()?.get(format!("look for the chain {chain}"), message)?.is_some())
}

/// All elements of a set or map; none where there is no such set.
pub fn elements(family: Family, table: &str, set: &str) -> Result<Vec<Element>, Error> {
    let ask = || {
        let mut message = message(kind::GET_ELEMENT, 0, family);
        message.put_text(1, table);
        message.put_text(2, set);
        message
    };
    let what = format!("list the elements of {set}");
    match open()?.dump(&what, ask) {
        Ok(replies) => Ok(replies
            .iter()
            .flat_map(|reply| parse_elements(reply.payload.get(HEADER..).unwrap_or_default()))
            .collect()),
        Err(error) if error.is(rustix::io::Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
