//! Truth tables: all pairs of pods, ports, protocols and families, for each case.

use std::time::Instant;

use networkpolicy::kernel::Kernel;
use networkpolicy::plan::plan;

use crate::cases::CASES;
use crate::probe::{Clients, Probe};
use crate::reference::{Connection, is_allowed};
use crate::support::{Host, PORTS, TABLE, nft, policy_trees};

#[test]
fn pods_reach_what_policies_allow() {
    check_cases(false);
}

/// The same with the kernel's own filtering of bridged frames.
#[test]
fn pods_reach_what_policies_allow_on_a_filtering_bridge() {
    check_cases(true);
}

fn check_cases(filters_bridged_frames: bool) {
    Host::run(filters_bridged_frames, |host| {
        let clients = Clients::start(&host.pods);
        let started = Instant::now();
        let (mut probes, mut allowed) = (0, 0);
        for (name, policies) in CASES {
            host.apply(policies);
            assert_difference_is_complete(host, name);
            let expected = matrix(host, policies);
            probes += expected.iter().map(Vec::len).sum::<usize>();
            allowed += expected.iter().flatten().filter(|probe| probe.expected).count();
            check(host, &clients, name, expected);
        }
        println!("{} cases, {probes} probes, {allowed} allowed, {:?}", CASES.len(), started.elapsed());
        assert!(CASES.len() >= 60 && (probes / 4..probes * 5 / 6).contains(&allowed), "a fair mix");
    });
}

/// The probes of each pod, with the results that the reference expects.
fn matrix(host: &Host, policies: &str) -> Vec<Vec<Probe>> {
    let trees = policy_trees(policies);
    let of_pod = |from| {
        let mut probes = Vec::new();
        for (number, to) in host.pods.iter().enumerate() {
            for (protocol, udp) in [("TCP", false), ("UDP", true)] {
                for (port, v6) in PORTS.iter().flat_map(|port| [(*port, false), (*port, true)]) {
                    let expected = is_allowed(&trees, Connection { from, to, v6, protocol, port });
                    probes.push(Probe { to: to.at(v6, port), udp, server: number as u8, expected });
                }
            }
        }
        probes
    };
    host.pods.iter().map(of_pod).collect()
}

fn check(host: &Host, clients: &Clients, name: &str, expected: Vec<Vec<Probe>>) {
    let replies = clients.run(expected.clone());
    let mut wrong = Vec::new();
    for ((from, probes), replies) in host.pods.iter().zip(&expected).zip(&replies) {
        for (probe, reply) in probes.iter().zip(replies).filter(|(probe, reply)| probe.expected != **reply) {
            let protocol = if probe.udp { "UDP" } else { "TCP" };
            wrong.push(format!("{} to {protocol} {}: {reply}", from.key(), probe.to));
        }
    }
    assert!(wrong.is_empty(), "{name}: {} wrong:\n{}\n{}", wrong.len(), wrong.join("\n"), nft(&["list", "ruleset"]));
}

/// The state that was reached by differences is the one that a complete replacement creates.
fn assert_difference_is_complete(host: &Host, name: &str) {
    const FRESH: &str = "policy-fresh";
    let mut fresh = Kernel::open(FRESH).expect("nftables");
    fresh.apply(plan(&host.cluster)).expect("applied");
    let listed = |table: &str| {
        let text = nft(&["list", "ruleset"]);
        let own = text.split("\ntable ").find(|part| part.contains(&format!("inet {table} ")));
        let own = own.unwrap_or_default().replace(table, "");
        let mut tokens: Vec<String> =
            own.split([' ', '\t', '\n', ',']).filter(|token| !token.is_empty()).map(str::to_string).collect();
        tokens.sort();
        tokens
    };
    assert!(listed(TABLE) == listed(FRESH), "{name}: {}", nft(&["list", "ruleset"]));
    fresh.cleanup().expect("cleanup");
}
