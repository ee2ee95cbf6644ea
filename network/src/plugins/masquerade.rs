//! What leaves a pod's subnet gets the host's address.

use super::table::{self, MASQUERADE, SubnetChain};
use crate::cidr::{IpNet, octets};
use crate::netlink::Error;
use crate::nft::Nft;

/// Addresses with the prefix of their subnet.
pub fn add(nft: &mut Nft, addresses: &[IpNet], owner: &str) -> Result<(), Error> {
    let chain = |address: &IpNet| SubnetChain::Masquerade(address.network());
    let chains: Vec<SubnetChain> = addresses.iter().map(chain).collect();
    let element = |address: &IpNet| {
        let map = MASQUERADE[usize::from(!address.is_ipv4())];
        (map, table::to_chain(octets(address.address), chain(address), owner))
    };
    let elements: Vec<_> = addresses.iter().map(element).collect();
    if elements.is_empty() { Ok(()) } else { table::add(nft, &chains, &elements) }
}

pub fn remove(nft: &mut Nft, owner: &str) -> Result<(), Error> {
    table::remove(nft, &MASQUERADE, |element| element.comment == owner)
}

/// Removes what belongs to a network and to none of these owners.
pub fn retain(nft: &mut Nft, network: &str, owners: &[String]) -> Result<(), Error> {
    let of_network = |comment: &str| comment.split(' ').nth(2) == Some(network);
    table::remove(nft, &MASQUERADE, |element| of_network(&element.comment) && !owners.contains(&element.comment))
}

pub fn is_there(nft: &mut Nft, owner: &str) -> Result<bool, Error> {
    table::has(nft, &MASQUERADE, owner)
}
