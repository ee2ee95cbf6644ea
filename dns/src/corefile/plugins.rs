//! The plugins: one list, and the readers of the small ones.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::syntax::{Directive, Line};
use super::values::{self, Value, ValueError};
use super::{
    Autopath, Cache, CacheLimits, CorefileError, Fallthrough, Health, Hosts, Log, LogClass, Prefetch, Problem, Reload,
    ServerBlock, Stale, kubernetes, rewrite, upstreams,
};
use crate::message::Name;

/// A plugin, by its name in the Corefile.
pub(super) struct Plugin {
    pub name: &'static str,
    pub is_repeatable: bool,
    pub read: fn(&Context, &mut ServerBlock) -> ReadResult,
}

pub(super) type ReadResult = Result<(), CorefileError>;

const fn once(name: &'static str, read: fn(&Context, &mut ServerBlock) -> ReadResult) -> Plugin {
    Plugin { name, is_repeatable: false, read }
}

const fn repeatable(name: &'static str, read: fn(&Context, &mut ServerBlock) -> ReadResult) -> Plugin {
    Plugin { name, is_repeatable: true, read }
}

/// In the order in which a question passes them.
pub(super) static LIST: &[Plugin] = &[
    once("reload", read_reload),
    repeatable("bind", read_bind),
    once("ready", read_ready),
    once("health", read_health),
    once("prometheus", read_prometheus),
    once("errors", read_errors),
    repeatable("log", read_log),
    once("loadbalance", read_loadbalance),
    repeatable("rewrite", rewrite::read),
    once("autopath", read_autopath),
    once("cache", read_cache),
    once("hosts", read_hosts),
    once("kubernetes", kubernetes::read),
    once("loop", read_loop),
    repeatable("forward", upstreams::read),
];

/// A directive that is read.
pub(super) struct Context<'a> {
    pub plugin: &'static str,
    pub directive: &'a Directive,
}

impl<'a> Context<'a> {
    pub(super) fn arguments(&self) -> &'a [String] {
        &self.directive.head.arguments
    }

    pub(super) fn error(&self, why: impl Into<String>) -> CorefileError {
        let problem = Problem::Plugin { plugin: self.plugin, why: why.into() };
        CorefileError { line: self.directive.head.line, problem }
    }

    /// A value of the plugin's arguments.
    pub(super) fn value<T>(&self, value: Value<T>) -> Result<T, CorefileError> {
        value.map_err(|why| self.error(why.to_string()))
    }

    pub(super) fn option_error(&self, line: &Line, why: impl Into<String>) -> CorefileError {
        let problem = Problem::Option { plugin: self.plugin, option: line.name.clone(), why: why.into() };
        CorefileError { line: line.line, problem }
    }

    /// A value of an option.
    pub(super) fn option<T>(&self, line: &Line, value: Value<T>) -> Result<T, CorefileError> {
        value.map_err(|why| self.option_error(line, why.to_string()))
    }

    pub(super) fn unknown(&self, line: &Line) -> CorefileError {
        let problem = Problem::UnknownOption { plugin: self.plugin, option: line.name.clone() };
        CorefileError { line: line.line, problem }
    }

    /// The single argument of an option.
    pub(super) fn single<'b>(&self, line: &'b Line) -> Result<&'b str, CorefileError> {
        match line.arguments.as_slice() {
            [one] => Ok(one),
            _ => Err(self.option_error(line, "one argument is expected")),
        }
    }

    pub(super) fn no_arguments(&self, line: &Line) -> ReadResult {
        match line.arguments.is_empty() {
            true => Ok(()),
            false => Err(self.option_error(line, "no argument is expected")),
        }
    }

    fn no_lines(&self) -> ReadResult {
        self.directive.lines.first().map_or(Ok(()), |line| Err(self.unknown(line)))
    }

    fn no_options(&self) -> ReadResult {
        match self.arguments().is_empty() {
            true => self.no_lines(),
            false => Err(self.error("no argument is expected")),
        }
    }

    /// An optional address.
    fn listen(&self, default: &str) -> Result<SocketAddr, CorefileError> {
        match self.arguments() {
            [] => self.value(values::listen(default, 0)),
            [address] => self.value(values::listen(address, 0)),
            _ => Err(self.error("one address is expected")),
        }
    }

    /// `fallthrough [ZONES...]`.
    pub(super) fn fallthrough(&self, line: &Line) -> Result<Fallthrough, CorefileError> {
        self.option(line, values::zones_or(&line.arguments, &[Name::root()])).map(Fallthrough)
    }
}

fn read_reload(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    let [interval, jitter] = [0, 1].map(|at| context.arguments().get(at));
    let interval = interval.map_or(Ok(Duration::from_secs(30)), |text| values::duration(text));
    let interval = context.value(interval)?;
    // A change is noticed at once, so that nothing has to be spread; the value is only checked.
    if let Some(jitter) = jitter {
        context.value(values::duration(jitter))?;
    }
    if context.arguments().len() > 2 || interval < Duration::from_secs(2) {
        return Err(context.error("an interval of at least 2s and a jitter are expected"));
    }
    server.reload = Some(Reload { interval });
    Ok(())
}

fn read_bind(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    if context.arguments().is_empty() {
        return Err(context.error("an address is expected"));
    }
    for text in context.arguments() {
        let address =
            text.parse().map_err(|_| ValueError::refused(text, "is not an address; interfaces are not supported"));
        server.bind.push(context.value(address)?);
    }
    Ok(())
}

fn read_ready(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    server.ready = Some(context.listen(":8181")?);
    Ok(())
}

fn read_health(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let mut health = Health { address: context.listen(":8080")?, lameduck: Duration::ZERO };
    for line in &context.directive.lines {
        match line.name.as_str() {
            "lameduck" => health.lameduck = context.option(line, values::duration(context.single(line)?))?,
            _ => return Err(context.unknown(line)),
        }
    }
    server.health = Some(health);
    Ok(())
}

fn read_prometheus(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    server.prometheus = Some(context.listen("localhost:9153")?);
    Ok(())
}

fn read_errors(context: &Context, server: &mut ServerBlock) -> ReadResult {
    server.errors = true;
    context.no_options()
}

fn read_loadbalance(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    server.shuffles = true;
    match context.arguments() {
        [] => Ok(()),
        [policy] if policy == "round_robin" => Ok(()),
        _ => Err(context.error("only round_robin is supported")),
    }
}

fn read_loop(context: &Context, server: &mut ServerBlock) -> ReadResult {
    server.detects_loops = true;
    context.no_options()
}

fn read_autopath(context: &Context, server: &mut ServerBlock) -> ReadResult {
    context.no_lines()?;
    let (zones, path) = match context.arguments().split_last() {
        Some((path, zones)) => (zones, path.as_str()),
        None => (&[][..], ""),
    };
    if path != "@kubernetes" {
        return Err(context.error("only @kubernetes is supported"));
    }
    server.autopath = Some(Autopath { zones: context.value(values::zones_or(zones, &server.zones))? });
    Ok(())
}

const COMMON_FORMAT: &str = "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" \
                             {rcode} {>rflags} {rsize} {duration}";

fn read_log(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let arguments = context.arguments();
    let (zones, format) = match arguments.split_last() {
        Some((last, zones)) if last.contains('{') => (zones, last.as_str()),
        _ => (arguments, "{common}"),
    };
    let format = format.replace("{combined}", &format!("{COMMON_FORMAT} {{>opcode}}"));
    let mut log = Log {
        zones: context.value(values::zones_or(zones, &server.zones))?,
        format: format.replace("{common}", COMMON_FORMAT),
        classes: Vec::new(),
    };
    for line in &context.directive.lines {
        match line.name.as_str() {
            "class" => log.classes.extend(context.option(line, log_classes(&line.arguments))?),
            _ => return Err(context.unknown(line)),
        }
    }
    if log.classes.is_empty() {
        log.classes.push(LogClass::All);
    }
    server.log.push(log);
    Ok(())
}

fn log_classes(arguments: &[String]) -> Value<Vec<LogClass>> {
    let class = |text: &String| match text.as_str() {
        "all" => Ok(LogClass::All),
        "success" => Ok(LogClass::Success),
        "denial" => Ok(LogClass::Denial),
        "error" => Ok(LogClass::Error),
        _ => Err(ValueError::unknown("class", text)),
    };
    if arguments.is_empty() { Err("a class is expected".into()) } else { arguments.iter().map(class).collect() }
}

const CACHE_CAPACITY: usize = 9984;
const MIN_TTL: Duration = Duration::from_secs(5);

fn read_cache(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let first = context.arguments().first().and_then(|text| values::number::<u32>(text).ok());
    let zones = &context.arguments()[usize::from(first.is_some())..];
    let ttl = |default: u64| Duration::from_secs(first.map_or(default, u64::from));
    let limits = |default| CacheLimits { capacity: CACHE_CAPACITY, max_ttl: ttl(default), min_ttl: MIN_TTL };
    if first == Some(0) {
        return Err(context.error("the TTL cannot be 0"));
    }
    let mut cache = Cache {
        zones: context.value(values::zones_or(zones, &server.zones))?,
        success: limits(3600),
        denial: limits(1800),
        servfail: Duration::from_secs(5),
        prefetch: None,
        stale: None,
        success_except: Vec::new(),
        denial_except: Vec::new(),
        keeps_ttl: false,
    };
    for line in &context.directive.lines {
        read_cache_option(context, line, &mut cache)?;
    }
    server.cache = Some(cache);
    Ok(())
}

fn read_cache_option(context: &Context, line: &Line, cache: &mut Cache) -> ReadResult {
    match line.name.as_str() {
        "success" => cache.success = context.option(line, cache_limits(&line.arguments, cache.success))?,
        "denial" => cache.denial = context.option(line, cache_limits(&line.arguments, cache.denial))?,
        "servfail" => {
            cache.servfail = context.option(line, values::duration(context.single(line)?))?;
            if cache.servfail > Duration::from_secs(300) {
                return Err(context.option_error(line, "at most 5m"));
            }
        }
        "prefetch" => cache.prefetch = Some(context.option(line, prefetch(&line.arguments))?),
        "serve_stale" => cache.stale = Some(context.option(line, stale(&line.arguments))?),
        "keepttl" => {
            context.no_arguments(line)?;
            cache.keeps_ttl = true;
        }
        "disable" => {
            let (which, zones) = line.arguments.split_first().map_or(("", &[][..]), |(w, zones)| (w.as_str(), zones));
            let zones = context.option(line, values::zones_or(zones, &cache.zones))?;
            match which {
                "success" => cache.success_except = zones,
                "denial" => cache.denial_except = zones,
                _ => return Err(context.option_error(line, "success or denial is expected")),
            }
        }
        _ => return Err(context.unknown(line)),
    }
    Ok(())
}

/// `CAPACITY [TTL] [MINTTL]`.
fn cache_limits(arguments: &[String], mut limits: CacheLimits) -> Value<CacheLimits> {
    let seconds = |text: &String| values::number::<u32>(text).map(|seconds| Duration::from_secs(seconds.into()));
    let (capacity, rest) = arguments.split_first().ok_or("a capacity is expected")?;
    // As large as in CoreDNS: never below 1024 entries.
    limits.capacity = values::number::<usize>(capacity)?.clamp(1024, 1 << 20);
    if let Some(ttl) = rest.first() {
        limits.max_ttl = seconds(ttl)?;
    }
    if let Some(ttl) = rest.get(1) {
        limits.min_ttl = seconds(ttl)?;
    }
    if rest.len() > 2 { Err("at most three arguments are expected".into()) } else { Ok(limits) }
}

/// `AMOUNT [[DURATION] [PERCENTAGE%]]`.
fn prefetch(arguments: &[String]) -> Value<Prefetch> {
    let (amount, rest) = arguments.split_first().ok_or("an amount is expected")?;
    let mut prefetch = Prefetch { amount: values::number(amount)?, gap: Duration::from_secs(60), percentage: 10 };
    if let Some(gap) = rest.first() {
        prefetch.gap = values::duration(gap)?;
    }
    if let Some(text) = rest.get(1) {
        let number = text.strip_suffix('%').ok_or("the percentage needs a percent sign")?;
        prefetch.percentage = values::number(number)?;
        if !(10..=90).contains(&prefetch.percentage) {
            return Err("the percentage must be between 10% and 90%".into());
        }
    }
    if rest.len() > 2 { Err("at most three arguments are expected".into()) } else { Ok(prefetch) }
}

/// `[DURATION] [immediate | verify]`.
fn stale(arguments: &[String]) -> Value<Stale> {
    let mut stale = Stale { duration: Duration::from_secs(3600), verifies: false };
    if let Some(duration) = arguments.first() {
        stale.duration = values::duration(duration)?;
    }
    stale.verifies = match arguments.get(1).map(String::as_str) {
        None | Some("immediate") => false,
        Some("verify") => true,
        Some(mode) => return Err(ValueError::unknown("mode", mode)),
    };
    if arguments.len() > 2 { Err("a duration and a mode are expected".into()) } else { Ok(stale) }
}

fn read_hosts(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let (file, zones) = context.arguments().split_first().map_or(("/etc/hosts", &[][..]), |(f, z)| (f.as_str(), z));
    let mut hosts = Hosts {
        file: PathBuf::from(file),
        zones: context.value(values::zones_or(zones, &server.zones))?,
        inline: Vec::new(),
        ttl: 3600,
        with_reverse: true,
        reload: Duration::from_secs(5),
        fallthrough: None,
    };
    for line in &context.directive.lines {
        match line.name.as_str() {
            "ttl" => {
                let ttl = context.option(line, values::number(context.single(line)?))?;
                hosts.ttl = if (1..=65535).contains(&ttl) { ttl } else { return Err(out_of_range(context, line)) };
            }
            "no_reverse" => {
                context.no_arguments(line)?;
                hosts.with_reverse = false;
            }
            "reload" => hosts.reload = context.option(line, values::duration(context.single(line)?))?,
            "fallthrough" => hosts.fallthrough = Some(context.fallthrough(line)?),
            _ => hosts.inline.push(host(context, line)?),
        }
    }
    server.hosts = Some(hosts);
    Ok(())
}

fn out_of_range(context: &Context, line: &Line) -> CorefileError {
    context.option_error(line, "between 1 and 65535")
}

/// A line of a hosts file in the Corefile.
fn host(context: &Context, line: &Line) -> Result<(std::net::IpAddr, Vec<Name>), CorefileError> {
    let Ok(address) = line.name.parse() else { return Err(context.unknown(line)) };
    let names: Value<Vec<Name>> = line.arguments.iter().map(|text| values::name(text)).collect();
    Ok((address, context.option(line, names)?))
}
