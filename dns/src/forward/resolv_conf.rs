//! The name servers of a resolv.conf.

use std::net::{IpAddr, SocketAddr};

use crate::corefile::DEFAULT_PORT;

/// The addresses of `nameserver` lines, without those that cannot be used: a zone of a link-local address is not known
/// here.
pub fn name_servers(text: &str) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
        let address = address.map(|address| SocketAddr::new(address, DEFAULT_PORT));
        servers.extend(address.filter(|address| !servers.contains(address)));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_name_servers() {
        let text = "# nameserver 9.9.9.9\nnameserver 10.0.0.2\nsearch x\n  nameserver fd00::1 # second\nnameserver\n\
                    nameserver fe80::1%eth0\nnameserver 10.0.0.2\n";
        let want: Vec<SocketAddr> = ["10.0.0.2:53", "[fd00::1]:53"].map(|text| text.parse().expect("one")).into();
        assert_eq!(name_servers(text), want);
    }
}
