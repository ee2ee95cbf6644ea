//! Packets to Services, on a real kernel: a node, its pods, another node's pod and a machine outside, each in a network
//! namespace that the test creates. They need root and the Debian packages nftables and iptables. The same suite runs in
//! every mode of the proxy.

#![allow(unsafe_code)]

mod sctp;
mod support;

mod external;
mod suite;

use proxy::config::{Configuration, LocalMode, NodePortAddress};
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
                suite::two_proxies,
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

/// Further tests of modes in which the kernel translates addresses.
macro_rules! translating {
    ($module:ident, $mode:literal) => {
        mod $module {
            use super::*;

            #[test]
            fn sctp() {
                Cluster::run($mode, suite::sctp);
            }

            #[test]
            fn many_services() {
                Cluster::run($mode, suite::many_services);
            }

            #[test]
            fn local_interface() {
                for mode in ["br0", "br"] {
                    let configure = |config: &mut Configuration| {
                        config.local_mode = match mode {
                            "br0" => LocalMode::BridgeInterface("br0".to_string()),
                            prefix => LocalMode::InterfaceNamePrefix(prefix.to_string()),
                        };
                    };
                    Cluster::configured($mode, configure, external::local_interface);
                }
            }
        }
    };
}

#[test]
fn iptables_serves_node_ports_on_localhost() {
    let configure = |config: &mut Configuration| config.node_port_addresses = Some(vec![NodePortAddress::All]);
    Cluster::configured("iptables", configure, external::localhost_node_ports);
}

translating!(nftables_kernel, "nftables");
translating!(iptables_kernel, "iptables");
suite!(nftables);
suite!(iptables);
suite!(userspace);
