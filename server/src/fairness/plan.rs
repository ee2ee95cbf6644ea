//! Flow schemas and priority levels, compiled whenever one of the objects changes.

use std::collections::HashMap;
use std::sync::Arc;

use api::Tree;
use http::HeaderValue;

use super::demand::nominal;
use super::level::{Bounds, Level};
use super::matching::{RequestDigest, Rule};
use super::metrics::{FlowMetrics, SchemaMetrics};
use super::queues::QueueConfig;

pub(crate) struct Plan {
    /// The first that matches counts: in the order of precedence, then of names.
    schemas: Vec<Schema>,
    pub levels: Vec<Priority>,
    pub total: u32,
}

pub(crate) struct Schema {
    pub name: String,
    pub uid: Option<HeaderValue>,
    precedence: i64,
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
    /// The index in `levels`.
    pub level: usize,
    pub metrics: SchemaMetrics,
}

/// The attribute that distinguishes the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distinguisher {
    None,
    User,
    Namespace,
}

pub(crate) struct Priority {
    pub name: String,
    pub uid: Option<HeaderValue>,
    /// None for an exempt level: requests never wait and are not counted.
    pub level: Option<Arc<Level>>,
}

impl Plan {
    pub(crate) fn empty() -> Plan {
        Plan { schemas: Vec::new(), levels: Vec::new(), total: 0 }
    }

    /// Compiles a plan; existing levels keep their queues.
    pub(crate) fn compile(&self, schemas: &[Tree], levels: &[Tree], total: u32, metrics: &FlowMetrics) -> Plan {
        let levels = with_mandatory(levels, mandatory_levels());
        let schemas = with_mandatory(schemas, mandatory_schemas());
        let shares = levels.iter().map(|level| limits(level).shares).sum();
        let known: HashMap<&str, &Arc<Level>> =
            self.levels.iter().filter_map(|level| Some((level.name.as_str(), level.level.as_ref()?))).collect();
        let levels: Vec<Priority> = levels.iter().map(|level| priority(level, total, shares, &known)).collect();
        let mut schemas: Vec<Schema> =
            schemas.iter().filter_map(|schema| Schema::compile(schema, &levels, metrics)).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Plan { schemas, levels, total }
    }

    pub(crate) fn at(&self, at: usize) -> (&Schema, &Priority) {
        let schema = &self.schemas[at];
        (schema, &self.levels[schema.level])
    }

    /// Requests of a level that got seats, or needed none.
    pub(crate) fn dispatched(&self, level: &str) -> u64 {
        let own = self.schemas.iter().filter(|schema| self.levels[schema.level].name == level);
        own.map(|schema| schema.metrics.dispatched.get()).sum()
    }

    /// The schema of a request. The mandatory catch-all matches every request; None if the plan does not have it.
    pub(crate) fn find(&self, digest: &RequestDigest<'_>) -> Option<usize> {
        self.schemas.iter().position(|schema| schema.rules.iter().any(|rule| rule.matches(digest)))
    }
}

/// The objects, with the mandatory ones even if the API has none.
fn with_mandatory(objects: &[Tree], mandatory: Vec<Tree>) -> Vec<Tree> {
    let has = |name: &str| objects.iter().any(|object| object.str("metadata.name") == name);
    let missing = mandatory.into_iter().filter(|object| !has(object.str("metadata.name")));
    objects.iter().cloned().chain(missing).collect()
}

fn mandatory_levels() -> Vec<Tree> {
    super::objects::named("PriorityLevelConfiguration", &["exempt", "catch-all"])
}

fn mandatory_schemas() -> Vec<Tree> {
    super::objects::named("FlowSchema", &["exempt", "catch-all"])
}

struct LevelLimits {
    shares: u32,
    lendable_percent: u32,
    borrowing_percent: Option<u32>,
    shape: QueueConfig,
}

fn limits(level: &Tree) -> LevelLimits {
    let exempt = level.str("spec.type") == "Exempt";
    let spec = level.at(if exempt { "spec.exempt" } else { "spec.limited" });
    let number = |path: &str| spec.int(path).and_then(|value| u32::try_from(value).ok());
    let queuing = spec.at("limitResponse.queuing");
    let size = |path: &str| queuing.int(path).and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let queues = spec.str("limitResponse.type") == "Queue";
    LevelLimits {
        shares: number("nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
        lendable_percent: number("lendablePercent").unwrap_or(0),
        borrowing_percent: number("borrowingLimitPercent"),
        shape: QueueConfig {
            queues: if queues { size("queues").max(1) } else { 0 },
            hand_size: size("handSize"),
            queue_length_limit: size("queueLengthLimit"),
        },
    }
}

fn bounds(limits: &LevelLimits, total: u32, all_shares: u32) -> Bounds {
    let nominal = nominal(total, limits.shares, all_shares);
    let part = |percent: u32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
    let most = limits.borrowing_percent.map_or(total, |percent| nominal.saturating_add(part(percent)).min(total));
    Bounds { nominal, least: nominal.saturating_sub(part(limits.lendable_percent)), most: most.max(nominal) }
}

fn priority(object: &Tree, total: u32, shares: u32, known: &HashMap<&str, &Arc<Level>>) -> Priority {
    let name = object.str("metadata.name").to_string();
    let limits = limits(object);
    let bounds = bounds(&limits, total, shares);
    let level = (object.str("spec.type") != "Exempt").then(|| match known.get(name.as_str()) {
        Some(level) => {
            level.configure(limits.shape, bounds);
            (*level).clone()
        }
        None => Arc::new(Level::new(limits.shape, bounds)),
    });
    Priority { name, uid: uid(object), level }
}

fn uid(object: &Tree) -> Option<HeaderValue> {
    HeaderValue::from_str(object.str("metadata.uid")).ok().filter(|uid| !uid.is_empty())
}

impl Schema {
    /// None if its level does not exist: such a schema matches nothing.
    fn compile(object: &Tree, levels: &[Priority], metrics: &FlowMetrics) -> Option<Schema> {
        let wanted = object.str("spec.priorityLevelConfiguration.name");
        let level = levels.iter().position(|level| level.name == wanted)?;
        let name = object.str("metadata.name").to_string();
        Some(Schema {
            uid: uid(object),
            precedence: object.int("spec.matchingPrecedence").unwrap_or(1000),
            distinguisher: match object.str("spec.distinguisherMethod.type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: object.list("spec.rules").iter().map(Rule::compile).collect(),
            level,
            metrics: metrics.schema(wanted, &name),
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;
    use crate::request::info::RequestInfo;

    fn level(name: &str, shares: i64, lendable: i64) -> Tree {
        tree! {
            "metadata" => tree! { "name" => name, "uid" => "u" },
            "spec" => tree! {
                "type" => "Limited",
                "limited" => tree! {
                    "nominalConcurrencyShares" => shares, "lendablePercent" => lendable,
                    "limitResponse" => tree! { "type" => "Reject" },
                },
            },
        }
    }

    fn schema(name: &str, level: &str, precedence: i64, user: &str) -> Tree {
        tree! {
            "metadata" => tree! { "name" => name },
            "spec" => tree! {
                "priorityLevelConfiguration" => tree! { "name" => level }, "matchingPrecedence" => precedence,
                "rules" => list![tree! {
                    "subjects" => list![tree! { "kind" => "User", "user" => tree! { "name" => user } }],
                    "nonResourceRules" => list![tree! { "verbs" => list!["*"], "nonResourceURLs" => list!["*"] }],
                }],
            },
        }
    }

    fn found(plan: &Plan, user: &str) -> String {
        let info = RequestInfo { verb: "get", path: "/x".to_string(), ..RequestInfo::default() };
        let groups = ["system:authenticated".to_string()];
        let digest = RequestDigest { info: &info, user, groups: &groups };
        plan.find(&digest)
            .map(|at| plan.at(at))
            .map(|(schema, level)| format!("{} {}", schema.name, level.name))
            .unwrap_or_default()
    }

    #[test]
    fn the_lowest_precedence_with_a_level_wins() {
        let metrics = FlowMetrics::new(&prometheus::Registry::new());
        let levels = [level("a", 10, 50), level("b", 10, 0)];
        let schemas =
            [schema("late", "a", 200, "ada"), schema("early", "b", 100, "ada"), schema("lost", "none", 1, "ada")];
        let plan = Plan::empty().compile(&schemas, &levels, 600, &metrics);
        assert_eq!(found(&plan, "ada"), "early b");
        assert_eq!(found(&plan, "bob"), "catch-all catch-all");
        let level = plan.levels[0].level.as_ref().expect("a limited level");
        // 10 shares of 10 + 10 + 5.
        assert_eq!(level.bounds(), Bounds { nominal: 240, least: 120, most: 600 });
        let again = plan.compile(&schemas, &levels[..1], 600, &metrics);
        assert!(Arc::ptr_eq(level, again.levels[0].level.as_ref().expect("a limited level")));
        assert_eq!(found(&again, "ada"), "late a");
    }
}
