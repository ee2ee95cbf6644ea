//! The Corefile: server blocks with the plugins that clusters use. A plugin or option that is unknown or unfinished is
//! an error with its line; none is accepted and ignored. Pure, except for the environment that the caller passes.

mod blocks;
mod kubernetes;
mod lexer;
mod plugins;
mod rewrite;
mod syntax;
#[cfg(test)]
mod tests;
mod upstreams;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use kubernetes::Kubernetes;
pub use rewrite::{AnswerRewrite, Field, NameMatch, Rewrite};
pub use upstreams::{Forward, HealthCheck, Policy, Upstream};

use crate::message::{Name, Rcode};

/// The port of the DNS.
pub const DEFAULT_PORT: u16 = 53;

/// What is wrong with a Corefile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Corefile:{line}: {problem}")]
pub struct CorefileError {
    pub line: usize,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{0}")]
    Syntax(&'static str),
    #[error("unknown plugin {0:?}")]
    UnknownPlugin(String),
    #[error("unknown option {option:?} of plugin {plugin}")]
    UnknownOption { plugin: &'static str, option: String },
    #[error("{option} of plugin {plugin}: {why}")]
    Option { plugin: &'static str, option: String, why: String },
    #[error("plugin {plugin}: {why}")]
    Plugin { plugin: &'static str, why: String },
    #[error("plugin {0} can be used once in a server block")]
    Repeated(&'static str),
    #[error("invalid zone {zone:?}: {why}")]
    Zone { zone: String, why: String },
    #[error("zone {zone} on port {port} is served by another server block")]
    Duplicate { zone: Name, port: u16 },
}

/// The configuration of the server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Corefile {
    pub blocks: Vec<ServerBlock>,
}

/// The zones of a server block, and its plugins. The order of the plugins is fixed, as in CoreDNS.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerBlock {
    pub zones: Vec<Name>,
    pub port: u16,
    pub bind: Vec<IpAddr>,
    pub errors: bool,
    pub log: Vec<Log>,
    pub health: Option<Health>,
    pub ready: Option<SocketAddr>,
    pub prometheus: Option<SocketAddr>,
    pub reload: Option<Reload>,
    pub detects_loops: bool,
    pub shuffles: bool,
    pub rewrites: Vec<Rewrite>,
    pub autopath: Option<Autopath>,
    pub cache: Option<Cache>,
    pub hosts: Option<Hosts>,
    pub kubernetes: Option<Kubernetes>,
    pub forwards: Vec<Forward>,
}

/// For which names a plugin passes a question on that it cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fallthrough(pub Vec<Name>);

impl Fallthrough {
    pub fn passes(&self, name: &Name) -> bool {
        self.0.iter().any(|zone| name.is_within(zone))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub address: SocketAddr,
    /// How long the server still answers after it was told to stop.
    pub lameduck: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reload {
    pub interval: Duration,
}

/// The search path of a pod, which is found by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autopath {
    pub zones: Vec<Name>,
}

/// A query log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub zones: Vec<Name>,
    pub format: String,
    pub classes: Vec<LogClass>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClass {
    All,
    Success,
    Denial,
    Error,
}

/// The cache of forwarded answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    pub zones: Vec<Name>,
    pub success: CacheLimits,
    pub denial: CacheLimits,
    pub servfail: Duration,
    pub prefetch: Option<Prefetch>,
    pub stale: Option<Stale>,
    /// Zones without a cache of successful responses, and without one of denials.
    pub success_except: Vec<Name>,
    pub denial_except: Vec<Name>,
    pub keeps_ttl: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    pub capacity: usize,
    pub max_ttl: Duration,
    pub min_ttl: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    pub amount: u32,
    pub gap: Duration,
    pub percentage: u8,
}

/// How expired entries are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    pub duration: Duration,
    /// Whether the upstream is tried first.
    pub verifies: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Read if it exists.
    pub file: PathBuf,
    pub zones: Vec<Name>,
    /// The lines in the Corefile.
    pub inline: Vec<(IpAddr, Vec<Name>)>,
    pub ttl: u32,
    pub with_reverse: bool,
    pub reload: Duration,
    /// None: a name in the zones that is not found does not exist.
    pub fallthrough: Option<Fallthrough>,
}

/// A rewrite of the response code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcodeRewrite {
    pub from: Rcode,
    pub to: Rcode,
}

impl Corefile {
    /// Parses a Corefile; all problems are reported together.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Corefile, Vec<CorefileError>> {
        Corefile::parse_with_port(text, variable, DEFAULT_PORT)
    }

    /// The same, where zones without a port have another one.
    pub fn parse_with_port(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        default_port: u16,
    ) -> Result<Corefile, Vec<CorefileError>> {
        let tokens = lexer::lex(text, variable).map_err(|error| vec![error])?;
        let blocks = syntax::parse(&tokens).map_err(|error| vec![error])?;
        let (mut corefile, mut errors) = (Corefile::default(), Vec::new());
        for block in &blocks {
            blocks::read(block, default_port, &mut corefile.blocks, &mut errors);
        }
        if errors.is_empty() { Ok(corefile) } else { Err(errors) }
    }

    /// The ports of all server blocks.
    pub fn ports(&self) -> std::collections::BTreeSet<u16> {
        self.blocks.iter().map(|block| block.port).collect()
    }
}
