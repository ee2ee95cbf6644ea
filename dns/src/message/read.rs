//! Reads messages. Every length is checked, and a name is followed only backwards, so that no input loops.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::name::{MAX_LABEL, MAX_NAME};
use super::{Data, Edns, Header, Message, Name, Question, Rcode, Record, Soa, Srv, Type};

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The message ends early.
    #[error("the message ends early")]
    Short,
    /// A name is invalid.
    #[error("a name is invalid")]
    Name,
    /// The length of a record does not match its data.
    #[error("the length of a record does not match its data")]
    Data,
    /// There is more than one question.
    #[error("there is more than one question")]
    Questions,
    /// There is more than one OPT record, or it is not at the root.
    #[error("there is more than one OPT record, or it is not at the root")]
    Opt,
    /// Bytes follow the message.
    #[error("bytes follow the message")]
    Trailing,
}

pub(super) const HEADER: usize = 12;

/// The ID of a message whose header is complete.
pub fn read_id(bytes: &[u8]) -> Option<u16> {
    bytes.get(..HEADER)?.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))
}

/// Whether the header is that of a response.
pub fn is_response(bytes: &[u8]) -> bool {
    bytes.get(2).is_some_and(|flags| flags & 0x80 != 0)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ReadError> {
        let taken = self.bytes.get(self.at..self.at + count).ok_or(ReadError::Short)?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        self.take(N)?.try_into().map_err(|_| ReadError::Short)
    }

    fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A name, possibly compressed. Each pointer has to point before all bytes of the name that were read so far.
    fn name(&mut self) -> Result<Name, ReadError> {
        let mut wire = [0u8; MAX_NAME];
        let (mut length, mut at, mut earliest) = (0, self.at, self.at);
        let mut end = None;
        loop {
            let head = usize::from(*self.bytes.get(at).ok_or(ReadError::Short)?);
            match head {
                0 => break,
                1..=MAX_LABEL => {
                    let label = self.bytes.get(at..at + 1 + head).ok_or(ReadError::Short)?;
                    // The root needs one more byte.
                    let place = wire.get_mut(length..length + label.len()).filter(|_| length + label.len() < MAX_NAME);
                    place.ok_or(ReadError::Name)?.copy_from_slice(label);
                    length += label.len();
                    at += label.len();
                }
                0xc0.. => {
                    let low = usize::from(*self.bytes.get(at + 1).ok_or(ReadError::Short)?);
                    let target = (head & 0x3f) << 8 | low;
                    if target >= earliest || target < HEADER {
                        return Err(ReadError::Name);
                    }
                    end.get_or_insert(at + 2);
                    (at, earliest) = (target, target);
                }
                _ => return Err(ReadError::Name),
            }
        }
        self.at = end.unwrap_or(at + 1);
        Ok(Name::from_wire(&wire[..=length]))
    }

    fn question(&mut self) -> Result<Question, ReadError> {
        Ok(Question { name: self.name()?, qtype: Type(self.u16()?), class: self.u16()? })
    }

    fn record(&mut self) -> Result<Record, ReadError> {
        let (name, rtype, class) = (self.name()?, Type(self.u16()?), self.u16()?);
        let (ttl, length) = (self.u32()?, usize::from(self.u16()?));
        let end = self.at + length;
        if end > self.bytes.len() {
            return Err(ReadError::Short);
        }
        let data = self.data(rtype, length)?;
        if self.at != end {
            return Err(ReadError::Data);
        }
        Ok(Record { name, rtype, class, ttl, data })
    }

    fn data(&mut self, rtype: Type, length: usize) -> Result<Data, ReadError> {
        Ok(match rtype {
            Type::A => Data::A(Ipv4Addr::from(self.array::<4>()?)),
            Type::AAAA => Data::Aaaa(Ipv6Addr::from(self.array::<16>()?)),
            Type::NS | Type::MD | Type::MF | Type::CNAME | Type::MB | Type::MG | Type::MR | Type::PTR | Type::DNAME => {
                Data::Name(self.name()?)
            }
            Type::MX | Type::AFSDB | Type::RT | Type::KX => Data::Preference(self.u16()?, self.name()?),
            Type::RP | Type::MINFO => Data::Names(self.name()?, self.name()?),
            Type::SRV => {
                Data::Srv(Srv { priority: self.u16()?, weight: self.u16()?, port: self.u16()?, target: self.name()? })
            }
            Type::SOA => Data::Soa(Box::new(self.soa()?)),
            _ => Data::Raw(self.take(length)?.into()),
        })
    }

    fn soa(&mut self) -> Result<Soa, ReadError> {
        Ok(Soa {
            mname: self.name()?,
            rname: self.name()?,
            serial: self.u32()?,
            refresh: self.u32()?,
            retry: self.u32()?,
            expire: self.u32()?,
            minimum: self.u32()?,
        })
    }
}

fn header(id: u16, flags: u16) -> Header {
    let flag = |bit: u16| flags & (1 << bit) != 0;
    Header {
        id,
        is_response: flag(15),
        opcode: (flags >> 11 & 0xf) as u8,
        authoritative: flag(10),
        truncated: flag(9),
        recursion_desired: flag(8),
        recursion_available: flag(7),
        authentic_data: flag(5),
        checking_disabled: flag(4),
        rcode: Rcode(flags & 0xf),
    }
}

impl Message {
    /// Reads a whole message.
    pub fn read(bytes: &[u8]) -> Result<Message, ReadError> {
        let mut reader = Reader { bytes, at: 0 };
        let mut header = header(reader.u16()?, reader.u16()?);
        let [questions, answers, authorities, additionals] =
            [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
        if questions > 1 {
            return Err(ReadError::Questions);
        }
        let question = (questions == 1).then(|| reader.question()).transpose()?;
        let answers = records(&mut reader, answers)?;
        let authorities = records(&mut reader, authorities)?;
        let mut additionals = records(&mut reader, additionals)?;
        if reader.at != bytes.len() {
            return Err(ReadError::Trailing);
        }
        let edns = take_edns(&mut additionals, &mut header)?;
        Ok(Message { header, question, answers, authorities, additionals, edns })
    }
}

fn records(reader: &mut Reader, count: u16) -> Result<Vec<Record>, ReadError> {
    (0..count).map(|_| reader.record()).collect()
}

/// The OPT record, which extends the header and is no record of the message.
fn take_edns(additionals: &mut Vec<Record>, header: &mut Header) -> Result<Option<Edns>, ReadError> {
    let Some(at) = additionals.iter().position(|record| record.rtype == Type::OPT) else { return Ok(None) };
    let opt = additionals.remove(at);
    if !opt.name.is_root() || additionals.iter().any(|record| record.rtype == Type::OPT) {
        return Err(ReadError::Opt);
    }
    let [extended, version, flags, _] = opt.ttl.to_be_bytes();
    header.rcode = Rcode(header.rcode.0 | u16::from(extended) << 4);
    Ok(Some(Edns { payload: opt.class, version, dnssec_ok: flags & 0x80 != 0 }))
}
