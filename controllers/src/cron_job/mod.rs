//! Starts jobs by the clock.

mod plan;
mod rule;
mod schedule;
mod zone;

/// Of a day since 1970-01-01; 0 is Sunday.
fn weekday(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}
