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

/// An error in a Corefile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Corefile:{line}: {problem}")]
pub struct CorefileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: Problem,
}

/// The error of a line of a Corefile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text does not have the form of a Corefile.
    #[error("{0}")]
    Syntax(&'static str),
    /// A plugin that this server does not have.
    #[error("unknown plugin {0:?}")]
    UnknownPlugin(String),
    /// An option that the plugin does not have.
    #[error("unknown option {option:?} of plugin {plugin}")]
    UnknownOption { plugin: &'static str, option: String },
    /// An invalid option of a plugin.
    #[error("{option} of plugin {plugin}: {why}")]
    Option { plugin: &'static str, option: String, why: String },
    /// An invalid argument of a plugin.
    #[error("plugin {plugin}: {why}")]
    Plugin { plugin: &'static str, why: String },
    /// A plugin that a server block uses twice.
    #[error("plugin {0} can be used once in a server block")]
    Repeated(&'static str),
    /// An invalid zone.
    #[error("invalid zone {zone:?}: {why}")]
    Zone { zone: String, why: String },
    /// A zone of two server blocks.
    #[error("zone {zone} on port {port} is served by another server block")]
    Duplicate { zone: Name, port: u16 },
}

/// The configuration of the server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Corefile {
    /// The server blocks.
    pub blocks: Vec<ServerBlock>,
}

/// The zones of a server block, and its plugins. The order of the plugins is fixed, as in CoreDNS.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerBlock {
    /// The zones that the block serves.
    pub zones: Vec<Name>,
    /// The port of the queries.
    pub port: u16,
    /// The addresses of plugin `bind`; all addresses if there are none.
    pub bind: Vec<IpAddr>,
    /// Whether errors are logged.
    pub errors: bool,
    /// The query logs.
    pub log: Vec<Log>,
    /// The health endpoint.
    pub health: Option<Health>,
    /// The address of the readiness endpoint.
    pub ready: Option<SocketAddr>,
    /// The address of the metrics endpoint.
    pub prometheus: Option<SocketAddr>,
    /// Whether and how often the Corefile is reloaded.
    pub reload: Option<Reload>,
    /// Whether loops of forwarded queries are detected.
    pub detects_loops: bool,
    /// Whether addresses are shuffled, as by plugin `loadbalance`.
    pub shuffles: bool,
    /// The rewrite rules.
    pub rewrites: Vec<Rewrite>,
    /// The server-side search path.
    pub autopath: Option<Autopath>,
    /// The cache of responses.
    pub cache: Option<Cache>,
    /// The hosts table.
    pub hosts: Option<Hosts>,
    /// The names of the cluster.
    pub kubernetes: Option<Kubernetes>,
    /// The upstreams by zone.
    pub forwards: Vec<Forward>,
}

/// For which names a plugin passes a question on that it cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fallthrough(pub Vec<Name>);

impl Fallthrough {
    /// Whether a name is passed to the next plugin.
    pub fn passes(&self, name: &Name) -> bool {
        self.0.iter().any(|zone| name.is_within(zone))
    }
}

/// The health endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The address of the endpoint.
    pub address: SocketAddr,
    /// How long the server still responds after it was stopped.
    pub lameduck: Duration,
}

/// Reloads of the Corefile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reload {
    /// The time between two checks.
    pub interval: Duration,
}

/// The search path of a pod, which is found by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autopath {
    /// The zones of the search path.
    pub zones: Vec<Name>,
}

/// A query log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The zones whose queries are logged.
    pub zones: Vec<Name>,
    /// The format of a line.
    pub format: String,
    /// The classes of responses that are logged.
    pub classes: Vec<LogClass>,
}

/// A class of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClass {
    /// All responses.
    All,
    /// Responses with records.
    Success,
    /// Responses for names or types that do not exist.
    Denial,
    /// Failures.
    Error,
}

/// The cache of forwarded answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The zones whose responses are cached.
    pub zones: Vec<Name>,
    /// The limits of successful responses.
    pub success: CacheLimits,
    /// The limits of denials.
    pub denial: CacheLimits,
    /// How long failures are cached.
    pub servfail: Duration,
    /// When entries are refreshed before they expire.
    pub prefetch: Option<Prefetch>,
    /// Whether expired entries are served.
    pub stale: Option<Stale>,
    /// Zones without a cache of successful responses, and without one of denials.
    pub success_except: Vec<Name>,
    /// Zones without a cache of denials.
    pub denial_except: Vec<Name>,
    /// Whether responses keep the TTL of the upstream.
    pub keeps_ttl: bool,
}

/// The limits of a part of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// The most entries.
    pub capacity: usize,
    /// The longest time that an entry is kept.
    pub max_ttl: Duration,
    /// The shortest time that an entry is kept.
    pub min_ttl: Duration,
}

/// When entries are refreshed before they expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// How many queries an entry needs.
    pub amount: u32,
    /// The longest time between these queries.
    pub gap: Duration,
    /// The share of the TTL that is left at a refresh.
    pub percentage: u8,
}

/// How expired entries are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// How long after their expiry.
    pub duration: Duration,
    /// Whether the upstream is tried first.
    pub verifies: bool,
}

/// A hosts table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Read if it exists.
    pub file: PathBuf,
    /// The zones of the table.
    pub zones: Vec<Name>,
    /// The lines in the Corefile.
    pub inline: Vec<(IpAddr, Vec<Name>)>,
    /// The TTL of its records.
    pub ttl: u32,
    /// Whether addresses resolve to names.
    pub with_reverse: bool,
    /// How often the file is read.
    pub reload: Duration,
    /// None: a name in the zones that is not found does not exist.
    pub fallthrough: Option<Fallthrough>,
}

/// A rewrite of the response code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcodeRewrite {
    /// The code to rewrite.
    pub from: Rcode,
    /// The new code.
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
