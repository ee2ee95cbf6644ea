//! The networks of ServiceCIDRs.

use api::Tree;
use api::validation::parse_cidr;
use stdx::cidr::IpNet;

/// The networks of a ServiceCIDR.
pub(crate) fn networks(range: &Tree) -> Vec<IpNet> {
    range.list("spec.cidrs").iter().filter_map(|cidr| cidr.as_str().and_then(parse_cidr)).collect()
}
