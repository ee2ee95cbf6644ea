//! Masquerading of traffic from pods to destinations outside of their cluster, or of their subnet if that is all that is
//! known of it.

use super::table::{self, MASQUERADE, SubnetChain, Table};
use crate::cidr::{IpNet, octets};
use crate::netlink::Error;

/// Adds the addresses of an attachment, each with the prefix length of its subnet. `cluster` has the ranges of all pods.
pub(super) fn add(table: &mut Table<'_>, addresses: &[IpNet], cluster: &[IpNet], owner: &str) -> Result<(), Error> {
    let around = |address: &IpNet| cluster.iter().find(|range| range.contains_net(address)).copied();
    let chain = |address: &IpNet| SubnetChain::Masquerade(around(address).unwrap_or(*address).network());
    let chains: Vec<SubnetChain> = addresses.iter().map(chain).collect();
    let element = |address: &IpNet| {
        let map = MASQUERADE[usize::from(!address.is_ipv4())];
        (map, table::to_chain(octets(address.address), chain(address), owner))
    };
    let elements: Vec<_> = addresses.iter().map(element).collect();
    if elements.is_empty() { Ok(()) } else { table::add(table, &chains, &elements) }
}

pub(super) fn remove(table: &mut Table<'_>, owner: &str) -> Result<(), Error> {
    table::remove(table, &MASQUERADE, |element| element.comment == owner)
}

/// Removes the elements of a network whose owner is not in the list.
pub(super) fn retain(table: &mut Table<'_>, network: &str, owners: &[String]) -> Result<(), Error> {
    let of_network = |comment: &str| comment.split(' ').nth(2) == Some(network);
    table::remove(table, &MASQUERADE, |element| of_network(&element.comment) && !owners.contains(&element.comment))
}

pub(super) fn exists(table: &mut Table<'_>, owner: &str) -> Result<bool, Error> {
    table::has(table, &MASQUERADE, owner)
}
