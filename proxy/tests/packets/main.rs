//! Packets to Services, on a real kernel: a node, its pods, another node's pod and a machine outside, each in a network
//! namespace that the test creates. They need root and the Debian packages nftables and iptables. The same suite runs in
//! every mode of the proxy.

#![allow(unsafe_code)]

mod support;

mod external;
mod suite;

use support::Cluster;

/// Runs each test of the suite in each mode.
macro_rules! in_modes {
    ($($mode:ident: [$($module:ident::$test:ident),* $(,)?])*) => {
        $(mod $mode {
            use super::*;
            $(#[test]
            fn $test() {
                Cluster::run(stringify!($mode), $module::$test);
            })*
        })*
    };
}

in_modes! {
    nftables: [
        suite::cluster_ip,
        suite::udp,
    ]
}
