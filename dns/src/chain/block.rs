//! A server block: answers questions by its plugins, in their order.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Random;

use super::recursor::Recursor;
use super::{Environment, Query, Routes, autopath, log, rewrite};
use crate::corefile::{Kubernetes, ServerBlock};
use crate::directory::Directory;
use crate::forward::shuffle;
use crate::hosts::{HostsAnswer, HostsTable};
use crate::message::{Message, Name, Question, Rcode, Record, Type};
use crate::metrics::{BlockMetrics, Exchange, Source};
use crate::zone::{self, Answer};

/// Aliases and search domains lead to other questions, so many times.
const MAX_DEPTH: u8 = 10;

/// A server block with its state.
pub struct Block {
    /// The configuration of the block.
    pub config: ServerBlock,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) host_search: Vec<Name>,
    recursor: Arc<Recursor>,
    hosts: Option<HostsTable>,
    servers: Vec<std::net::IpAddr>,
    /// A random name of this server: a query for it was forwarded in a loop.
    loop_name: Option<Name>,
    is_loop: AtomicBool,
    is_probed: AtomicBool,
    metrics: Option<BlockMetrics>,
    random: Random,
}

/// A response, and the plugin that built it.
pub struct Resolution {
    /// The response.
    pub message: Message,
    /// The plugin that built it.
    pub source: Source,
}

pub(super) type ResolutionFuture<'a> = Pin<Box<dyn Future<Output = Resolution> + Send + 'a>>;

impl Block {
    /// The block of a configuration; `old` is its block before a reload.
    pub fn new(config: ServerBlock, environment: &Environment, old: Option<&Block>) -> Block {
        let server = format!("dns://:{}", config.port);
        let zone = config.zones.first().map(Name::to_string).unwrap_or_default();
        let metrics = &environment.metrics;
        let needs_pods = config.autopath.is_some();
        let directory = config.kubernetes.as_ref().and_then(|of| (environment.directory)(of, needs_pods));
        let hosts = config.hosts.as_ref().map(|hosts| HostsTable::new(&(environment.read)(&hosts.file), hosts));
        if let (Some(table), Some(hosts)) = (&hosts, &config.hosts) {
            let file = hosts.file.display().to_string();
            metrics.hosts_entries.with_label_values(&[&file]).set(i64::try_from(table.count()).unwrap_or(i64::MAX));
        }
        for name in enabled(&config) {
            metrics.plugin_enabled.with_label_values(&[&*server, &zone, "", name]).set(1);
        }
        Block {
            recursor: Arc::new(Recursor::new(&config, environment, &server, old.map(|old| &*old.recursor))),
            directory,
            host_search: environment.host_search.clone(),
            hosts,
            servers: environment.own.iter().map(|address| address.ip()).filter(|ip| !ip.is_unspecified()).collect(),
            loop_name: config.detects_loops.then(|| loop_name(&config)).flatten(),
            is_loop: AtomicBool::new(false),
            is_probed: AtomicBool::new(false),
            metrics: config.prometheus.is_some().then(|| BlockMetrics::new(metrics.clone(), &server, &zone)),
            random: Random::seeded(Random::fresh_seed()),
            config,
        }
    }

    /// Whether all names of the cluster are known.
    pub fn is_synced(&self) -> bool {
        self.directory.as_ref().is_none_or(|directory| directory.is_synced())
    }

    /// Whether a query came back from an upstream.
    pub fn has_loop(&self) -> bool {
        self.is_loop.load(Ordering::Relaxed)
    }

    /// Sends a query to the upstreams that comes back if they forward to this server. It is sent beside the first query
    /// that is forwarded: a cluster that forwards nothing sends nothing.
    fn probe_loop(self: &Arc<Block>) {
        let Some(name) = &self.loop_name else { return };
        if self.is_probed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (recursor, question) = (self.recursor.clone(), Question::new(name.clone(), Type::HINFO));
        tokio::spawn(async move { recursor.probe(&question).await });
    }

    pub(super) fn record_autopath(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.record_autopath();
        }
    }

    /// Counts and logs a query and its response.
    pub fn record(&self, query: &Query, resolved: &Resolution, size: usize, seconds: f64) {
        let Some(question) = &query.message.question else { return };
        if let Some(metrics) = &self.metrics {
            metrics.record(&Exchange {
                transport: query.transport,
                is_ipv6: query.source.is_ipv6(),
                qtype: question.qtype,
                dnssec_ok: query.message.edns.is_some_and(|edns| edns.dnssec_ok),
                request_size: query.size,
                response_size: size,
                rcode: resolved.message.header.rcode,
                source: resolved.source,
                seconds,
            });
        }
        for config in &self.config.log {
            log::log(config, query, question, &resolved.message, size, seconds);
        }
    }

    /// The response to a query.
    pub async fn resolve(self: &Arc<Block>, routes: &Arc<Routes>, query: &Query, question: &Question) -> Resolution {
        let rewritten = rewrite::rewrite_question(&self.config.rewrites, question);
        let effective = rewritten.as_ref().map_or(question, |rewritten| &rewritten.question);
        let mut resolved = match self.autopath_of(query, effective) {
            Some(search) => autopath::resolve(self, routes, query, effective, &search).await,
            None => self.answer(routes, query, effective, 0).await,
        };
        let message = &mut resolved.message;
        if let Some(rewritten) = &rewritten {
            rewrite::rewrite_response(rewritten, question, message);
        }
        message.question = Some(question.clone());
        message.header.recursion_available |= !self.config.forwards.is_empty();
        if self.config.shuffles {
            shuffle_addresses(&mut message.answers, &self.random);
        }
        resolved
    }

    fn autopath_of(&self, query: &Query, question: &Question) -> Option<Vec<Name>> {
        let (config, directory) = (self.config.autopath.as_ref()?, self.directory.as_ref()?);
        if !config.zones.iter().any(|zone| question.name.is_within(zone)) {
            return None;
        }
        let origin = self.config.kubernetes.as_ref()?.zone.primary()?;
        autopath::search_path(&directory.index(), query.source.ip(), origin, &self.host_search)
    }

    /// The response of the first plugin that has one.
    pub(super) fn answer<'a>(
        self: &'a Arc<Block>,
        routes: &'a Arc<Routes>,
        query: &'a Query,
        question: &'a Question,
        depth: u8,
    ) -> ResolutionFuture<'a> {
        Box::pin(async move {
            if let Some(resolved) = self.answer_from_hosts(query, question) {
                return resolved;
            }
            if let Some(kubernetes) = &self.config.kubernetes
                && let Some(resolved) = self.answer_from_cluster(routes, query, question, kubernetes, depth).await
            {
                return resolved;
            }
            if self.is_loop_probe(question) {
                return failed(query, Rcode::SERVER_FAILURE, Source::Loop);
            }
            self.probe_loop();
            match self.has_loop() {
                // Otherwise, each query in the loop would time out.
                true => failed(query, Rcode::SERVER_FAILURE, Source::Loop),
                false => self.recursor.resolve(question, &query.message).await,
            }
        })
    }

    fn is_loop_probe(&self, question: &Question) -> bool {
        let is_probe =
            question.qtype == Type::HINFO && self.loop_name.as_ref().is_some_and(|name| name.matches(&question.name));
        if is_probe && !self.is_loop.swap(true, Ordering::Relaxed) {
            let zone = self.config.zones.first().map(Name::to_string).unwrap_or_default();
            tracing::error!(zone, "forwarding loop detected: an upstream forwards to this server, not forwarding");
        }
        is_probe
    }

    fn answer_from_hosts(&self, query: &Query, question: &Question) -> Option<Resolution> {
        let (table, config) = (self.hosts.as_ref()?, self.config.hosts.as_ref()?);
        let (rcode, answers) = match table.answer(config, question) {
            HostsAnswer::Outside => return None,
            HostsAnswer::NotFound if config.fallthrough.as_ref().is_some_and(|of| of.passes(&question.name)) => {
                return None;
            }
            // As CoreDNS: there is no SOA record for a name error.
            HostsAnswer::NotFound => (Rcode::SERVER_FAILURE, Vec::new()),
            HostsAnswer::NoData => (Rcode::NO_ERROR, Vec::new()),
            HostsAnswer::Records(records) => (Rcode::NO_ERROR, records),
        };
        let mut message = query.message.reply(rcode);
        message.header.authoritative = rcode == Rcode::NO_ERROR;
        message.answers = answers;
        Some(Resolution { message, source: Source::Hosts })
    }

    /// None if the name is outside of the zones, or is passed on.
    async fn answer_from_cluster(
        self: &Arc<Block>,
        routes: &Arc<Routes>,
        query: &Query,
        question: &Question,
        kubernetes: &Kubernetes,
        depth: u8,
    ) -> Option<Resolution> {
        let origin = kubernetes.zone.origin_of(&question.name)?;
        let Some(directory) = &self.directory else {
            return Some(failed(query, Rcode::SERVER_FAILURE, Source::Kubernetes));
        };
        let index = directory.index();
        let answer = zone::answer(&kubernetes.zone, origin, &index, &self.servers, question);
        let mut message = query.message.reply(Rcode::NO_ERROR);
        message.header.authoritative = true;
        match answer {
            Answer::Records { answers, additionals } => (message.answers, message.additionals) = (answers, additionals),
            Answer::NoData => message.authorities.push(kubernetes.zone.soa(origin, &index)),
            Answer::NameError => {
                if kubernetes.fallthrough.as_ref().is_some_and(|of| of.passes(&question.name)) {
                    return None;
                }
                // Before the first list, a missing name has no meaning.
                let is_synced = directory.is_synced();
                message.header.rcode = if is_synced { Rcode::NAME_ERROR } else { Rcode::SERVER_FAILURE };
                message.authorities.push(kubernetes.zone.soa(origin, &index));
            }
            Answer::Refused => message.header.rcode = Rcode::REFUSED,
            Answer::Alias(record, target) => {
                drop(index);
                self.resolve_alias(routes, query, question, (record, target), &mut message, depth).await;
            }
        }
        Some(Resolution { message, source: Source::Kubernetes })
    }

    /// Resolves the target of an alias like a question of its own, now and for each query.
    async fn resolve_alias(
        self: &Arc<Block>,
        routes: &Arc<Routes>,
        query: &Query,
        question: &Question,
        (record, target): (Record, Name),
        message: &mut Message,
        depth: u8,
    ) {
        message.answers.push(record);
        if depth >= MAX_DEPTH {
            message.header.rcode = Rcode::SERVER_FAILURE;
            return;
        }
        let next = Question::new(target, question.qtype);
        let Some((block, _)) = routes.find(&next.name) else { return };
        let resolved = block.answer(routes, query, &next, depth + 1).await.message;
        message.header.rcode = resolved.header.rcode;
        message.header.truncated |= resolved.header.truncated;
        message.answers.extend(resolved.answers);
        message.authorities.extend(resolved.authorities);
    }
}

/// An empty response.
pub(super) fn failed(query: &Query, rcode: Rcode, source: Source) -> Resolution {
    Resolution { message: query.message.reply(rcode), source }
}

/// The plugins of a block that are counted.
fn enabled(config: &ServerBlock) -> Vec<&'static str> {
    let plugins = [
        ("errors", config.errors),
        ("log", !config.log.is_empty()),
        ("prometheus", config.prometheus.is_some()),
        ("loadbalance", config.shuffles),
        ("rewrite", !config.rewrites.is_empty()),
        ("autopath", config.autopath.is_some()),
        ("cache", config.cache.is_some()),
        ("hosts", config.hosts.is_some()),
        ("kubernetes", config.kubernetes.is_some()),
        ("loop", config.detects_loops),
        ("forward", !config.forwards.is_empty()),
    ];
    plugins.into_iter().filter(|(_, is_enabled)| *is_enabled).map(|(name, _)| name).collect()
}

/// Two random labels in the zone of the block.
fn loop_name(config: &ServerBlock) -> Option<Name> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    let (first, second) = bytes.split_at(8);
    let text = |half: &[u8]| half.iter().map(|byte| byte.to_string()).collect::<String>();
    Name::below([text(first).as_str(), text(second).as_str()], config.zones.first()?)
}

/// Shuffles the A and AAAA records, each kind in its positions.
fn shuffle_addresses(answers: &mut [Record], random: &Random) {
    let is_address = |record: &Record| matches!(record.rtype, Type::A | Type::AAAA);
    let Some(start) = answers.iter().position(is_address) else { return };
    let end = answers[start..].iter().position(|record| !is_address(record)).map_or(answers.len(), |at| start + at);
    shuffle(&mut answers[start..end], random);
}
