//! A pod that attacks the DNS of its node.

use super::case::{Case, condition};
use super::cluster::{Cluster, Runtime};
use super::services::client;

/// Sends queries for a name of the cluster, several times as many as a source may. It leaves the kernel time: packets that
/// the kernel itself has no time for are lost for every pod.
const FLOOD: &str = "use IO::Socket::INET; \
    my $s = IO::Socket::INET->new(PeerAddr => q(10.96.0.10), PeerPort => 53, Proto => q(udp)) or die; \
    my $q = pack(q(n6C/a*C/a*C/a*C/a*C/a*Cn2), 7, 256, 1, 0, 0, 0, qw(kubernetes default svc cluster local), 0, 1, 1); \
    while (1) { $s->send($q) for 1 .. 60; select(undef, undef, undef, 0.001) }";

/// The median time of 200 lookups in microseconds; much more if one has no response.
const LOOKUPS: &str = "use IO::Socket::INET; use Time::HiRes qw(time); use IO::Select; my @t; \
    for my $n (1 .. 200) { \
    my $s = IO::Socket::INET->new(PeerAddr => q(10.96.0.10), PeerPort => 53, Proto => q(udp)) or die; \
    my $q = pack(q(n6C/a*C/a*C/a*C/a*C/a*Cn2), $n, 256, 1, 0, 0, 0, qw(kubernetes default svc cluster local), 0, 1, 1); \
    my $from = time; $s->send($q); \
    if (!IO::Select->new($s)->can_read(5)) { print 999999999; exit } $s->recv(my $r, 512); \
    length($r) > length($q) or die q(no address); push @t, (time - $from) * 1e6; } \
    @t = sort { $a <=> $b } @t; print int($t[100]);";

/// Lookups of a pod take this much longer beside a flood.
const SLOWDOWN: u64 = 3;
/// Faster lookups are not told from each other: the machine runs other tests as well.
const FAST: u64 = 1500;

fn median(case: &Case) -> u64 {
    case.exec("client", &format!("/usr/bin/perl -e '{LOOKUPS}'")).parse().expect("a number")
}

/// The flood is limited by its source address, so that lookups of other pods are neither lost nor slow.
#[test]
fn a_flood_of_queries_does_not_slow_down_other_pods() {
    let cluster = Cluster::up(Runtime::Embedded);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let case = Case::new(&cluster, "flood");
    client(&case, "client");
    client(&case, "attacker");
    let alone = case.until("lookups", || median(&case), |median| *median < 1_000_000);
    let flood = case.start(&super::case::debians(), &["exec", "attacker", "--", "/usr/bin/perl", "-e", FLOOD]);
    let limit = SLOWDOWN * alone.max(FAST);
    let beside = case.until("fast lookups beside the flood", || median(&case), |median| *median < limit);
    println!("median of lookups: {alone} µs, beside a flood {beside} µs");
    let limited = || {
        let output = cluster.command("curl").args(["-sS", "http://10.96.0.10:9153/metrics"]).output().expect("curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("tiphys_dns_rate_limited_total{proto=\"udp\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    case.until("refused queries of the flood", limited, |count| *count > 1000.0);
    drop(flood);
    // The process in the pod outlives its client.
    case.kubectl(&["delete", "pod", "attacker", "--now"]);
}
