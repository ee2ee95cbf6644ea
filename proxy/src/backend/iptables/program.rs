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

    fn with_rule(&self, operation: &str, jump: &Jump) -> Result<Output, Error> {
        let mut arguments = vec!["-t", jump.table, operation, jump.from];
        arguments.extend(jump.arguments.iter().map(String::as_str));
        self.run(&arguments)
    }

    pub(super) fn has_rule(&self, jump: &Jump) -> Result<bool, Error> {
        self.with_rule("-C", jump).map(|output| output.status.success())
    }

    /// Inserts a rule at the front of a built-in chain, unless it is there.
    pub(super) fn ensure_rule(&self, jump: &Jump) -> Result<(), Error> {
        if self.has_rule(jump)? {
            return Ok(());
        }
        checked(self.command, &self.with_rule("-I", jump)?)
    }

    /// Deletes a rule, if it is there.
    pub(super) fn delete_rule(&self, jump: &Jump) {
        // A chain that does not exist has no rule either.
        while self.has_rule(jump).unwrap_or(false) {
            if !self.with_rule("-D", jump).is_ok_and(|output| output.status.success()) {
                return;
            }
        }
    }

    /// The chains of a table.
    pub(super) fn chains(&self, table: &str) -> Result<Vec<String>, Error> {
        self.rule_counts(table).map(|counts| counts.into_keys().collect())
    }

    /// The numbers of rules of a table's own chains.
    pub(super) fn rule_counts(&self, table: &str) -> Result<BTreeMap<String, usize>, Error> {
        let output = self.run(&["-t", table, "-S"])?;
        checked(self.command, &output)?;
        let mut counts = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("-N"), Some(chain)) => drop(counts.insert(chain.to_string(), 0)),
                (Some("-A"), Some(chain)) => counts.get_mut(chain).into_iter().for_each(|count| *count += 1),
                _ => {}
            }
        }
        Ok(counts)
    }
}

fn checked(program: &str, output: &Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Error::Program { program: program.to_string(), message })
}
