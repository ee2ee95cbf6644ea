//! The plugin `forward`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::plugins::{Context, ReadResult};
use super::syntax::Line;
use super::values::{self, Value, ValueError};
use super::{DEFAULT_PORT, ServerBlock};
use crate::message::{Name, Rcode};

/// As in CoreDNS.
const MAX_UPSTREAMS: usize = 15;

/// Forwarding of the names below a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The zone that is forwarded.
    pub from: Name,
    /// The upstreams.
    pub to: Vec<Upstream>,
    /// Names below the zone that are not forwarded.
    pub except: Vec<Name>,
    /// The order in which upstreams are tried.
    pub policy: Policy,
    /// Whether queries are sent by TCP only.
    pub force_tcp: bool,
    /// The number of failed health checks after which an upstream is down.
    pub max_fails: u32,
    /// How upstreams that failed are probed.
    pub health_check: HealthCheck,
    /// How long a response is waited for.
    pub read_timeout: Duration,
    /// No limit if it is 0.
    pub max_concurrent: usize,
    /// Whether all upstreams being down is an error at once.
    pub fails_fast: bool,
    /// Response codes after which the next upstream is tried.
    pub failover: Vec<Rcode>,
}

/// A resolver, or a file that names resolvers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// The address of a resolver.
    Address(SocketAddr),
    /// A file such as /etc/resolv.conf, whose name servers are used.
    File(PathBuf),
}

/// The order in which upstreams are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// In random order.
    #[default]
    Random,
    /// In turn.
    RoundRobin,
    /// In the order of the Corefile.
    Sequential,
}

/// The queries by which an upstream is probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The time between two probes.
    pub interval: Duration,
    /// The name that is queried.
    pub domain: Name,
    /// Whether the probe requests recursion.
    pub recursion_desired: bool,
}

impl Forward {
    /// The defaults of CoreDNS.
    pub fn new(from: Name, to: Vec<Upstream>) -> Forward {
        let health_check =
            HealthCheck { interval: Duration::from_millis(500), domain: Name::root(), recursion_desired: true };
        Forward {
            from,
            to,
            except: Vec::new(),
            policy: Policy::Random,
            force_tcp: false,
            max_fails: 2,
            health_check,
            read_timeout: Duration::from_secs(2),
            max_concurrent: 0,
            fails_fast: false,
            failover: Vec::new(),
        }
    }

    /// Whether a name is forwarded here.
    pub fn covers(&self, name: &Name) -> bool {
        name.is_within(&self.from) && !self.except.iter().any(|zone| name.is_within(zone))
    }
}

pub(super) fn read(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let [from, to @ ..] = context.arguments() else { return Err(context.error("a zone and an upstream are expected")) };
    let from = context.value(values::zones(from))?.into_iter().next().unwrap_or_else(Name::root);
    let to: Value<Vec<Upstream>> = to.iter().map(|text| upstream(text)).collect();
    let to = context.value(to)?;
    if to.is_empty() || to.len() > MAX_UPSTREAMS {
        return Err(context.error("between 1 and 15 upstreams are expected"));
    }
    let mut forward = Forward::new(from, to);
    for line in &context.directive.lines {
        read_option(context, line, &mut forward)?;
    }
    server.forwards.push(forward);
    Ok(())
}

/// An address with or without a port, or a file.
fn upstream(text: &str) -> Value<Upstream> {
    if let Some((protocol, rest)) = text.split_once("://") {
        return match protocol {
            "dns" => upstream(rest),
            _ => Err(ValueError::Unsupported(format!("{protocol}://"))),
        };
    }
    if text.starts_with('/') {
        return Ok(Upstream::File(PathBuf::from(text)));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().map(|ip| SocketAddr::new(ip, DEFAULT_PORT)).or_else(|_| text.parse());
    address.map(Upstream::Address).map_err(|_| ValueError::refused(text, "is neither an address nor a file"))
}

fn read_option(context: &Context, line: &Line, forward: &mut Forward) -> ReadResult {
    match line.name.as_str() {
        "except" if line.arguments.is_empty() => return Err(context.option_error(line, "a zone is expected")),
        "except" => forward.except.extend(context.option(line, values::zones_or(&line.arguments, &[]))?),
        "policy" => {
            forward.policy = match context.single(line)? {
                "random" => Policy::Random,
                "round_robin" => Policy::RoundRobin,
                "sequential" => Policy::Sequential,
                other => return Err(context.option_error(line, format!("unknown policy {other:?}"))),
            }
        }
        "force_tcp" => {
            context.no_arguments(line)?;
            forward.force_tcp = true;
        }
        // Always done: an answer that is truncated is requested again by TCP.
        "prefer_udp" => context.no_arguments(line)?,
        "max_fails" => forward.max_fails = context.option(line, values::number(context.single(line)?))?,
        "max_concurrent" => forward.max_concurrent = context.option(line, values::number(context.single(line)?))?,
        "read_timeout" => {
            forward.read_timeout = context.option(line, values::duration(context.single(line)?))?;
            if forward.read_timeout.is_zero() {
                return Err(context.option_error(line, "it must be positive"));
            }
        }
        "health_check" => read_health_check(context, line, &mut forward.health_check)?,
        // Each query has a connection of its own, so that there is nothing to keep.
        "expire" => drop(context.option(line, values::duration(context.single(line)?))?),
        "max_idle_conns" => drop(context.option(line, values::number::<u32>(context.single(line)?))?),
        "failfast_all_unhealthy_upstreams" => {
            context.no_arguments(line)?;
            forward.fails_fast = true;
        }
        "failover" => {
            let rcode = |text: &String| match Rcode::parse(text) {
                Some(Rcode::NO_ERROR) | None => Err(ValueError::refused(text, "cannot be used")),
                Some(rcode) => Ok(rcode),
            };
            let rcodes: Value<Vec<Rcode>> = line.arguments.iter().map(rcode).collect();
            forward.failover = context.option(line, rcodes)?;
        }
        "tls" | "tls_servername" | "doh_method" => {
            return Err(context.option_error(line, "TLS and HTTPS upstreams are not supported"));
        }
        _ => return Err(context.unknown(line)),
    }
    Ok(())
}

/// `DURATION [no_rec] [domain FQDN]`.
fn read_health_check(context: &Context, line: &Line, check: &mut HealthCheck) -> ReadResult {
    let mut arguments = line.arguments.iter();
    let interval = arguments.next().ok_or_else(|| context.option_error(line, "a duration is expected"))?;
    check.interval = context.option(line, values::duration(interval))?;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "no_rec" => check.recursion_desired = false,
            "domain" => {
                let domain = arguments.next().ok_or_else(|| context.option_error(line, "a name is expected"))?;
                check.domain = context.option(line, values::name(domain))?;
            }
            other => return Err(context.option_error(line, format!("unknown option {other:?}"))),
        }
    }
    Ok(())
}
