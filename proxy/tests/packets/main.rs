//! Packets to Services, on a real kernel: a node, its pods, another node's pod and a machine outside, each in a network
//! namespace that the test creates. They need root and the Debian packages nftables and iptables. The same suite runs in
//! every mode of the proxy.

#![allow(unsafe_code)]

mod support;

mod external;
mod suite;

use proxy::config::Configuration;
use support::Cluster;

/// The tests that run in each mode.
macro_rules! suite {
    ($mode:ident) => {
        mod $mode {
            use super::*;

            in_mode! {
                $mode:
                suite::cluster_ip,
                suite::udp,
                suite::ports,
                suite::affinity,
                suite::internal_local,
                suite::terminating,
                suite::topology,
                suite::without_addresses,
                suite::connections_survive,
                suite::repair,
                suite::single_stack_ipv6,
                external::node_port,
                external::node_port_addresses,
                external::external_local,
                external::external_ips,
                external::load_balancer,
                external::load_balancer_without_node_ports,
                external::masquerade,
            }

            #[test]
            fn masquerade_all() {
                let configure = |config: &mut Configuration| config.masquerade_all = true;
                Cluster::configured(stringify!($mode), configure, external::masquerade_all);
            }
        }
    };
}

macro_rules! in_mode {
    ($mode:ident: $($module:ident::$test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            Cluster::run(stringify!($mode), $module::$test);
        })*
    };
}

suite!(nftables);
suite!(iptables);
suite!(userspace);
