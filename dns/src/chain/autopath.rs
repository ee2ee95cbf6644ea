//! Completes the search path of a pod in one round trip: the first query of a search that fails is answered by the next
//! search domain that has the name. Only for a pod whose search path is known.

use std::net::IpAddr;
use std::sync::Arc;

use super::block::{Block, Resolution};
use super::{Query, Routes};
use crate::message::{Name, Question, Rcode, Record};
use crate::zone::Index;

/// The search path of the pod at an address; None if there is no such pod, or it has a path of its own.
pub(super) fn search_path(index: &Index, source: IpAddr, origin: &Name, host_search: &[Name]) -> Option<Vec<Name>> {
    let [pod] = index.pods_at(&source) else { return None };
    if !pod.is_cluster_first {
        return None;
    }
    let mut path = vec![Name::below([&*pod.namespace, "svc"], origin)?, Name::below(["svc"], origin)?, origin.clone()];
    path.extend(host_search.iter().cloned());
    // The name itself comes last.
    path.push(Name::root());
    Some(path)
}

/// Resolves the question, or else the same name below the other search domains.
pub(super) async fn resolve(
    block: &Arc<Block>,
    routes: &Arc<Routes>,
    query: &Query,
    question: &Question,
    search: &[Name],
) -> Resolution {
    let first = block.answer(routes, query, question, 0).await;
    let base = search.first().and_then(|domain| question.name.relative_to(domain)).filter(|base| !base.is_root());
    let Some(base) = base else { return first };
    if first.message.header.rcode != Rcode::NAME_ERROR {
        block.record_autopath();
        return first;
    }
    for domain in &search[1..] {
        let Some(name) = base.with_suffix(domain) else { continue };
        let next = Question { name, ..question.clone() };
        let Some((other, _)) = routes.find(&next.name) else { continue };
        let mut resolved = other.answer(routes, query, &next, 1).await;
        match resolved.message.header.rcode {
            Rcode::NAME_ERROR => {}
            Rcode::NO_ERROR => {
                add_alias(question, next.name, &mut resolved);
                block.record_autopath();
                return resolved;
            }
            // The client finds out by itself.
            _ => return first,
        }
    }
    first
}

/// The name in the question is an alias of the one that was found.
fn add_alias(question: &Question, found: Name, resolved: &mut Resolution) {
    let answers = &mut resolved.message.answers;
    let Some(ttl) = answers.iter().map(|record| record.ttl).min() else { return };
    answers.insert(0, Record::cname(question.name.clone(), ttl, found));
}
