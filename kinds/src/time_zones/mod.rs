//! The time zone database of the system, for schedules and for expressions.

mod rule;
mod zone;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use stdx::sync::RwLock;

pub use zone::Zone;

/// The time zone database of the system, and the local time zone.
const DIRECTORY: &str = "/usr/share/zoneinfo";
const LOCAL: &str = "/etc/localtime";

/// Names of the time zone database, sorted.
static NAMES: &str = include_str!("names.txt");

static DATABASE: LazyLock<Arc<Database>> = LazyLock::new(Arc::default);

/// The database of the system, which all users share.
pub fn database() -> Arc<Database> {
    DATABASE.clone()
}

/// An exact name of the time zone database.
pub fn is_zone(name: &str) -> bool {
    NAMES.lines().any(|zone| zone == name)
}

/// The time zones that have been used, by name. Only existing names are kept, so that they are at most a few hundred.
#[derive(Default)]
pub struct Database(RwLock<BTreeMap<String, Option<Arc<Zone>>>>);

impl Database {
    /// The zone of a name; the empty name and `Local` are the local zone.
    pub fn zone(&self, name: &str) -> Option<Arc<Zone>> {
        if let Some(zone) = self.0.read().get(name) {
            return zone.clone();
        }
        let is_local = matches!(name, "" | "Local");
        if !is_local && !is_zone(name) {
            return None;
        }
        let zone = if is_local { Some(read_local()) } else { read_zone(name) }.map(Arc::new);
        self.0.write().insert(name.to_string(), zone.clone());
        zone
    }
}

impl cel::TimeZones for Database {
    fn offset(&self, zone: &str, seconds: i64) -> Option<i64> {
        self.zone(zone).map(|zone| zone.offset(seconds))
    }
}

fn read_local() -> Zone {
    std::fs::read(LOCAL).ok().and_then(|bytes| Zone::parse(&bytes)).unwrap_or_else(Zone::utc)
}

/// Only names of the time zone database are opened, so that no other file is read.
fn read_zone(name: &str) -> Option<Zone> {
    match name {
        "UTC" | "Etc/UTC" => Some(Zone::utc()),
        name => Zone::parse(&std::fs::read(format!("{DIRECTORY}/{name}")).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_time_zones() {
        assert!(is_zone("Europe/Berlin") && is_zone("UTC") && is_zone("Etc/GMT+1"));
        assert!(!is_zone("europe/berlin") && !is_zone("Mars/X") && !is_zone(""));
    }

    #[test]
    fn reads_zones_of_known_names_only() {
        let database = Database::default();
        assert_eq!(database.zone("UTC").map(|zone| zone.offset(0)), Some(0));
        assert!(database.zone("").is_some() && database.zone("Local").is_some());
        for name in ["../../../etc/localtime", "Mars/X", "europe/berlin", "/etc/localtime"] {
            assert!(database.zone(name).is_none(), "{name}");
        }
        assert_eq!(database.0.read().len(), 3, "names that do not exist are not kept");
    }

    #[test]
    fn expressions_use_the_database() {
        let env = cel::Env::new(cel::Expressions::New).time_zones(database());
        let evaluate = |zone: &str| {
            let text = format!("timestamp('2040-07-01T12:00:00Z').getHours('{zone}') == 12");
            let program = env.compile(&text).expect("an expression");
            let nothing: [(&str, cel::Value<'_>); 0] = [];
            let evaluation = program.evaluate(&nothing, cel::Budget::default());
            evaluation.result.map(|value| value.as_bool()).map_err(|error| error.to_string())
        };
        assert_eq!(evaluate("Etc/UTC"), Ok(Some(true)));
        assert!(evaluate("Mars/X").is_err_and(|error| error.contains("unknown time zone Mars/X")));
    }
}
