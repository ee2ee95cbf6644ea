//! The entries of the `hosts` plugin, from a hosts file and from the Corefile.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::corefile::Hosts;
use crate::message::{Name, Question, Record, Type};
use crate::zone::address_of;

/// More entries are ignored.
const MAX_ENTRIES: usize = 100_000;

/// Names and addresses.
#[derive(Debug, Default)]
pub(crate) struct HostsTable {
    names: HashMap<Name, Vec<IpAddr>>,
    addresses: HashMap<IpAddr, Vec<Name>>,
}

/// The result of a lookup in the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostsAnswer {
    Records(Vec<Record>),
    /// The name exists without records of the type.
    NoData,
    NotFound,
    /// The name is outside of the zones.
    Outside,
}

impl HostsTable {
    /// The text of a hosts file, and the lines of the Corefile. These replace addresses of the same name in the file.
    pub(crate) fn new(file: &str, config: &Hosts) -> HostsTable {
        let mut table = HostsTable::default();
        for (address, names) in file.lines().filter_map(read_line).take(MAX_ENTRIES) {
            table.add(address, names, config.with_reverse);
        }
        for name in config.inline.iter().flat_map(|(_, names)| names) {
            table.names.remove(name);
        }
        for (address, names) in &config.inline {
            table.add(*address, names.clone(), config.with_reverse);
        }
        table
    }

    fn add(&mut self, address: IpAddr, names: Vec<Name>, with_reverse: bool) {
        for name in names {
            let addresses = self.names.entry(name.clone()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
            if with_reverse && name.labels().next() != Some(b"*") {
                self.addresses.entry(address).or_default().push(name);
            }
        }
    }

    /// The number of names.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn answer(&self, config: &Hosts, question: &Question) -> HostsAnswer {
        let name = question.name.to_lower();
        if question.qtype == Type::PTR {
            let names = address_of(&name).and_then(|address| self.addresses.get(&address));
            return names.map_or(HostsAnswer::Outside, |names| {
                let record = |target: &Name| Record::ptr(question.name.clone(), config.ttl, target.clone());
                HostsAnswer::Records(names.iter().map(record).collect())
            });
        }
        if !config.zones.iter().any(|zone| name.is_within(zone)) {
            return HostsAnswer::Outside;
        }
        let Some(addresses) = self.find(&name) else { return HostsAnswer::NotFound };
        let is_requested = |address: &&IpAddr| match question.qtype {
            Type::A => address.is_ipv4(),
            Type::AAAA => address.is_ipv6(),
            _ => false,
        };
        let records = addresses.iter().filter(is_requested);
        let records: Vec<Record> =
            records.map(|address| Record::address(question.name.clone(), config.ttl, *address)).collect();
        if records.is_empty() { HostsAnswer::NoData } else { HostsAnswer::Records(records) }
    }

    /// A name, or the wildcard for its first label.
    fn find(&self, name: &Name) -> Option<&Vec<IpAddr>> {
        let wildcard = || Name::below(["*"], &name.parent()?);
        self.names.get(name).or_else(|| self.names.get(&wildcard()?))
    }
}

/// `ADDRESS NAMES... # comment`.
fn read_line(line: &str) -> Option<(IpAddr, Vec<Name>)> {
    let mut words = line.split('#').next()?.split_whitespace();
    let address = words.next()?.parse().ok()?;
    Some((address, words.filter_map(|word| Name::parse(word).ok()).map(|name| name.to_lower()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_from_file_and_corefile() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let text = ". {\nhosts f example.org {\n10.0.0.9 new.example.org\n10.0.0.7 *.w.example.org\nttl 9\n}\n}";
        let corefile = crate::corefile::Corefile::parse(text, &|_| None).expect("a Corefile");
        let config = corefile.blocks[0].hosts.as_ref().expect("the plugin");
        let file = "127.0.0.1 localhost\n10.0.0.1 a.example.org A2.example.org # x\nfd00::1 a.example.org\nx y\n\
                    10.0.0.2 new.example.org\n";
        let table = HostsTable::new(file, config);
        let check = |of: &str, qtype: Type, want: &str| {
            let answer = match table.answer(config, &Question::new(name(of), qtype)) {
                HostsAnswer::Records(records) => records
                    .iter()
                    .map(|record| format!("{} {:?}", record.ttl, record.data))
                    .collect::<Vec<_>>()
                    .join(" "),
                other => format!("{other:?}"),
            };
            assert_eq!(answer, want, "{of} {qtype}");
        };
        check("a.example.org", Type::A, "9 A(10.0.0.1)");
        check("A.example.org", Type::AAAA, "9 Aaaa(fd00::1)");
        check("a2.example.org", Type::AAAA, "NoData");
        check("a.example.org", Type::TXT, "NoData");
        check("new.example.org", Type::A, "9 A(10.0.0.9)");
        check("x.w.example.org", Type::A, "9 A(10.0.0.7)");
        check("missing.example.org", Type::A, "NotFound");
        check("localhost", Type::A, "Outside");
        check("1.0.0.10.in-addr.arpa", Type::PTR, "9 Name(a.example.org.) 9 Name(a2.example.org.)");
        check("3.0.0.10.in-addr.arpa", Type::PTR, "Outside");
    }
}
