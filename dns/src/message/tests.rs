use std::net::IpAddr;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// One record of each kind of data.
pub(super) fn example() -> Message {
    let query = Message::query(0x1234, Question::new(name("Web.default.svc.cluster.local"), Type::A));
    let mut message = query.reply(Rcode::NO_ERROR);
    let web = name("web.default.svc.cluster.local");
    message.answers = vec![
        Record::address(web.clone(), 30, ip("10.96.0.1")),
        Record::address(web.clone(), 30, ip("fd00::1")),
        Record::cname(name("x.default.svc.cluster.local"), 5, name("example.org")),
        Record::srv(
            web.clone(),
            5,
            Srv { priority: 0, weight: 100, port: 80, target: name("a.web.default.svc.cluster.local") },
        ),
        Record::txt(web.clone(), 5, "1.1.0"),
        Record {
            rtype: Type::MX,
            data: Data::Preference(10, name("mail.example.org")),
            ..Record::txt(web.clone(), 5, "")
        },
        Record { rtype: Type::RP, data: Data::Names(name("a.org"), name("b.org")), ..Record::txt(web, 5, "") },
    ];
    let soa = Soa {
        mname: name("ns.dns.cluster.local"),
        rname: name("hostmaster.cluster.local"),
        serial: 7,
        refresh: 7200,
        retry: 1800,
        expire: 86400,
        minimum: 5,
    };
    message.authorities = vec![Record::soa(name("cluster.local"), 5, soa)];
    message.additionals = vec![Record::ptr(name("1.0.96.10.in-addr.arpa"), 5, name("web.default.svc.cluster.local"))];
    message.edns = Some(Edns { payload: 1232, version: 0, dnssec_ok: true });
    message
}

#[test]
fn messages_round_trip() {
    let message = example();
    let bytes = message.write(65535);
    assert_eq!(Message::read(&bytes), Ok(message.clone()));
    assert_eq!((read_id(&bytes), is_response(&bytes)), (Some(0x1234), true));
    let plain: usize = message.records().map(|record| record.name.as_wire().len()).sum();
    assert!(bytes.len() < plain + 250, "{} bytes are not compressed", bytes.len());
}

#[test]
fn repeated_labels_round_trip() {
    for text in ["1.1.1.1.in-addr.arpa", "a.a.a", "a", ".", "b.a.b.a"] {
        let mut message = Message::query(1, Question::new(name(text), Type::PTR)).reply(Rcode::NO_ERROR);
        message.answers = ["a.a.a.a", "a.a", text].map(|target| Record::ptr(name(text), 5, name(target))).into();
        assert_eq!(Message::read(&message.write(512)), Ok(message), "{text}");
    }
}

#[test]
fn header_bits_round_trip() {
    for bit in 0..16u16 {
        // Bit 6 is reserved, and bits 0 to 3 and 11 to 14 are numbers.
        let mut bytes = [0u8; 12];
        bytes[2..4].copy_from_slice(&(1u16 << bit).to_be_bytes());
        let read = Message::read(&bytes).expect("a header").write(512);
        let want = if bit == 6 { [0, 0] } else { (1u16 << bit).to_be_bytes() };
        assert_eq!(read[2..4], want, "bit {bit}");
    }
}

#[test]
fn extended_response_codes_need_edns() {
    let mut message = Message::query(1, Question::new(name("a"), Type::A)).reply(Rcode::BAD_VERSION);
    message.edns = Some(Edns::default());
    assert_eq!(Message::read(&message.write(512)).expect("a message").header.rcode, Rcode::BAD_VERSION);
}

#[test]
fn truncates_at_record_boundaries() {
    let mut message = Message::query(1, Question::new(name("a.b"), Type::A)).reply(Rcode::NO_ERROR);
    message.answers = (0..100u8).map(|n| Record::address(name("a.b"), 5, ip(&format!("10.0.0.{n}")))).collect();
    message.additionals = vec![Record::txt(name("a.b"), 5, "x")];
    message.edns = Some(Edns { payload: 1232, ..Edns::default() });
    let check = |limit: usize| {
        let bytes = message.write(limit);
        assert!(bytes.len() <= limit, "{} of {limit}", bytes.len());
        Message::read(&bytes).expect("a message")
    };
    let whole = check(65535);
    assert_eq!((whole.header.truncated, whole.answers.len(), whole.additionals.len()), (false, 100, 1));
    let small = check(512);
    // 12 bytes of header, 9 of question, 11 of OPT, and 16 of each record.
    assert_eq!((small.header.truncated, small.answers.len(), small.additionals.len()), (true, (512 - 32) / 16, 0));
    assert!(small.edns.is_some(), "OPT is kept");
    let without_additional = check(12 + 9 + 11 + 1600);
    assert_eq!((without_additional.header.truncated, without_additional.additionals.len()), (false, 0));
}

#[test]
fn rejects_malformed_messages() {
    let query = Message::query(1, Question::new(name("a.b"), Type::A)).write(512);
    let check = |bytes: &[u8], want: ReadError| assert_eq!(Message::read(bytes), Err(want), "{bytes:?}");
    for length in 0..query.len() {
        check(&query[..length], ReadError::Short);
    }
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = query.clone();
        change(&mut bytes);
        bytes
    };
    check(&with(&|bytes| bytes.push(0)), ReadError::Trailing);
    check(&with(&|bytes| bytes[5] = 2), ReadError::Questions);
    check(&with(&|bytes| bytes[7] = 1), ReadError::Short);
    // Pointers: to itself, forwards, into the header, and in a circle of two.
    check(&with(&|bytes| bytes[12..14].copy_from_slice(&[0xc0, 12])), ReadError::Name);
    check(&with(&|bytes| bytes[12..14].copy_from_slice(&[0xc0, 14])), ReadError::Name);
    check(&with(&|bytes| bytes[12..14].copy_from_slice(&[0xc0, 2])), ReadError::Name);
    check(&with(&|bytes| bytes[12..16].copy_from_slice(&[0xc0, 14, 0xc0, 12])), ReadError::Name);
    // A label with a reserved type.
    check(&with(&|bytes| bytes[12] = 0x41), ReadError::Name);
    // Names of more than 255 bytes.
    let long: Vec<u8> = [1, b'x'].repeat(128);
    check(&[&query[..12], &long, &[0, 0, 1, 0, 1]].concat(), ReadError::Name);
    // A record whose data is longer than its type.
    let record = [0u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5];
    check(&[&with(&|bytes| bytes[7] = 1)[..], &record].concat(), ReadError::Data);
    // Two OPT records, and one with a name.
    let opt = [0u8, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0];
    check(&[&with(&|bytes| bytes[11] = 2)[..], &opt, &opt].concat(), ReadError::Opt);
    check(&[&with(&|bytes| bytes[11] = 1)[..], &[0xc0, 12], &opt[1..]].concat(), ReadError::Opt);
}

#[test]
fn decompresses_names_in_data() {
    // MX of `b.a` whose exchange points to the question.
    let query = Message::query(1, Question::new(name("b.a"), Type::MX)).write(512);
    let mut bytes = query;
    bytes[7] = 1;
    bytes.extend([0xc0, 12, 0, 15, 0, 1, 0, 0, 0, 9, 0, 4, 0, 10, 0xc0, 14]);
    let message = Message::read(&bytes).expect("a message");
    assert_eq!(message.answers[0].data, Data::Preference(10, name("a")));
    assert_eq!(message.answers[0].name, name("b.a"));
}
