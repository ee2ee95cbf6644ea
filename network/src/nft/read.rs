//! Queries.

use super::set::{Element, parse_elements};
use super::{Family, Nft, kind, message};
use crate::netlink::Error;

/// The length of the header before the attributes of a reply.
const HEADER: usize = 4;

impl Nft {
    /// Whether a table exists.
    pub fn has_table(&mut self, family: Family, table: &str) -> Result<bool, Error> {
        let mut message = message(kind::GET_TABLE, 0, family);
        message.put_text(1, table);
        Ok(self.0.get(format!("look for the table {table}"), message)?.is_some())
    }

    /// Whether a chain exists.
    pub fn has_chain(&mut self, family: Family, table: &str, chain: &str) -> Result<bool, Error> {
        let mut message = message(kind::GET_CHAIN, 0, family);
        message.put_text(1, table);
        message.put_text(3, chain);
        Ok(self.0.get(format!("look for the chain {chain}"), message)?.is_some())
    }

    /// All elements of a set or map; none if the set does not exist.
    pub fn elements(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Element>, Error> {
        let query = || {
            let mut message = message(kind::GET_ELEMENT, 0, family);
            message.put_text(1, table);
            message.put_text(2, set);
            message
        };
        match self.0.dump(&format!("list the elements of {set}"), query) {
            Ok(replies) => {
                let attributes = replies.iter().map(|reply| reply.payload.get(HEADER..).unwrap_or_default());
                Ok(attributes.flat_map(parse_elements).collect())
            }
            Err(error) if error.is(rustix::io::Errno::NOENT) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
