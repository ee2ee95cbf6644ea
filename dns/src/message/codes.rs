//! The numbers of types, classes, operations and response codes, with their names.

use std::fmt;

/// The type of a record or question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type(pub u16);

macro_rules! types {
    ($($name:ident = $number:literal),* $(,)?) => {
        impl Type {
            $(
                /// The type of this name in IANA's registry.
                pub const $name: Type = Type($number);
            )*
        }

        const TYPES: &[(&str, u16)] = &[$((stringify!($name), $number)),*];
    };
}

types! {
    A = 1, NS = 2, MD = 3, MF = 4, CNAME = 5, SOA = 6, MB = 7, MG = 8, MR = 9, NULL = 10, WKS = 11, PTR = 12,
    HINFO = 13, MINFO = 14, MX = 15, TXT = 16, RP = 17, AFSDB = 18, RT = 21, SIG = 24, KEY = 25, AAAA = 28, LOC = 29,
    SRV = 33, NAPTR = 35, KX = 36, CERT = 37, DNAME = 39, OPT = 41, APL = 42, DS = 43, SSHFP = 44, RRSIG = 46,
    NSEC = 47, DNSKEY = 48, NSEC3 = 50, NSEC3PARAM = 51, TLSA = 52, SVCB = 64, HTTPS = 65, SPF = 99, IXFR = 251,
    AXFR = 252, ANY = 255, URI = 256, CAA = 257,
}

impl Type {
    /// By its name, such as `AAAA`, or `TYPE1234`.
    pub fn parse(text: &str) -> Option<Type> {
        let upper = text.to_ascii_uppercase();
        let known = TYPES.iter().find(|(name, _)| *name == upper).map(|(_, number)| *number);
        known.or_else(|| upper.strip_prefix("TYPE")?.parse().ok()).map(Type)
    }

    /// The name of a known type.
    pub fn name(self) -> Option<&'static str> {
        TYPES.iter().find(|(_, number)| *number == self.0).map(|(name, _)| *name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

/// A response code, extended to twelve bits by EDNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Rcode(pub u16);

const RCODES: &[(&str, u16)] = &[
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
    ("BADVERS", 16),
];

impl Rcode {
    /// The query succeeded.
    pub const NO_ERROR: Rcode = Rcode(0);
    /// The query could not be read.
    pub const FORMAT_ERROR: Rcode = Rcode(1);
    /// The server failed.
    pub const SERVER_FAILURE: Rcode = Rcode(2);
    /// The name does not exist.
    pub const NAME_ERROR: Rcode = Rcode(3);
    /// The operation is not supported.
    pub const NOT_IMPLEMENTED: Rcode = Rcode(4);
    /// The server does not answer this query.
    pub const REFUSED: Rcode = Rcode(5);
    /// The version of EDNS is not supported.
    pub const BAD_VERSION: Rcode = Rcode(16);

    /// By its name, such as `NXDOMAIN`.
    pub fn parse(text: &str) -> Option<Rcode> {
        let upper = text.to_ascii_uppercase();
        RCODES.iter().find(|(name, _)| *name == upper).map(|(_, number)| Rcode(*number))
    }
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RCODES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "RCODE{}", self.0),
        }
    }
}

/// Classes.
pub mod class {
    /// The internet.
    pub const IN: u16 = 1;
    /// Chaosnet, used for queries about servers.
    pub const CH: u16 = 3;
    /// Hesiod.
    pub const HS: u16 = 4;
    /// Any class.
    pub const ANY: u16 = 255;

    /// The name of a class, or its number as `CLASS42`.
    pub fn text(class: u16) -> String {
        match class {
            IN => "IN".to_string(),
            CH => "CH".to_string(),
            HS => "HS".to_string(),
            ANY => "ANY".to_string(),
            other => format!("CLASS{other}"),
        }
    }
}

/// Operations.
pub mod opcode {
    /// A standard query.
    pub const QUERY: u8 = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(
            (Type::parse("aaaa"), Type::parse("TYPE65"), Type::parse("X")),
            (Some(Type::AAAA), Some(Type(65)), None)
        );
        assert_eq!((Type::HTTPS.to_string(), Type(9999).to_string()), ("HTTPS".into(), "TYPE9999".into()));
        assert_eq!(Rcode::parse("nxdomain"), Some(Rcode::NAME_ERROR));
        assert_eq!((Rcode::REFUSED.to_string(), Rcode(77).to_string()), ("REFUSED".into(), "RCODE77".into()));
        assert_eq!((class::text(1), class::text(9)), ("IN".to_string(), "CLASS9".to_string()));
    }
}
