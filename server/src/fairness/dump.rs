//! Debug output for operators: levels, queues and waiting requests as tables, with upstream's columns.

use super::Fairness;
use crate::request::info::Query;

use super::plan::{Plan, Priority};

const PREFIX: &str = "/debug/api_priority_and_fairness/";
const NONE: &str = "<none>";

const LEVELS: &[&str] = &[
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];

const QUEUES: &[&str] = &[
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];

/// The spelling of the fifth is upstream's.
const REQUESTS: &[&str] = &[
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
];

const DETAILS: &[&str] = &["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];

/// A waiting request, for debugging endpoints.
#[derive(Debug, Default)]
pub(crate) struct WaitingRequest {
    pub schema: String,
    pub flow: String,
    pub arrived: String,
    /// The values in the order of the columns.
    pub details: [String; 8],
}

/// One queue at one moment.
pub(crate) struct Queue<'a> {
    /// The waiting requests, each with its seats.
    pub waiting: Vec<(&'a WaitingRequest, u32)>,
    pub running: u32,
    pub running_seats: u32,
    /// The virtual start in seat-seconds.
    pub next_start: f64,
    pub work: f64,
}

/// The page at a path; None for any other path.
pub(crate) fn page(fairness: &Fairness, path: &str, query: &Query) -> Option<String> {
    let what = path.strip_prefix(PREFIX)?;
    let plan = fairness.plan.load();
    let rows = match what {
        "dump_priority_levels" => levels(&plan),
        "dump_queues" => queues(&plan),
        "dump_requests" => requests(&plan, !query.get("includeRequestDetails").is_empty()),
        _ => return None,
    };
    Some(table(&rows))
}

fn header(columns: &[&str]) -> Vec<String> {
    columns.iter().map(ToString::to_string).collect()
}

fn sorted(plan: &Plan) -> Vec<&Priority> {
    let mut levels: Vec<&Priority> = plan.levels.iter().collect();
    levels.sort_by(|a, b| a.name.cmp(&b.name));
    levels
}

fn levels(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = vec![header(LEVELS)];
    for priority in sorted(plan) {
        let dispatched = plan.dispatched(&priority.name).to_string();
        // Requests of an exempt level are counted on arrival, and nowhere after that.
        let unknown = || NONE.to_string();
        let Some(level) = &priority.level else {
            let name = priority.name.clone();
            let zero = || "0".to_string();
            let row =
                [name, unknown(), unknown(), "false".into(), unknown(), unknown(), dispatched, zero(), zero(), zero()];
            rows.push(row.to_vec());
            continue;
        };
        let (load, tally) = (level.load(), level.tally());
        let active = level.with_queues(|queues| queues.iter().filter(|queue| !queue.waiting.is_empty()).count());
        let idle = load.running == 0 && load.waiting == 0;
        let mut row = vec![priority.name.clone(), active.to_string(), idle.to_string(), "false".to_string()];
        row.extend([load.waiting, load.running].map(|count| count.to_string()));
        row.push(dispatched);
        row.extend([tally.rejected, tally.timed_out, tally.cancelled].map(|count| count.to_string()));
        rows.push(row);
    }
    rows
}

fn queues(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = vec![header(QUEUES)];
    for priority in sorted(plan) {
        let Some(level) = &priority.level else {
            let rest = std::iter::repeat_n(NONE.to_string(), QUEUES.len() - 1);
            rows.push(std::iter::once(priority.name.clone()).chain(rest).collect());
            continue;
        };
        level.with_queues(|queues| {
            for (index, queue) in queues.iter().enumerate() {
                let seats: u32 = queue.waiting.iter().map(|(_, seats)| seats).sum();
                let mut row = vec![priority.name.clone(), index.to_string(), queue.waiting.len().to_string()];
                row.extend([queue.running, queue.running_seats].map(|count| count.to_string()));
                row.push(seat_seconds(queue.next_start));
                row.extend([seats, seats].map(|seats| seats.to_string()));
                row.push(seat_seconds(queue.work));
                rows.push(row);
            }
        });
    }
    rows
}

fn requests(plan: &Plan, details: bool) -> Vec<Vec<String>> {
    let mut first = header(REQUESTS);
    first.extend(header(DETAILS).into_iter().filter(|_| details));
    let mut rows = vec![first];
    for priority in sorted(plan) {
        let Some(level) = &priority.level else { continue };
        level.with_queues(|queues| {
            for (queue_index, queue) in queues.iter().enumerate() {
                for (index, (about, seats)) in queue.waiting.iter().enumerate() {
                    let mut row = vec![priority.name.clone(), about.schema.clone(), queue_index.to_string()];
                    row.extend([index.to_string(), about.flow.clone(), about.arrived.clone()]);
                    row.extend([seats.to_string(), "0".to_string(), "0s".to_string()]);
                    row.extend(about.details.iter().filter(|_| details).cloned());
                    rows.push(row);
                }
            }
        });
    }
    rows
}

fn seat_seconds(value: f64) -> String {
    format!("{value:.8}ss")
}

/// Cells are followed by a comma and aligned; a column is at least eight wide.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count() + 2).max().unwrap_or(0).max(8);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == columns {
                out.push_str(cell);
            } else {
                out.push_str(&format!("{:<width$}", format!("{cell},"), width = widths[at]));
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = table(&[row(&["Name", "Long-Header", "C"]), row(&["a-long-name", "1", "2"])]);
        assert_eq!(text, "Name,        Long-Header, C\na-long-name, 1,           2\n");
        assert_eq!(table(&[row(&["a", "b"])]), "a,      b\n");
        assert_eq!(seat_seconds(0.003), "0.00300000ss");
    }
}
