//! DNS messages (RFC 1035, 2782, 3596, 6891): values, reader and writer. It knows neither sockets nor Kubernetes.

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
    pub id: u16,
    pub is_response: bool,
    pub opcode: u8,
    pub authoritative: bool,
    pub truncated: bool,
    pub recursion_desired: bool,
    pub recursion_available: bool,
    pub authentic_data: bool,
    pub checking_disabled: bool,
    pub rcode: Rcode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub name: Name,
    pub qtype: Type,
    pub class: u16,
}

impl Question {
    pub fn new(name: Name, qtype: Type) -> Question {
        Question { name, qtype, class: class::IN }
    }
}

/// A resource record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub name: Name,
    pub rtype: Type,
    pub class: u16,
    pub ttl: u32,
    pub data: Data,
}

/// The data of a record. Types whose names may be compressed are decoded, so that a record can move to another message;
/// others are kept as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    /// CNAME, NS, PTR, DNAME and the other types that are one name.
    Name(Name),
    /// MX and the other types that are a preference and a name.
    Preference(u16, Name),
    /// RP and MINFO.
    Names(Name, Name),
    Srv(Srv),
    Soa(Box<Soa>),
    Raw(Box<[u8]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Srv {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub target: Name,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    pub mname: Name,
    pub rname: Name,
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
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

    pub fn cname(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::CNAME, ttl, Data::Name(target))
    }

    pub fn ptr(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::PTR, ttl, Data::Name(target))
    }

    pub fn ns(name: Name, ttl: u32, target: Name) -> Record {
        Record::new(name, Type::NS, ttl, Data::Name(target))
    }

    pub fn srv(name: Name, ttl: u32, srv: Srv) -> Record {
        Record::new(name, Type::SRV, ttl, Data::Srv(srv))
    }

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
    pub version: u8,
    pub dnssec_ok: bool,
}

/// A message with at most one question, which is all that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    pub header: Header,
    pub question: Option<Question>,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
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

    pub fn records_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.answers.iter_mut().chain(&mut self.authorities).chain(&mut self.additionals)
    }
}
