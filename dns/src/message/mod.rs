//! DNS messages (RFC 1035, 2782, 3596, 6891): values, reader and writer. The module is independent of sockets and
//! Kubernetes.

mod codes;
mod name;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use codes::{Rcode, Type, class, opcode};
pub use name::{Name, NameError};
pub use read::{ReadError, is_response, read_id};

/// The header, with the response code extended by EDNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The ID that a response repeats.
    pub id: u16,
    /// Whether the message is a response.
    pub is_response: bool,
    /// The operation.
    pub opcode: u8,
    /// Whether the server is authoritative for the name.
    pub authoritative: bool,
    /// Whether records were left out.
    pub truncated: bool,
    /// Whether the client requests recursion.
    pub recursion_desired: bool,
    /// Whether the server supports recursion.
    pub recursion_available: bool,
    /// Whether the server has verified the data.
    pub authentic_data: bool,
    /// Whether the client accepts data that was not verified.
    pub checking_disabled: bool,
    /// The response code.
    pub rcode: Rcode,
}

/// The question of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name in question.
    pub name: Name,
    /// The requested type.
    pub qtype: Type,
    /// The requested class.
    pub class: u16,
}

impl Question {
    /// A question of class IN.
    pub fn new(name: Name, qtype: Type) -> Question {
        Question { name, qtype, class: class::IN }
    }
}

/// A resource record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The name of the record.
    pub name: Name,
    /// Its type.
    pub rtype: Type,
    /// Its class.
    pub class: u16,
    /// How long it may be cached, in seconds.
    pub ttl: u32,
    /// Its data.
    pub data: Data,
}

/// The data of a record. Types whose names may be compressed are decoded, so that a record can move to another message;
/// others are kept as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// CNAME, NS, PTR, DNAME and the other types that are one name.
    Name(Name),
    /// MX and the other types that are a preference and a name.
    Preference(u16, Name),
    /// RP and MINFO.
    Names(Name, Name),
    /// A SRV record.
    Srv(Srv),
    /// A SOA record.
    Soa(Box<Soa>),
    /// The data of any other type.
    Raw(Box<[u8]>),
}

/// The data of a SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Srv {
    /// Lower values come first.
    pub priority: u16,
    /// The share among targets of equal priority.
    pub weight: u16,
    /// The port of the service.
    pub port: u16,
    /// The name of the host.
    pub target: Name,
}

/// The data of a SOA record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The primary name server.
    pub mname: Name,
    /// The mailbox of the administrator.
    pub rname: Name,
    /// The version of the zone.
    pub serial: u32,
    /// The refresh interval of secondary servers.
    pub refresh: u32,
    /// The retry interval of secondary servers.
    pub retry: u32,
    /// When secondary servers discard the zone.
    pub expire: u32,
    /// The TTL of denials.
    pub minimum: u32,
}

impl Record {
    fn new(name: Name, rtype: Type, ttl: u32, data: Data) -> Record {
        Record { name, rtype, class: class::IN, ttl, data }
    }

    /// An A or AAAA record.
    pub fn address(name: Name, ttl: u32, address: IpAddr) -> Record {
        match address {
            IpAddr::V4(address) => Record::new(name, Type::A, ttl, Data::A(address)),
            IpAddr::V6(address) => Record::new(name, Type::AAAA, ttl, Data::Aaaa(address)),
        }
    }

    /// A CNAME record.
    pub fn cname(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::CNAME, ttl, Data::Name(target))
    }

    /// A PTR record.
    pub fn ptr(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::PTR, ttl, Data::Name(target))
    }

    /// A NS record.
    pub fn ns(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::NS, ttl, Data::Name(target))
    }

    /// A SRV record.
    pub fn srv(name: Name, ttl: u32, srv: Srv) -> Record {
        Record::new(name, Type::SRV, ttl, Data::Srv(srv))
    }

    /// A SOA record.
    pub fn soa(name: Name, ttl: u32, soa: Soa) -> Record {
        Record::new(name, Type::SOA, ttl, Data::Soa(Box::new(soa)))
    }

    /// A TXT record of one string, cut at 255 bytes.
    pub fn txt(name: Name, ttl: u32, text: &str) -> Record {
        let text = &text.as_bytes()[..text.len().min(255)];
        let mut data = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
        data.extend_from_slice(text);
        Record::new(name, Type::TXT, ttl, Data::Raw(data.into()))
    }
}

/// The options of EDNS (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edns {
    /// The UDP payload that the sender can receive.
    pub payload: u16,
    /// The version of EDNS.
    pub version: u8,
    /// Whether the sender requests the records of DNSSEC.
    pub dnssec_ok: bool,
}

/// A message with at most one question, which is all that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The question.
    pub question: Option<Question>,
    /// The answers.
    pub answers: Vec<Record>,
    /// The records of the authority section.
    pub authorities: Vec<Record>,
    /// The additional records, without EDNS.
    pub additionals: Vec<Record>,
    /// The options of EDNS, if there are any.
    pub edns: Option<Edns>,
}

impl Message {
    /// A query with recursion.
    pub fn query(id: u16, question: Question) -> Message {
        let header = Header { id, recursion_desired: true, ..Header::default() };
        Message { header, question: Some(question), ..Message::default() }
    }

    /// An empty response to this message.
    pub fn reply(&self, rcode: Rcode) -> Message {
        let header = Header {
            id: self.header.id,
            is_response: true,
            opcode: self.header.opcode,
            recursion_desired: self.header.recursion_desired,
            checking_disabled: self.header.checking_disabled,
            rcode,
            ..Header::default()
        };
        Message { header, question: self.question.clone(), ..Message::default() }
    }

    /// All records, except for OPT.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.answers.iter().chain(&self.authorities).chain(&self.additionals)
    }

    /// All records, to be changed.
    pub fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.answers.iter_mut().chain(&mut self.authorities).chain(&mut self.additionals)
    }
}
