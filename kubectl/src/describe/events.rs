//! The events of an object.

use api::Tree;

use super::values::{age, int, text};
use super::writer::{Writer, put};

pub(super) fn describe(w: &mut Writer, events: Option<&[Tree]>, now: i64) {
    let Some(events) = events else { return };
    if events.is_empty() {
        return w.field("Events", "<none>");
    }
    w.flush();
    let mut events: Vec<&Tree> = events.iter().collect();
    events.sort_by_key(|event| super::values::seconds_of(event.str("lastTimestamp")));
    w.write(0, "Events:\n  Type\tReason\tAge\tFrom\tMessage\n");
    w.write(1, "----\t------\t----\t----\t-------\n");
    for event in events {
        let source = match event.str("source.component") {
            "" => event.str("reportingComponent"),
            source => source,
        };
        let (kind, reason) = (event.str("type"), event.str("reason"));
        put!(w, 1, "{kind}\t{reason}\t{}\t{source}\t{}\n", interval(event, now), event.str("message").trim());
    }
}

fn interval(event: &Tree, now: i64) -> String {
    let first = match event.str("eventTime") {
        "" => age(event.str("firstTimestamp"), now),
        time => age(time, now),
    };
    if event.has("series") {
        let last = age(&text(event, "series.lastObservedTime"), now);
        return format!("{last} (x{} over {first})", int(event, "series.count"));
    }
    match int(event, "count") {
        count @ 2.. => format!("{} (x{count} over {first})", age(event.str("lastTimestamp"), now)),
        _ => first,
    }
}
