//! Settings of the machine that are not rules. What the machine refuses is reported, and does not stop the proxy.

use std::fs;
use std::io;

use network::sysctl;

use crate::config::{Configuration, Conntrack, Mode};

/// The most tracked connections that are ever requested.
const MOST_CONNECTIONS: u64 = 1 << 20;
const HASH_SIZE: &str = "/sys/module/nf_conntrack/parameters/hashsize";

/// Applies the settings, in the network namespace of the calling thread.
pub(super) fn set_up(config: &Configuration, mode: Mode) {
    if let Some(conntrack) = &config.conntrack {
        set_connections(conntrack, cpus());
        timeouts(conntrack).into_iter().for_each(|(name, value)| set(name, value));
    }
    // Packets between pods of one bridge pass the rules only with this; replies would bypass the translation otherwise.
    for name in ["bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"] {
        if sysctl::number(name).is_ok() {
            set(name, 1);
        }
    }
    if mode == Mode::Iptables && config.localhost_node_ports {
        set("ipv4/conf/all/route_localnet", 1);
    }
    if let Some(score) = config.oom_score_adj
        && let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string())
    {
        tracing::warn!(%error, score, "failed to set oom_score_adj");
    }
}

fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64)
}

/// The desired number of tracked connections; None to leave it as it is.
fn connections(conntrack: &Conntrack, cpus: u64) -> Option<u64> {
    let scaled = u64::from(conntrack.max_per_core) * cpus;
    (conntrack.max_per_core > 0).then(|| scaled.max(u64::from(conntrack.min)).min(MOST_CONNECTIONS))
}

/// The limit is one for the whole machine, which others may use too: it is raised, never lowered.
fn set_connections(conntrack: &Conntrack, cpus: u64) {
    const NAME: &str = "netfilter/nf_conntrack_max";
    let Some(desired) = connections(conntrack, cpus) else { return };
    match sysctl::number(NAME) {
        Ok(current) if current >= desired => {}
        Ok(_) => {
            set(NAME, desired);
            if let Err(error) = grow_hash(desired / 4) {
                tracing::warn!(%error, "failed to set the hash size of connection tracking");
            }
        }
        Err(error) => tracing::warn!(%error, "connection tracking has no limit that could be set"),
    }
}

fn grow_hash(desired: u64) -> io::Result<()> {
    let current: u64 = fs::read_to_string(HASH_SIZE)?.trim().parse().unwrap_or(0);
    if current >= desired { Ok(()) } else { fs::write(HASH_SIZE, desired.to_string()) }
}

/// Sysctls with their values; those that should stay as they are are left out.
fn timeouts(conntrack: &Conntrack) -> Vec<(&'static str, u64)> {
    let times = [
        ("netfilter/nf_conntrack_tcp_timeout_established", conntrack.tcp_established),
        ("netfilter/nf_conntrack_tcp_timeout_close_wait", conntrack.tcp_close_wait),
        ("netfilter/nf_conntrack_udp_timeout", conntrack.udp),
        ("netfilter/nf_conntrack_udp_timeout_stream", conntrack.udp_stream),
    ];
    let mut values: Vec<(&'static str, u64)> =
        times.into_iter().map(|(name, time)| (name, time.as_secs())).filter(|(_, seconds)| *seconds > 0).collect();
    if conntrack.tcp_be_liberal {
        values.push(("netfilter/nf_conntrack_tcp_be_liberal", 1));
    }
    values
}

fn set(name: &str, desired: u64) {
    match sysctl::set_number(name, desired) {
        Ok(value) if value == desired => {}
        Ok(value) => tracing::warn!(name, desired, value, "the machine refused a sysctl, using a smaller value"),
        Err(error) => tracing::warn!(%error, desired, "the machine refused a sysctl, leaving it as it is"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_grow_with_cpus_up_to_a_million() {
        let conntrack = |max_per_core, min| Conntrack { max_per_core, min, ..Conntrack::default() };
        for (max_per_core, min, cpus, expected) in [
            (32 * 1024, 128 * 1024, 2, Some(128 * 1024)),
            (32 * 1024, 128 * 1024, 8, Some(256 * 1024)),
            (32 * 1024, 128 * 1024, 256, Some(1 << 20)),
            (0, 128 * 1024, 8, None),
        ] {
            assert_eq!(connections(&conntrack(max_per_core, min), cpus), expected, "{max_per_core} {cpus}");
        }
    }

    #[test]
    fn refused_values_are_clamped() {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        let check = || {
            network::ns::unshare().expect("a namespace");
            const NAME: &str = "netfilter/nf_conntrack_udp_timeout";
            let huge = Conntrack { udp: Duration::from_secs(1 << 40), tcp_be_liberal: true, ..Conntrack::default() };
            set_up(&Configuration { conntrack: Some(huge), ..Configuration::default() }, Mode::Nftables);
            let value = sysctl::number(NAME).expect("a number");
            assert!(value > 1 << 16 && value < 1 << 40, "{value}");
            assert_eq!(sysctl::number("netfilter/nf_conntrack_tcp_be_liberal").expect("a number"), 1);
            assert_eq!(sysctl::number("netfilter/nf_conntrack_tcp_timeout_close_wait").expect("a number"), 3600);
            // A sysctl that does not exist is reported.
            set("netfilter/no_such_sysctl", 1);
        };
        std::thread::spawn(check).join().expect("the checks");
    }
}
