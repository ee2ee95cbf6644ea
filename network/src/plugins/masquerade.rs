//! Masquerading of traffic from pods to destinations outside of their subnet.

use super::table::{self, MASQUERADE, SubnetChain};
use crate::cidr::{IpNet, octets};
use crate::netlink::Error;
use crate::nft::Nft;

/// Adds the addresses of an attachment, each with the prefix length of its subnet.
pub(super) fn add(nft: &mut Nft, addresses: &[IpNet], owner: &str) -> Result<(), Error> {
    let chain = |address: &IpNet| SubnetChain::Masquerade(address.network());
    let chains: Vec<SubnetChain> = addresses.iter().map(chain).collect();
    let element = |address: &IpNet| {
        let map = MASQUERADE[usize::from(!address.is_ipv4())];
        (map, table::to_chain(octets(address.address), chain(address), owner))
    };
    let elements: Vec<_> = addresses.iter().map(element).collect();
    if elements.is_empty() { Ok(()) } else { table::add(nft, &chains, &elements) }
}

pub(super) fn remove(nft: &mut Nft, owner: &str) -> Result<(), Error> {
    table::remove(nft, &MASQUERADE, |element| element.comment == owner)
}

/// Removes the elements of a network whose owner is not in the list.
pub(super) fn retain(nft: &mut Nft, network: &str, owners: &[String]) -> Result<(), Error> {
    let of_network = |comment: &str| comment.split(' ').nth(2) == Some(network);
    table::remove(nft, &MASQUERADE, |element| of_network(&element.comment) && !owners.contains(&element.comment))
}

pub(super) fn exists(nft: &mut Nft, owner: &str) -> Result<bool, Error> {
    table::has(nft, &MASQUERADE, owner)
}
