//! Tables and changes as text, close to the nft command's, for logs and tests.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use network::nft::{Field, Kind};

use super::diff::ElementRef;
use super::{Change, Rule, Set, Step, Table, Value};

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, set) in &self.sets {
            writeln!(f, "set {name} {{ {} }}", elements(set))?;
        }
        for (name, chain) in &self.chains {
            match chain.hook {
                Some(hook) => writeln!(f, "chain {name} hook {} priority {}", hook.number, hook.priority)?,
                None => writeln!(f, "chain {name}")?,
            }
            for rule in &chain.rules {
                writeln!(f, "  {}", rule_text(rule))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::DeleteElements(set, elements) => write!(f, "delete element {set} {{ {} }}", listed(elements)),
            Change::FlushChain(chain) => write!(f, "flush chain {chain}"),
            Change::DeleteChain(chain) => write!(f, "delete chain {chain}"),
            Change::DeleteSet(set) => write!(f, "delete set {set}"),
            Change::CreateSet(set, _) => write!(f, "create set {set}"),
            Change::CreateChain(chain, _) => write!(f, "create chain {chain}"),
            Change::AddRule(chain, rule) => write!(f, "add rule {chain} {}", rule_text(rule)),
            Change::AddElements(set, elements) => write!(f, "add element {set} {{ {} }}", listed(elements)),
        }
    }
}

fn elements(set: &Set) -> String {
    let element = |(key, value): (&Vec<u8>, &Value)| match value {
        Value::Member => key_text(key, set.kind.key),
        Value::Goto(chain) => format!("{} : goto {chain}", key_text(key, set.kind.key)),
        Value::Until(last) => format!("{}-{}", key_text(key, set.kind.key), key_text(last, set.kind.key)),
    };
    set.elements.iter().map(element).collect::<Vec<_>>().join(", ")
}

fn listed(elements: &[ElementRef<'_>]) -> String {
    let element = |(key, value): &ElementRef<'_>| match value {
        Value::Member => hex(key),
        Value::Goto(chain) => format!("{} : goto {chain}", hex(key)),
        Value::Until(last) => format!("{}-{}", hex(key), hex(last)),
    };
    elements.iter().map(element).collect::<Vec<_>>().join(", ")
}

fn hex(bytes: &[u8]) -> String {
    stdx::hex::encode(bytes)
}

/// The parts of a key.
fn key_text(key: &[u8], kinds: &[Kind]) -> String {
    let mut rest = key;
    let mut part = |kind: &Kind| {
        let length = match kind {
            Kind::Ipv6 | Kind::InterfaceName => 16,
            Kind::Mac => 8,
            _ => 4,
        };
        let (bytes, left) = rest.split_at(length.min(rest.len()));
        rest = left;
        match (kind, bytes) {
            (Kind::Ipv4, [a, b, c, d]) => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
            (Kind::Ipv6, bytes) => {
                <[u8; 16]>::try_from(bytes).map_or_else(|_| hex(bytes), |bytes| Ipv6Addr::from(bytes).to_string())
            }
            (Kind::Protocol, [number, ..]) => number.to_string(),
            (Kind::Port, [high, low, ..]) => u16::from_be_bytes([*high, *low]).to_string(),
            (_, bytes) => hex(bytes),
        }
    };
    kinds.iter().map(&mut part).collect::<Vec<_>>().join(" . ")
}

fn rule_text(rule: &Rule) -> String {
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)).to_string();
    let step = |step: &Step| match step {
        Step::Load(field, _) => field_text(*field),
        Step::Equal(_, value) => number(value),
        Step::Between(_, first, last) => format!("{}-{}", number(first), number(last)),
        Step::AnyBit(_, bits) => format!("& {}", u32::from_ne_bytes(*bits)),
        Step::In(_, set) => format!("@{set}"),
        Step::Verdict(_, map) => format!("@{map} verdict"),
        Step::Jump(chain) => format!("jump {chain}"),
        Step::Goto(chain) => format!("goto {chain}"),
        Step::Accept => "accept".to_string(),
        Step::Drop => "drop".to_string(),
    };
    rule.iter().map(step).collect::<Vec<_>>().join(" ")
}

fn field_text(field: Field) -> String {
    match field {
        Field::OriginalSource4 => "from".to_string(),
        Field::OriginalSource6 => "from6".to_string(),
        Field::ReplySource4 => "to".to_string(),
        Field::ReplySource6 => "to6".to_string(),
        Field::ReplyPort => "port".to_string(),
        Field::ConnectionProtocol => "protocol".to_string(),
        field => format!("{field:?}"),
    }
}
