//! Calls iptables.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::super::Error;
use super::names::Jump;
use crate::model::Family;

/// The tables that a proxy uses.
pub(super) const TABLES: [&str; 2] = ["nat", "filter"];
/// How long iptables waits for its lock, in seconds.
const LOCK_SECONDS: &str = "5";

/// The rules of a table, as they were read.
#[derive(Default)]
pub(super) struct TableRules {
    /// The numbers of rules of the chains that programs have added.
    counts: BTreeMap<String, usize>,
    /// The rules of the built-in chains, as `-A` prints them, and how often they are there.
    built_in: BTreeMap<String, usize>,
}

impl TableRules {
    fn read(output: &str) -> TableRules {
        let mut rules = TableRules::default();
        for line in output.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("-N"), Some(chain)) => drop(rules.counts.insert(chain.to_string(), 0)),
                (Some("-A"), Some(chain)) => match rules.counts.get_mut(chain) {
                    Some(count) => *count += 1,
                    None => *rules.built_in.entry(line.to_string()).or_default() += 1,
                },
                _ => {}
            }
        }
        rules
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = &String> {
        self.counts.keys()
    }

    /// The number of rules of a chain, if it exists.
    pub(super) fn count(&self, chain: &str) -> Option<usize> {
        self.counts.get(chain).copied()
    }

    /// How often a jump is there.
    pub(super) fn count_of(&self, jump: &Jump) -> usize {
        self.built_in.get(&format!("-A {}", jump.text())).copied().unwrap_or_default()
    }
}

/// The programs of a family.
pub(super) struct Program {
    command: &'static str,
    restore: &'static str,
}

impl Program {
    pub(super) fn of(family: Family) -> Program {
        match family {
            Family::V4 => Program { command: "iptables", restore: "iptables-restore" },
            Family::V6 => Program { command: "ip6tables", restore: "ip6tables-restore" },
        }
    }

    /// Applies text, each table in one transaction. Chains that it does not mention stay.
    pub(super) fn restore(&self, text: &str) -> Result<(), Error> {
        let io = |source| Error::Io { what: format!("run {}", self.restore), source };
        let mut child = Command::new(self.restore)
            .args(["--noflush", "--wait", LOCK_SECONDS])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(io)?;
        // A program that refuses its input may end before it has read all of it.
        match checked(self.restore, &output) {
            Ok(()) => written.unwrap_or(Ok(())).map_err(io),
            Err(error) => {
                tracing::debug!(text, "refused rules");
                Err(error)
            }
        }
    }

    fn run(&self, arguments: &[&str]) -> Result<Output, Error> {
        let io = |source| Error::Io { what: format!("run {}", self.command), source };
        Command::new(self.command).args(["--wait", LOCK_SECONDS]).args(arguments).output().map_err(io)
    }

    /// The rules of a table.
    pub(super) fn rules(&self, table: &str) -> Result<TableRules, Error> {
        let output = self.run(&["-t", table, "-S"])?;
        checked(self.command, &output)?;
        Ok(TableRules::read(&String::from_utf8_lossy(&output.stdout)))
    }
}

fn checked(program: &str, output: &Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Error::Program { program: program.to_string(), message })
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::*;

    #[test]
    fn reads_rules() {
        let names = Names::new("tiphys-proxy");
        let jumps = names.jumps();
        let own = names.shared("FILTER");
        let text = format!(
            "-P INPUT ACCEPT\n-N DOCKER\n-N {own}\n-A INPUT -m conntrack --ctstate NEW -j {own}\n-A INPUT -j DOCKER\n\
             -A {own} -j DROP\n-A {own} -j ACCEPT\n-A DOCKER -j {own}\n"
        );
        let rules = TableRules::read(&text);
        let found: Vec<&str> = jumps.iter().filter(|jump| rules.count_of(jump) == 1).map(|jump| jump.from).collect();
        assert_eq!(found, ["INPUT"]);
        assert_eq!(rules.count(&own), Some(2));
        assert_eq!(rules.count("DOCKER"), Some(1));
        assert_eq!(rules.count("INPUT"), None);
    }
}
