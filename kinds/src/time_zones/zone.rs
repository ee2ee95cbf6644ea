//! Time zones from TZif files (RFC 9636), reduced to the offset of local time from UTC at a given second.

use super::rule::Rule;

/// The offsets of a time zone from UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Start of each offset in seconds of UTC, sorted, and the offset.
    transitions: Vec<(i64, i64)>,
    /// The offset before the first transition.
    first: i64,
    /// The rule after the last transition.
    rule: Option<Rule>,
}

impl Zone {
    /// The zone without an offset.
    pub fn utc() -> Zone {
        Zone { transitions: Vec::new(), first: 0, rule: None }
    }

    /// None if the bytes are not a TZif file.
    pub fn parse(bytes: &[u8]) -> Option<Zone> {
        let header = Header::read(bytes)?;
        if header.version < b'2' {
            return header.zone(bytes.get(HEADER..)?, 4).map(|(zone, _)| zone);
        }
        // The first block has 32-bit times for old readers; a second block with 64-bit times follows.
        let second = bytes.get(HEADER + header.length(4)..)?;
        let header = Header::read(second)?;
        let (mut zone, length) = header.zone(second.get(HEADER..)?, 8)?;
        let footer = std::str::from_utf8(second.get(HEADER + length..)?).ok()?.trim_matches('\n');
        if !footer.is_empty() {
            zone.rule = Some(Rule::parse(footer)?);
        }
        Some(zone)
    }

    /// The offset of local time from UTC in seconds.
    pub fn offset(&self, utc: i64) -> i64 {
        let passed = self.transitions.partition_point(|(from, _)| *from <= utc);
        match (&self.rule, passed.checked_sub(1)) {
            (Some(rule), _) if passed == self.transitions.len() => rule.offset(utc),
            (_, Some(at)) => self.transitions[at].1,
            (_, None) => self.first,
        }
    }
}

const HEADER: usize = 44;

struct Header {
    version: u8,
    is_utc: usize,
    is_standard: usize,
    leaps: usize,
    times: usize,
    types: usize,
    names: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let count = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
        if bytes.get(..4)? != b"TZif" {
            return None;
        }
        Some(Header {
            version: *bytes.get(4)?,
            is_utc: count(20)?,
            is_standard: count(24)?,
            leaps: count(28)?,
            times: count(32)?,
            types: count(36)?,
            names: count(40)?,
        })
    }

    /// The length of the data block for times of `width` bytes.
    fn length(&self, width: usize) -> usize {
        self.times * (width + 1)
            + self.types * 6
            + self.names
            + self.leaps * (width + 4)
            + self.is_standard
            + self.is_utc
    }

    fn zone(&self, block: &[u8], width: usize) -> Option<(Zone, usize)> {
        let kinds = block.get(self.times * width..)?;
        let types = kinds.get(self.times..)?;
        let offset = |kind: usize| {
            let at = kind * 6;
            let bytes = types.get(at..at + 4)?;
            Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?)))
        };
        let transition = |at: usize| {
            let bytes = block.get(at * width..(at + 1) * width)?;
            let time = match width {
                8 => i64::from_be_bytes(bytes.try_into().ok()?),
                _ => i64::from(i32::from_be_bytes(bytes.try_into().ok()?)),
            };
            Some((time, offset(usize::from(*kinds.get(at)?))?))
        };
        let transitions = (0..self.times).map(transition).collect::<Option<Vec<_>>>()?;
        Some((Zone { transitions, first: offset(0)?, rule: None }, self.length(width)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with a block of each width, one transition, and a rule.
    fn file(footer: &str) -> Vec<u8> {
        let block = |width: usize| {
            let mut bytes = b"TZif2".to_vec();
            bytes.extend([0; 15]);
            for count in [0u32, 0, 0, 1, 2, 4] {
                bytes.extend(count.to_be_bytes());
            }
            bytes.extend(&1000i64.to_be_bytes()[8 - width..]);
            bytes.push(1);
            for offset in [60i32, 3600] {
                bytes.extend(offset.to_be_bytes());
                bytes.extend([0, 0]);
            }
            bytes.extend(b"ABC\0");
            bytes
        };
        [block(4), block(8), format!("\n{footer}\n").into_bytes()].concat()
    }

    #[test]
    fn parses_tzif_files() {
        let zone = Zone::parse(&file("")).expect("a zone");
        assert_eq!([zone.offset(999), zone.offset(1000), zone.offset(i64::MAX)], [60, 3600, 3600]);
        let zone = Zone::parse(&file("XYZ-2")).expect("a zone");
        assert_eq!([zone.offset(999), zone.offset(1000)], [60, 7200]);
    }

    #[test]
    fn refuses_invalid_tzif_files() {
        assert_eq!(Zone::parse(b""), None);
        assert_eq!(Zone::parse(b"not a zone at all, but long enough to be one, if only just"), None);
        let whole = file("XYZ-2");
        for length in 0..whole.len() - 8 {
            assert_eq!(Zone::parse(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(Zone::parse(&file("nonsense!")), None);
    }
}
