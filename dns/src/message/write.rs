//! Writes messages with compression, within the size that the client can receive.

use super::read::HEADER;
use super::{Data, Edns, Header, Message, Name, Record, Type};

/// The size of an OPT record without options.
const OPT_SIZE: usize = 11;
/// The positions of earlier names that are compared. Most names of a response are one of the first.
const MAX_POSITIONS: usize = 48;
/// Pointers have 14 bits.
const MAX_POINTER: usize = 0x3fff;

struct Writer {
    bytes: Vec<u8>,
    /// The positions of labels of earlier names.
    positions: Vec<u16>,
}

impl Message {
    /// The message in at most `limit` bytes. If answers or authorities are missing, it is marked as truncated;
    /// additional records are left out silently, as RFC 2181 recommends.
    pub fn write(&self, limit: usize) -> Vec<u8> {
        let limit = limit.min(usize::from(u16::MAX));
        let mut writer = Writer { bytes: vec![0; HEADER], positions: Vec::with_capacity(8) };
        if let Some(question) = &self.question {
            writer.name(&question.name, true);
            writer.u16(question.qtype.0);
            writer.u16(question.class);
        }
        let space = limit.saturating_sub(if self.edns.is_some() { OPT_SIZE } else { 0 });
        let answers = writer.records(&self.answers, space);
        let is_whole = answers == self.answers.len();
        let authorities = if is_whole { writer.records(&self.authorities, space) } else { 0 };
        let is_whole = is_whole && authorities == self.authorities.len();
        let additionals = if is_whole { writer.records(&self.additionals, space) } else { 0 };
        if let Some(edns) = &self.edns {
            writer.edns(*edns, self.header);
        }
        let counts = [
            usize::from(self.question.is_some()),
            answers,
            authorities,
            additionals + usize::from(self.edns.is_some()),
        ];
        writer.header(Header { truncated: self.header.truncated || !is_whole, ..self.header }, counts);
        writer.bytes
    }
}

impl Writer {
    fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    fn header(&mut self, header: Header, counts: [usize; 4]) {
        let bits = [
            (header.is_response, 15),
            (header.authoritative, 10),
            (header.truncated, 9),
            (header.recursion_desired, 8),
            (header.recursion_available, 7),
            (header.authentic_data, 5),
            (header.checking_disabled, 4),
        ];
        let flags = bits.iter().fold(0, |flags, (set, bit)| flags | u16::from(*set) << bit);
        let flags = flags | u16::from(header.opcode & 0xf) << 11 | (header.rcode.0 & 0xf);
        self.bytes[..2].copy_from_slice(&header.id.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        for (at, count) in counts.into_iter().enumerate() {
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            self.bytes[4 + 2 * at..6 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
    }

    /// Writes records while they fit; how many did.
    fn records(&mut self, records: &[Record], space: usize) -> usize {
        for (count, record) in records.iter().enumerate() {
            let (start, positions) = (self.bytes.len(), self.positions.len());
            self.record(record);
            if self.bytes.len() > space {
                self.bytes.truncate(start);
                self.positions.truncate(positions);
                return count;
            }
        }
        records.len()
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.name, true);
        self.u16(record.rtype.0);
        self.u16(record.class);
        self.u32(record.ttl);
        let start = self.bytes.len();
        self.u16(0);
        self.data(&record.data);
        let length = u16::try_from(self.bytes.len() - start - 2).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn data(&mut self, data: &Data) {
        match data {
            Data::A(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Aaaa(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Name(name) => self.name(name, true),
            Data::Preference(preference, name) => {
                self.u16(*preference);
                self.name(name, true);
            }
            Data::Names(first, second) => {
                self.name(first, true);
                self.name(second, true);
            }
            Data::Srv(srv) => {
                self.u16(srv.priority);
                self.u16(srv.weight);
                self.u16(srv.port);
                // RFC 2782: not compressed.
                self.name(&srv.target, false);
            }
            Data::Soa(soa) => {
                self.name(&soa.mname, true);
                self.name(&soa.rname, true);
                [soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum].into_iter().for_each(|n| self.u32(n));
            }
            Data::Raw(bytes) => self.bytes.extend_from_slice(bytes),
        }
    }

    fn edns(&mut self, edns: Edns, header: Header) {
        self.bytes.push(0);
        self.u16(Type::OPT.0);
        self.u16(edns.payload);
        let extended = (header.rcode.0 >> 4) as u8;
        self.bytes.extend_from_slice(&[extended, edns.version, if edns.dnssec_ok { 0x80 } else { 0 }, 0]);
        self.u16(0);
    }

    /// Writes a name, with a pointer to the longest suffix that was written before.
    fn name(&mut self, name: &Name, is_compressed: bool) {
        let mut rest = name.as_wire();
        // The name itself is not complete yet.
        let earlier = self.positions.len();
        while rest.len() > 1 {
            let mut known = self.positions[..earlier].iter().filter(|_| is_compressed);
            if let Some(at) = known.find(|at| self.is_at(rest, usize::from(**at))) {
                let pointer = 0xc000 | *at;
                self.u16(pointer);
                return;
            }
            self.remember();
            let label = usize::from(rest[0]) + 1;
            self.bytes.extend_from_slice(&rest[..label]);
            rest = &rest[label..];
        }
        self.bytes.push(0);
    }

    fn remember(&mut self) {
        let at = self.bytes.len();
        if at <= MAX_POINTER && self.positions.len() < MAX_POSITIONS {
            self.positions.push(at as u16);
        }
    }

    /// Whether the name at a position, which may end in a pointer, is this one.
    fn is_at(&self, mut wire: &[u8], mut at: usize) -> bool {
        loop {
            match self.bytes[at] {
                0 => return wire == [0],
                head @ 0xc0.. => at = usize::from(head & 0x3f) << 8 | usize::from(self.bytes[at + 1]),
                head => {
                    let length = usize::from(head) + 1;
                    if wire.get(..length) != Some(&self.bytes[at..at + length]) {
                        return false;
                    }
                    (wire, at) = (&wire[length..], at + length);
                }
            }
        }
    }
}
