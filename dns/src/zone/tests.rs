//! Every rule of the specification, and of CoreDNS beyond it, as a table of questions and exact answers.

use std::net::IpAddr;

use api::json;

use super::*;
use crate::message::{Data, Name, Question, Record, Type};

const SERVERS: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 10))];

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn zone() -> Zone {
    let origins = ["cluster.local", "in-addr.arpa", "ip6.arpa"].map(name).into();
    Zone { origins, pods: PodMode::Verified, ttl: 30, ..Zone::default() }
}

/// Services and slices as the API has them.
fn writer() -> Writer {
    let mut writer = Writer::default();
    let services = [
        ("default", "kubernetes", r#"{"clusterIPs":["10.96.0.1"],"ports":[{"name":"https","port":443}]}"#),
        (
            "default",
            "web",
            r#"{"clusterIPs":["10.96.0.5","fd00::5"],"ports":[{"name":"http","port":80,"protocol":"TCP"},
            {"name":"dns","port":53,"protocol":"UDP"}]}"#,
        ),
        ("default", "old", r#"{"clusterIP":"10.96.0.6","ports":[{"port":1}]}"#),
        ("default", "db", r#"{"clusterIP":"None","clusterIPs":["None"],"ports":[{"name":"pg","port":5432}]}"#),
        ("default", "none", r#"{"clusterIP":"None","clusterIPs":["None"]}"#),
        ("default", "portless", r#"{"clusterIP":"None","clusterIPs":["None"]}"#),
        ("default", "ext", r#"{"type":"ExternalName","externalName":"www.example.org"}"#),
        ("default", "self", r#"{"type":"ExternalName","externalName":"self.default.svc.cluster.local"}"#),
        ("default", "ip", r#"{"type":"ExternalName","externalName":"10.0.0.1"}"#),
        ("gone", "web", r#"{"clusterIPs":["10.96.0.9"],"ports":[{"port":1}]}"#),
    ];
    for (namespace, name, spec) in services {
        let object = json::decode(format!(r#"{{"spec":{spec}}}"#).as_bytes()).expect("JSON");
        writer.set_service(namespace, name, Some(Service::read(namespace, name, &object)));
    }
    let slices = [
        (
            "default/db-1",
            "db",
            r#""ports":[{"name":"pg","port":5432,"protocol":"TCP"}],"endpoints":[
            {"addresses":["10.244.0.1"],"hostname":"db-0","targetRef":{"name":"db-0"},"conditions":{"ready":true}},
            {"addresses":["10.244.0.2"],"targetRef":{"name":"db-xyz"},"conditions":{}},
            {"addresses":["10.244.0.3"],"conditions":{"ready":false,"serving":true}}]"#,
        ),
        (
            "default/db-2",
            "db",
            r#""ports":[{"name":"pg","port":5432,"protocol":"TCP"}],"endpoints":[
            {"addresses":["fd00:1::1"],"hostname":"db-0"}]"#,
        ),
        (
            "default/web-1",
            "web",
            r#""ports":[{"name":"http","port":8080,"protocol":"TCP"}],"endpoints":[
            {"addresses":["10.244.0.9"]}]"#,
        ),
        ("default/none-1", "none", r#""endpoints":[{"addresses":["10.244.0.3"],"conditions":{"ready":false}}]"#),
        ("default/portless-1", "portless", r#""endpoints":[{"addresses":["10.244.0.4"]}]"#),
    ];
    for (key, service, rest) in slices {
        let text = format!(r#"{{"metadata":{{"labels":{{"kubernetes.io/service-name":"{service}"}}}},{rest}}}"#);
        let object = json::decode(text.as_bytes()).expect("JSON");
        writer.set_slice(&key.into(), Slice::read("default", &object, true));
    }
    let pod = r#"{"spec":{},"status":{"podIPs":[{"ip":"10.244.0.1"},{"ip":"fd00:1::1"}]}}"#;
    let pod = json::decode(pod.as_bytes()).expect("JSON");
    writer.set_pod(&"default/db-0".into(), Pod::read("default", &pod));
    for namespace in ["default", "other"] {
        writer.set_namespace(namespace, true);
    }
    writer.set_modified(1700);
    writer
}

/// A record in presentation format, without the class.
fn text(record: &Record) -> String {
    let data = match &record.data {
        Data::A(address) => address.to_string(),
        Data::Aaaa(address) => address.to_string(),
        Data::Name(name) => name.to_string(),
        Data::Srv(srv) => format!("{} {} {} {}", srv.priority, srv.weight, srv.port, srv.target),
        Data::Soa(soa) => format!("{} {} {} {}", soa.mname, soa.rname, soa.serial, soa.minimum),
        Data::Raw(bytes) => String::from_utf8_lossy(&bytes[1..]).into_owned(),
        other => format!("{other:?}"),
    };
    format!("{} {} {} {data}", record.name, record.ttl, record.rtype)
}

fn ask(zone: &Zone, index: &Index, question: &str) -> Vec<String> {
    let (of, qtype) = question.split_once(' ').expect("a name and a type");
    let question = Question::new(name(of), Type::parse(qtype).expect("a type"));
    let Some(origin) = zone.origin_of(&question.name) else { return vec!["outside".to_string()] };
    match answer(zone, origin, index, SERVERS, &question) {
        Answer::Records { answers, additionals } => {
            let additionals = additionals.iter().map(|record| format!("+ {}", text(record)));
            answers.iter().map(text).chain(additionals).collect()
        }
        Answer::Alias(record, target) => vec![text(&record), format!("-> {target}")],
        other => vec![format!("{other:?}")],
    }
}

fn check_all(zone: &Zone, cases: &[(&str, &[&str])]) {
    let index = writer().index();
    for (question, want) in cases {
        assert_eq!(ask(zone, &index, question), *want, "{question}");
    }
}

#[test]
fn cluster_ip_services() {
    check_all(
        &zone(),
        &[
            ("kubernetes.default.svc.cluster.local A", &["kubernetes.default.svc.cluster.local. 30 A 10.96.0.1"]),
            ("Kubernetes.DEFAULT.svc.cluster.Local A", &["Kubernetes.DEFAULT.svc.cluster.Local. 30 A 10.96.0.1"]),
            ("kubernetes.default.svc.cluster.local AAAA", &["NoData"]),
            ("web.default.svc.cluster.local A", &["web.default.svc.cluster.local. 30 A 10.96.0.5"]),
            ("web.default.svc.cluster.local AAAA", &["web.default.svc.cluster.local. 30 AAAA fd00::5"]),
            ("old.default.svc.cluster.local A", &["old.default.svc.cluster.local. 30 A 10.96.0.6"]),
            ("web.default.svc.cluster.local TXT", &["NoData"]),
            ("web.default.svc.cluster.local MX", &["NoData"]),
            ("web.default.svc.cluster.local ANY", &["NoData"]),
            ("web.default.svc.cluster.local HTTPS", &["NoData"]),
            ("web.default.svc.cluster.local CNAME", &["NoData"]),
            ("web.default.svc.cluster.local PTR", &["NoData"]),
            ("web.default.svc.cluster.local SOA", &["NoData"]),
            ("web.default.svc.cluster.local NS", &["NoData"]),
            ("web.default.svc.cluster.local AXFR", &["Refused"]),
        ],
    );
}

#[test]
fn srv_of_services() {
    check_all(
        &zone(),
        &[
            (
                "_https._tcp.kubernetes.default.svc.cluster.local SRV",
                &[
                    "_https._tcp.kubernetes.default.svc.cluster.local. 30 SRV 0 100 443 kubernetes.default.svc.cluster.local.",
                    "+ kubernetes.default.svc.cluster.local. 30 A 10.96.0.1",
                ],
            ),
            (
                "_dns._udp.web.default.svc.cluster.local SRV",
                &[
                    "_dns._udp.web.default.svc.cluster.local. 30 SRV 0 50 53 web.default.svc.cluster.local.",
                    "+ web.default.svc.cluster.local. 30 A 10.96.0.5",
                    "+ web.default.svc.cluster.local. 30 AAAA fd00::5",
                ],
            ),
            ("_dns._tcp.web.default.svc.cluster.local SRV", &["NameError"]),
            ("_x._tcp.web.default.svc.cluster.local SRV", &["NameError"]),
            (
                "_http._tcp.web.default.svc.cluster.local A",
                &["_http._tcp.web.default.svc.cluster.local. 30 A 10.96.0.5"],
            ),
            // All ports of the Service.
            (
                "kubernetes.default.svc.cluster.local SRV",
                &[
                    "kubernetes.default.svc.cluster.local. 30 SRV 0 100 443 kubernetes.default.svc.cluster.local.",
                    "+ kubernetes.default.svc.cluster.local. 30 A 10.96.0.1",
                ],
            ),
        ],
    );
}

#[test]
fn headless_services() {
    check_all(
        &zone(),
        &[
            (
                "db.default.svc.cluster.local A",
                &["db.default.svc.cluster.local. 30 A 10.244.0.1", "db.default.svc.cluster.local. 30 A 10.244.0.2"],
            ),
            ("db.default.svc.cluster.local AAAA", &["db.default.svc.cluster.local. 30 AAAA fd00:1::1"]),
            ("db-0.db.default.svc.cluster.local A", &["db-0.db.default.svc.cluster.local. 30 A 10.244.0.1"]),
            ("db-0.db.default.svc.cluster.local AAAA", &["db-0.db.default.svc.cluster.local. 30 AAAA fd00:1::1"]),
            (
                "10-244-0-2.db.default.svc.cluster.local A",
                &["10-244-0-2.db.default.svc.cluster.local. 30 A 10.244.0.2"],
            ),
            ("10-244-0-2.db.default.svc.cluster.local AAAA", &["NoData"]),
            // An endpoint with a hostname has no other name, and a pod's name is none unless it is configured.
            ("10-244-0-1.db.default.svc.cluster.local A", &["NameError"]),
            ("db-xyz.db.default.svc.cluster.local A", &["NameError"]),
            ("10-244-0-3.db.default.svc.cluster.local A", &["NameError"]),
            (
                "_pg._tcp.db.default.svc.cluster.local SRV",
                &[
                    "_pg._tcp.db.default.svc.cluster.local. 30 SRV 0 33 5432 db-0.db.default.svc.cluster.local.",
                    "_pg._tcp.db.default.svc.cluster.local. 30 SRV 0 33 5432 10-244-0-2.db.default.svc.cluster.local.",
                    "+ db-0.db.default.svc.cluster.local. 30 A 10.244.0.1",
                    "+ 10-244-0-2.db.default.svc.cluster.local. 30 A 10.244.0.2",
                    "+ db-0.db.default.svc.cluster.local. 30 AAAA fd00:1::1",
                ],
            ),
            ("_pg._udp.db.default.svc.cluster.local SRV", &["NameError"]),
            // No endpoint is ready.
            ("none.default.svc.cluster.local A", &["NameError"]),
            // Endpoints without ports have addresses, but no SRV records.
            ("portless.default.svc.cluster.local A", &["portless.default.svc.cluster.local. 30 A 10.244.0.4"]),
            ("portless.default.svc.cluster.local SRV", &["NoData"]),
            // The endpoints of other Services have names too.
            (
                "10-244-0-9.web.default.svc.cluster.local A",
                &["10-244-0-9.web.default.svc.cluster.local. 30 A 10.244.0.9"],
            ),
            (
                "10-244-0-9.web.default.svc.cluster.local SRV",
                &[
                    "10-244-0-9.web.default.svc.cluster.local. 30 SRV 0 100 8080 10-244-0-9.web.default.svc.cluster.local.",
                    "+ 10-244-0-9.web.default.svc.cluster.local. 30 A 10.244.0.9",
                ],
            ),
        ],
    );
}

#[test]
fn external_names() {
    check_all(
        &zone(),
        &[
            (
                "ext.default.svc.cluster.local A",
                &["ext.default.svc.cluster.local. 30 CNAME www.example.org.", "-> www.example.org."],
            ),
            ("ext.default.svc.cluster.local CNAME", &["ext.default.svc.cluster.local. 30 CNAME www.example.org."]),
            ("x.ext.default.svc.cluster.local A", &["NameError"]),
            ("_http._tcp.ext.default.svc.cluster.local SRV", &["NameError"]),
            ("self.default.svc.cluster.local A", &["NoData"]),
            ("ip.default.svc.cluster.local A", &["NameError"]),
        ],
    );
}

#[test]
fn reverse_names() {
    check_all(
        &zone(),
        &[
            ("1.0.96.10.in-addr.arpa PTR", &["1.0.96.10.in-addr.arpa. 30 PTR kubernetes.default.svc.cluster.local."]),
            ("1.0.244.10.in-addr.arpa PTR", &["1.0.244.10.in-addr.arpa. 30 PTR db-0.db.default.svc.cluster.local."]),
            (
                "2.0.244.10.in-addr.arpa PTR",
                &["2.0.244.10.in-addr.arpa. 30 PTR 10-244-0-2.db.default.svc.cluster.local."],
            ),
            (
                "9.0.244.10.in-addr.arpa PTR",
                &["9.0.244.10.in-addr.arpa. 30 PTR 10-244-0-9.web.default.svc.cluster.local."],
            ),
            ("3.0.244.10.in-addr.arpa PTR", &["NameError"]),
            ("1.0.96.10.in-addr.arpa A", &["NoData"]),
            ("0.96.10.in-addr.arpa PTR", &["NameError"]),
            ("in-addr.arpa PTR", &["NoData"]),
            ("in-addr.arpa SOA", &["in-addr.arpa. 30 SOA ns.dns.in-addr.arpa. hostmaster.in-addr.arpa. 1700 30"]),
        ],
    );
    let index = writer().index();
    let v6 = name_of("fd00::5".parse().expect("an address"));
    assert_eq!(ask(&zone(), &index, &format!("{v6} PTR")), [format!("{v6} 30 PTR web.default.svc.cluster.local.")]);
}

#[test]
fn pod_names() {
    let cases: &[(&str, &[&str])] = &[
        ("10-244-0-1.default.pod.cluster.local A", &["10-244-0-1.default.pod.cluster.local. 30 A 10.244.0.1"]),
        ("10-244-0-1.default.pod.cluster.local AAAA", &["NoData"]),
        ("fd00-1--1.default.pod.cluster.local AAAA", &["fd00-1--1.default.pod.cluster.local. 30 AAAA fd00:1::1"]),
        ("10-244-0-1.missing.pod.cluster.local A", &["NameError"]),
        ("x.default.pod.cluster.local A", &["NameError"]),
        ("default.pod.cluster.local A", &["NoData"]),
    ];
    check_all(&zone(), cases);
    check_all(
        &zone(),
        &[
            ("10-244-0-1.other.pod.cluster.local A", &["NameError"]),
            ("10-9-9-9.default.pod.cluster.local A", &["NameError"]),
        ],
    );
    let insecure = Zone { pods: PodMode::Insecure, ..zone() };
    check_all(&insecure, cases);
    check_all(
        &insecure,
        &[
            ("10-9-9-9.other.pod.cluster.local A", &["10-9-9-9.other.pod.cluster.local. 30 A 10.9.9.9"]),
            ("10-9-9-999.other.pod.cluster.local A", &["NameError"]),
        ],
    );
    check_all(
        &Zone { pods: PodMode::Disabled, ..zone() },
        &[("10-244-0-1.default.pod.cluster.local A", &["NameError"])],
    );
}

#[test]
fn names_of_the_zone_itself() {
    check_all(
        &zone(),
        &[
            ("cluster.local SOA", &["cluster.local. 30 SOA ns.dns.cluster.local. hostmaster.cluster.local. 1700 30"]),
            (
                "cluster.local NS",
                &["cluster.local. 30 NS ns.dns.cluster.local.", "+ ns.dns.cluster.local. 30 A 169.254.0.10"],
            ),
            ("ns.dns.cluster.local A", &["ns.dns.cluster.local. 30 A 169.254.0.10"]),
            ("ns.dns.cluster.local AAAA", &["NoData"]),
            ("cluster.local A", &["NoData"]),
            ("cluster.local TXT", &["NoData"]),
            ("svc.cluster.local A", &["NoData"]),
            ("pod.cluster.local A", &["NoData"]),
            ("default.svc.cluster.local A", &["NoData"]),
            ("dns-version.cluster.local TXT", &["dns-version.cluster.local. 28800 TXT 1.1.0"]),
            ("missing.svc.cluster.local A", &["NameError"]),
            ("missing.default.svc.cluster.local A", &["NameError"]),
            ("missing.default.svc.cluster.local TXT", &["NameError"]),
            ("missing.default.svc.cluster.local SOA", &["NameError"]),
            ("web.gone.svc.cluster.local A", &["NameError"]),
            ("web.default.cluster.local A", &["NameError"]),
            ("a.b.c.web.default.svc.cluster.local A", &["NameError"]),
            ("www.example.org.default.svc.cluster.local A", &["NameError"]),
            ("*.default.svc.cluster.local A", &["NameError"]),
            ("web\\.default.svc.cluster.local A", &["NameError"]),
            ("\\255.default.svc.cluster.local A", &["NameError"]),
            ("example.org A", &["outside"]),
        ],
    );
}

#[test]
fn the_dns_service_is_the_name_server() {
    let mut writer = writer();
    let object = json::decode(br#"{"spec":{"clusterIPs":["10.96.0.10"],"ports":[{"port":53}]}}"#).expect("JSON");
    writer.set_service("kube-system", "kube-dns", Some(Service::read("kube-system", "kube-dns", &object)));
    let check = |question: &str, want: &[&str]| assert_eq!(ask(&zone(), &writer.index(), question), want, "{question}");
    check(
        "cluster.local NS",
        &[
            "cluster.local. 30 NS kube-dns.kube-system.svc.cluster.local.",
            "+ kube-dns.kube-system.svc.cluster.local. 30 A 10.96.0.10",
        ],
    );
    check("ns.dns.cluster.local A", &["ns.dns.cluster.local. 30 A 10.96.0.10"]);
}

#[test]
fn options_of_the_zone() {
    let named = Zone { with_pod_names: true, ..zone() };
    check_all(
        &named,
        &[
            ("db-xyz.db.default.svc.cluster.local A", &["db-xyz.db.default.svc.cluster.local. 30 A 10.244.0.2"]),
            ("10-244-0-2.db.default.svc.cluster.local A", &["NameError"]),
            ("2.0.244.10.in-addr.arpa PTR", &["2.0.244.10.in-addr.arpa. 30 PTR db-xyz.db.default.svc.cluster.local."]),
        ],
    );
    let only = Zone { namespaces: ["other".into()].into(), ..zone() };
    check_all(
        &only,
        &[
            ("web.default.svc.cluster.local A", &["NameError"]),
            ("default.svc.cluster.local A", &["NameError"]),
            ("other.svc.cluster.local A", &["NoData"]),
            ("1.0.96.10.in-addr.arpa PTR", &["NameError"]),
        ],
    );
    check_all(&Zone { with_endpoints: false, ..zone() }, &[("db.default.svc.cluster.local A", &["NameError"])]);
    let strict = Zone { ignores_empty_services: true, ..zone() };
    check_all(
        &strict,
        &[
            ("kubernetes.default.svc.cluster.local A", &["NameError"]),
            ("web.default.svc.cluster.local A", &["web.default.svc.cluster.local. 30 A 10.96.0.5"]),
        ],
    );
}
