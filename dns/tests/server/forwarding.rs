//! Forwarding to upstreams: policies, failures, the cache, and loops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use dns::message::{Data, Edns, Rcode, Record, Type};
use stdx::wait::{until_async, until_await};

use crate::support::{
    Upstream, WAIT, address_of, ask, ask_by_tcp, config, eventually, lookup, name, query, shown, start, start_with,
};

#[tokio::test]
async fn other_names_are_forwarded_with_random_ids_and_ports() {
    let upstream = Upstream::with(1).await;
    let (_running, server) = start(&format!(". {{\nforward . {}\n}}", upstream.address)).await;
    for number in 0..20 {
        assert_eq!(lookup(server, &format!("x{number}.org"), Type::A).await, "NOERROR 10.9.9.1");
    }
    let queries = upstream.queries();
    let ids: BTreeSet<u16> = queries.iter().map(|(_, query, _)| query.header.id).collect();
    let ports: BTreeSet<u16> = queries.iter().map(|(_, _, from)| from.port()).collect();
    assert!(ids.len() > 15 && ports.len() > 10, "{ids:?} {ports:?}");
    let response = ask(server, &query("X1.org", Type::A)).await;
    assert!(response.header.recursion_available && !response.header.authoritative);
    assert_eq!(response.question.expect("a question").name, name("X1.org"), "the case is kept");
}

#[tokio::test]
async fn truncated_answers_of_upstreams_are_fetched_by_tcp() {
    let upstream = Upstream::start(|query| {
        let mut response = address_of(query, 1, 60);
        let record = response.answers.first()?.clone();
        response.answers =
            (0..100).map(|last| Record { data: Data::A([10, 0, 0, last].into()), ..record.clone() }).collect();
        Some(response)
    })
    .await;
    let (_running, server) = start(&format!(". {{\nforward . {}\ncache\n}}", upstream.address)).await;
    let response = ask(server, &query("many.org", Type::A)).await;
    assert!(response.header.truncated, "the client has a small buffer");
    let responses = ask_by_tcp(server, &[query("many.org", Type::A)]).await;
    assert_eq!((responses[&4711].header.truncated, responses[&4711].answers.len()), (false, 100));
    let transports: Vec<&str> = upstream.queries().iter().map(|(transport, ..)| *transport).collect();
    assert_eq!(transports, ["udp", "tcp"], "the whole answer is cached");
}

#[tokio::test]
async fn the_next_upstream_answers_if_one_fails() {
    let silent = Upstream::start(|_| None).await;
    let good = Upstream::with(2).await;
    let options = "policy sequential\nread_timeout 100ms\nhealth_check 50ms\nmax_fails 1";
    let corefile = format!(". {{\nforward . {} {} {{\n{options}\n}}\n}}", silent.address, good.address);
    let (_running, server) = start(&corefile).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.9.9.2");
    // Once the upstream is marked as down, it is not queried first.
    let is_down = async || {
        let before = silent.count();
        assert_eq!(lookup(server, &format!("b{before}.org"), Type::A).await, "NOERROR 10.9.9.2");
        silent.count() == before
    };
    until_await("it is down", WAIT, is_down).await;
}

#[tokio::test]
async fn an_upstream_recovers() {
    let answers = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::start({
        let answers = answers.clone();
        move |query| answers.load(Ordering::SeqCst).then(|| address_of(query, 1, 60))
    })
    .await;
    let options = "read_timeout 50ms\nhealth_check 20ms\nmax_fails 1\nfailfast_all_unhealthy_upstreams";
    let (_running, server) = start(&format!(". {{\nforward . {} {{\n{options}\n}}\n}}", upstream.address)).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "SERVFAIL");
    answers.store(true, Ordering::SeqCst);
    eventually(server, "b.org", "NOERROR 10.9.9.1").await;
}

#[tokio::test]
async fn policies_choose_upstreams() {
    let (one, two) = (Upstream::with(1).await, Upstream::with(2).await);
    let text = |policy: &str| format!(". {{\nforward . {} {} {{\npolicy {policy}\n}}\n}}", one.address, two.address);
    let (_running, server) = start(&text("round_robin")).await;
    let mut seen = Vec::new();
    for number in 0..4 {
        seen.push(lookup(server, &format!("r{number}.org"), Type::A).await);
    }
    assert_eq!(seen[0], seen[2]);
    assert_ne!(seen[0], seen[1]);
    let (_running, server) = start(&text("sequential")).await;
    for number in 0..4 {
        assert_eq!(lookup(server, &format!("s{number}.org"), Type::A).await, "NOERROR 10.9.9.1");
    }
}

#[tokio::test]
async fn failover_tries_the_next_upstream() {
    let failing = Upstream::start(|query| Some(query.reply(Rcode::SERVER_FAILURE))).await;
    let good = Upstream::with(2).await;
    let options = "policy sequential\nfailover SERVFAIL";
    let (_running, server) =
        start(&format!(". {{\nforward . {} {} {{\n{options}\n}}\n}}", failing.address, good.address)).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.9.9.2");
}

#[tokio::test]
async fn answers_are_cached_and_denials_too() {
    let upstream = Upstream::start(|query| {
        let is_known = query.question.as_ref()?.name.to_string().starts_with("yes");
        Some(if is_known { address_of(query, 1, 60) } else { query.reply(Rcode::NAME_ERROR) })
    })
    .await;
    let (running, server) = start(&format!(". {{\nforward . {}\ncache\nprometheus\n}}", upstream.address)).await;
    for _ in 0..3 {
        assert_eq!(lookup(server, "yes.org", Type::A).await, "NOERROR 10.9.9.1");
        assert_eq!(lookup(server, "YES.org", Type::A).await, "NOERROR 10.9.9.1");
        assert_eq!(lookup(server, "no.org", Type::A).await, "NXDOMAIN");
    }
    assert_eq!(upstream.count(), 2);
    let text = running.metrics();
    for line in [
        r#"coredns_cache_hits_total{server="dns://:53",type="success",view="",zones="."} 5"#,
        r#"coredns_dns_responses_total{plugin="cache",rcode="NXDOMAIN",server="dns://:53",view="",zone="."} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let mut dnssec = query("yes.org", Type::A);
    dnssec.edns = Some(Edns { payload: 1232, version: 0, dnssec_ok: true });
    ask(server, &dnssec).await;
    assert_eq!(upstream.count(), 3, "DNSSEC has entries of its own");
}

#[tokio::test]
async fn stale_answers_are_served_while_upstreams_fail() {
    let answers = Arc::new(AtomicU8::new(1));
    let upstream = Upstream::start({
        let answers = answers.clone();
        move |query| match answers.load(Ordering::SeqCst) {
            0 => None,
            last => Some(address_of(query, last, 1)),
        }
    })
    .await;
    let options = "success 1024 1 0\nserve_stale 1h";
    let forward = format!("forward . {} {{\nread_timeout 50ms\n}}", upstream.address);
    let (_running, server) = start(&format!(". {{\n{forward}\ncache {{\n{options}\n}}\n}}")).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.9.9.1");
    answers.store(0, Ordering::SeqCst);
    // Expired after a second: it is served with a TTL of 0, and refreshed behind the client.
    let is_expired = async || {
        let response = ask(server, &query("a.org", Type::A)).await;
        assert_eq!(shown(&response), "NOERROR 10.9.9.1");
        response.answers[0].ttl == 0
    };
    until_await("it expires", WAIT, is_expired).await;
    answers.store(2, Ordering::SeqCst);
    eventually(server, "a.org", "NOERROR 10.9.9.2").await;
}

#[tokio::test]
async fn equal_questions_are_one_query() {
    let release = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::start({
        let release = release.clone();
        move |query| release.load(Ordering::SeqCst).then(|| address_of(query, 1, 60))
    })
    .await;
    let options = "read_timeout 300ms\nmax_fails 0";
    let (_running, server) = start(&format!(". {{\nforward . {} {{\n{options}\n}}\n}}", upstream.address)).await;
    let clients: Vec<_> =
        (0..30).map(|_| tokio::spawn(async move { lookup(server, "slow.org", Type::A).await })).collect();
    until_async("a query", WAIT, || upstream.count() > 0).await;
    release.store(true, Ordering::SeqCst);
    for client in clients {
        assert_eq!(client.await.expect("it ends"), "NOERROR 10.9.9.1");
    }
    assert!(upstream.count() <= 3, "{} queries", upstream.count());
}

#[tokio::test]
async fn concurrent_queries_are_limited() {
    let upstream = Upstream::start(|_| None).await;
    let options = "max_concurrent 2\nread_timeout 1s";
    let (_running, server) = start(&format!(". {{\nforward . {} {{\n{options}\n}}\n}}", upstream.address)).await;
    let clients: Vec<_> = (0..6)
        .map(|number| tokio::spawn(async move { lookup(server, &format!("c{number}.org"), Type::A).await }))
        .collect();
    let mut refused = 0;
    for client in clients {
        refused += usize::from(client.await.expect("it ends") == "REFUSED");
    }
    assert_eq!(refused, 4);
}

#[tokio::test]
async fn stub_domains_have_their_own_upstreams() {
    let (stub, rest) = (Upstream::with(1).await, Upstream::with(2).await);
    let corefile = format!(
        "consul.local {{\nforward . {}\n}}\n. {{\nforward . {} {{\nexcept secret.org\n}}\n}}",
        stub.address, rest.address
    );
    let (_running, server) = start(&corefile).await;
    assert_eq!(lookup(server, "a.Consul.local", Type::A).await, "NOERROR 10.9.9.1");
    assert_eq!(lookup(server, "consul.local.org", Type::A).await, "NOERROR 10.9.9.2");
    assert_eq!(lookup(server, "x.secret.org", Type::A).await, "REFUSED");
}

#[tokio::test]
async fn rewrites_change_questions_and_answers() {
    let upstream = Upstream::start(|query| {
        let is_new = query.question.as_ref()?.name.to_string().ends_with("new.org.");
        Some(if is_new { address_of(query, 1, 60) } else { query.reply(Rcode::NAME_ERROR) })
    })
    .await;
    let rules = "rewrite name exact old.org new.org\n\
                 rewrite name suffix .old.org .new.org answer auto\n\
                 rewrite continue ttl regex .* 5-9\n\
                 rewrite name prefix pre- x.\n";
    let (_running, server) = start(&format!(". {{\n{rules}forward . {}\n}}", upstream.address)).await;
    let check = async |of: &str, owner: &str| {
        let response = ask(server, &query(of, Type::A)).await;
        assert_eq!(shown(&response), "NOERROR 10.9.9.1", "{of}");
        assert_eq!(response.question.as_ref().expect("a question").name, name(of));
        assert_eq!(response.answers[0].name, name(owner), "{of}");
        response.answers[0].ttl
    };
    check("Old.org", "Old.org").await;
    check("www.old.org", "www.old.org").await;
    assert_eq!(check("pre-a.new.org", "x.a.new.org").await, 9, "the TTL is in the range");
    assert_eq!(lookup(server, "other.org", Type::A).await, "NXDOMAIN");
}

/// Groups of a regular expression become parts of the new name, and those of the response parts of the old one.
#[tokio::test]
async fn rewrites_by_regular_expressions() {
    let upstream = Upstream::start(|query| {
        let asked = query.question.as_ref()?.name.to_string();
        let known = ["ftp.service.us-west-1.consul.", "web.x.new.", "db.new."];
        Some(if known.contains(&asked.as_str()) { address_of(query, 1, 60) } else { query.reply(Rcode::NAME_ERROR) })
    })
    .await;
    let rules = "rewrite name regex (.*)-(us-west-1)\\.example\\.org {1}.service.{2}.consul answer auto\n\
                 rewrite stop {\nname regex (.*)\\.(.*)\\.old {1}.{2}.new\nanswer name (.*)\\.(.*)\\.new {1}.{2}.old\n}\n\
                 rewrite name regex ^(db)\\.old\\.$ {1}.new.\n";
    let (_running, server) = start(&format!(". {{\n{rules}forward . {}\n}}", upstream.address)).await;
    for (question, owner) in [
        ("FTP-us-west-1.example.org", Some("ftp-us-west-1.example.org")),
        ("web.x.old", Some("web.x.old")),
        // Without a rule for the response, the records keep the new name.
        ("db.old", Some("db.new")),
        ("web.old", None),
        ("ftp-us-east-1.example.org", None),
    ] {
        let response = ask(server, &query(question, Type::A)).await;
        assert_eq!(response.question.as_ref().expect("a question").name, name(question));
        let Some(owner) = owner else {
            assert_eq!(shown(&response), "NXDOMAIN", "{question}");
            continue;
        };
        assert_eq!(shown(&response), "NOERROR 10.9.9.1", "{question}");
        assert!(response.answers[0].name.matches(&name(owner)), "{question}: {:?}", response.answers[0].name);
    }
}

#[tokio::test]
async fn hosts_come_before_upstreams() {
    let upstream = Upstream::with(1).await;
    let text =
        format!(". {{\nhosts /nonexistent {{\n10.0.0.1 a.org\nfallthrough\n}}\nforward . {}\n}}", upstream.address);
    let (_running, server) = start(&text).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1");
    assert_eq!(lookup(server, "a.org", Type::AAAA).await, "NOERROR");
    assert_eq!(lookup(server, "b.org", Type::A).await, "NOERROR 10.9.9.1");
    assert_eq!(lookup(server, "1.0.0.10.in-addr.arpa", Type::PTR).await, "NOERROR a.org.");
}

#[tokio::test]
async fn forwarding_to_itself_is_noticed() {
    // A port that is free now is the server's and its upstream.
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("an address");
    drop(socket);
    let text = format!(". {{\nloop\nforward . {address}\n}}");
    let config = dns::Config { listen: dns::Listen::At(vec![address]), ..config(dns::CorefileSource::Text(text)) };
    let (_running, server) = start_with(config, None).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "SERVFAIL", "there is no other upstream");
}

#[tokio::test]
async fn a_loop_of_two_servers_is_detected() {
    // The second server forwards to the first, through an upstream that relays.
    let target = Arc::new(std::sync::Mutex::new(None));
    let relay = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let relay_address = relay.local_addr().expect("an address");
    tokio::spawn({
        let target = target.clone();
        async move {
            let mut bytes = vec![0; 4096];
            let mut client = None;
            while let Ok((length, from)) = relay.recv_from(&mut bytes).await {
                let server: Option<std::net::SocketAddr> = *target.lock().expect("a lock");
                let to = match server {
                    Some(server) if from == server => client,
                    other => {
                        client = Some(from);
                        other
                    }
                };
                if let Some(to) = to {
                    let _ = relay.send_to(&bytes[..length], to).await;
                }
            }
        }
    });
    let text = format!(". {{\nerrors\nloop\nforward . {relay_address} {{\nread_timeout 200ms\n}}\n}}");
    let (running, server) = start(&text).await;
    *target.lock().expect("a lock") = Some(server);
    assert!(!running.has_loop(), "nothing was forwarded yet");
    let first = tokio::spawn(async move { lookup(server, "first.org", Type::A).await });
    until_async("the loop is detected", WAIT, || running.has_loop()).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "SERVFAIL");
    assert_eq!(first.await.expect("it ends"), "SERVFAIL");
}
