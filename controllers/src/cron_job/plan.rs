//! Plans a CronJob: which of its Jobs are active, whether one is due, and which finished Jobs exceed the history
//! limits.

use std::sync::Arc;
use std::time::Duration;

use api::time::{self, Timestamp};
use api::{Tree, list, tree};

use thiserror::Error;

use super::schedule::ZonedSchedule;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Added to the requeue delay, so that the key is not reconciled a moment too early.
const DELTA: Duration = Duration::from_millis(100);
const MANY: i64 = 100;
const UNKNOWN_ZONE: &str = "UnknownTimeZone";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub ty: &'static str,
    pub reason: &'static str,
    pub message: String,
}

fn normal(reason: &'static str, message: String) -> Event {
    Event { ty: "Normal", reason, message }
}

fn warning(reason: &'static str, message: String) -> Event {
    Event { ty: "Warning", reason, message }
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub events: Vec<Event>,
    /// The status before the Job of this plan is started.
    pub status: Tree,
    /// Jobs to delete before one is started (`concurrencyPolicy: Replace`).
    pub replace: Vec<Arc<Tree>>,
    pub start: Option<ScheduledJob>,
    /// Finished Jobs beyond the history limits.
    pub old: Vec<Arc<Tree>>,
    pub again: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct ScheduledJob {
    pub job: Tree,
    pub scheduled: i64,
}

/// The event for an unknown time zone.
pub(crate) fn unknown_zone(name: &str) -> Event {
    warning(UNKNOWN_ZONE, format!("invalid timeZone: {name:?}: unknown time zone {name}"))
}

pub(crate) fn unparseable(schedule: &str, why: &str) -> Event {
    warning("UnparseableSchedule", format!("unparseable schedule: {schedule:?} : {why}"))
}

/// `timetable` is the parsed schedule and zone, or the event to record if parsing failed. `jobs` are the Jobs
/// controlled by the CronJob.
pub(super) fn plan(cron: &Tree, jobs: &[Arc<Tree>], zoned: Result<ZonedSchedule, Event>, now: Timestamp) -> Plan {
    let mut plan = Plan { status: cron.at("status").clone(), ..Plan::default() };
    plan.follow(jobs);
    plan.remove_missing(jobs);
    plan.old = too_old(cron, jobs);
    for job in &plan.old {
        drop_active(&mut plan.status, job.str("metadata.uid"));
    }
    if cron.at("metadata").has("deletionTimestamp") {
        return plan;
    }
    let is_suspended = cron.bool("spec.suspend");
    match zoned {
        Err(event) if !is_suspended || event.reason == UNKNOWN_ZONE => plan.events.push(event),
        Ok(zoned) if !is_suspended => plan.schedule(cron, jobs, &zoned, now),
        _ => {}
    }
    plan
}

/// Records a started Job in the status.
pub(super) fn started(status: &mut Tree, job: &Tree, scheduled: i64) {
    let reference = tree! {
        "kind" => "Job",
        "namespace" => job.str("metadata.namespace"),
        "name" => job.str("metadata.name"),
        "uid" => job.str("metadata.uid"),
        "apiVersion" => "batch/v1",
        "resourceVersion" => job.str("metadata.resourceVersion"),
    };
    status.list_entry("active").push(reference);
    status.set("lastScheduleTime", time::format_seconds(scheduled));
}

/// Removes a replaced Job from the active list.
pub(crate) fn drop_active(status: &mut Tree, uid: &str) {
    let active = status.list_entry("active");
    active.retain(|reference| reference.str("uid") != uid);
    if active.is_empty() {
        status.remove("active");
    }
}

impl Plan {
    /// Updates the active list from the state of the Jobs.
    fn follow(&mut self, jobs: &[Arc<Tree>]) {
        for job in jobs {
            let (name, uid) = (job.str("metadata.name"), job.str("metadata.uid"));
            let is_known = self.status.list("active").iter().any(|reference| reference.str("uid") == uid);
            match (is_known, ended(job)) {
                (false, None) => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.events.push(warning("UnexpectedJob", message));
                }
                (true, Some(condition)) => {
                    drop_active(&mut self.status, uid);
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    self.events.push(normal("SawCompletedJob", message));
                    self.note_success(job, condition);
                }
                (false, Some(condition)) => self.note_success(job, condition),
                (true, None) => {}
            }
        }
    }

    fn note_success(&mut self, job: &Tree, condition: &str) {
        let completed = job.str("status.completionTime");
        if condition == "Complete" && completed > self.status.str("lastSuccessfulTime") {
            self.status.set("lastSuccessfulTime", completed);
        }
    }

    fn remove_missing(&mut self, jobs: &[Arc<Tree>]) {
        let is_there = |uid: &str| jobs.iter().any(|job| job.str("metadata.uid") == uid);
        let missing: Vec<Tree> =
            self.status.list("active").iter().filter(|reference| !is_there(reference.str("uid"))).cloned().collect();
        for reference in missing {
            drop_active(&mut self.status, reference.str("uid"));
            self.events.push(normal("MissingJob", format!("Active job went missing: {}", reference.str("name"))));
        }
    }

    fn schedule(&mut self, cron: &Tree, jobs: &[Arc<Tree>], zoned: &ZonedSchedule, now: Timestamp) {
        let schedule = cron.str("spec.schedule");
        if schedule.contains("TZ") {
            let message = format!(
                "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            );
            self.events.push(warning("UnsupportedSchedule", message));
        }
        match self.due(cron, zoned, now) {
            Err(why) => {
                let message = format!("invalid schedule: {schedule} : {why}");
                return self.events.push(warning("InvalidSchedule", message));
            }
            Ok(Some(due)) => self.start(cron, jobs, zoned, due, now),
            Ok(None) => {}
        }
        let from = match MissedSchedules::of(cron, &self.status, zoned, now, false) {
            Ok(MissedSchedules { most_recent: Some(time), .. }) => time,
            Ok(MissedSchedules { missed: 0, earliest, .. }) => earliest,
            _ => now.seconds,
        };
        self.again = zoned.next(from).map(|next| until(now, next) + DELTA);
    }

    fn due(&mut self, cron: &Tree, zoned: &ZonedSchedule, now: Timestamp) -> Result<Option<i64>, ScheduleError> {
        let missed = MissedSchedules::of(cron, &self.status, zoned, now, true)?;
        if missed.most_recent.is_some() && missed.missed > MANY {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.events.push(warning("TooManyMissedTimes", message.to_string()));
        }
        Ok(missed.most_recent)
    }

    /// Starts the Job that is due unless the deadline or the concurrency policy forbids it.
    fn start(&mut self, cron: &Tree, jobs: &[Arc<Tree>], zoned: &ZonedSchedule, due: i64, now: Timestamp) {
        let deadline = cron.int("spec.startingDeadlineSeconds").map(|allowed| due.saturating_add(allowed));
        if deadline.is_some_and(|deadline| Timestamp { seconds: deadline, nanos: 0 } < now) {
            let message = format!("Missed scheduled time to start a job: {}", rfc1123(due));
            return self.events.push(warning("MissSchedule", message));
        }
        let name = job_name(cron, due);
        let active = self.status.list("active");
        let is_started = active.iter().any(|reference| reference.str("name") == name)
            || self.status.str("lastScheduleTime") == time::format_seconds(due);
        if is_started {
            return;
        }
        match cron.str("spec.concurrencyPolicy") {
            "Forbid" if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                return self.events.push(normal("JobAlreadyActive", message.to_string()));
            }
            "Replace" => {
                let is_active =
                    |job: &&Arc<Tree>| active.iter().any(|reference| reference.str("uid") == job.str("metadata.uid"));
                self.replace = jobs.iter().filter(is_active).cloned().collect();
            }
            _ => {}
        }
        let offset = if cron.str("spec.timeZone").is_empty() { 0 } else { zoned.zone.offset(due) };
        self.start = Some(ScheduledJob { job: build_job(cron, name, &with_offset(due, offset)), scheduled: due });
    }
}

/// Why the times of a schedule cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum ScheduleError {
    /// The schedule has no further time. The text is upstream's.
    #[error("time difference between two schedules is less than 1 second")]
    NoNextTime,
}

/// The schedule times since the last start.
struct MissedSchedules {
    earliest: i64,
    most_recent: Option<i64>,
    /// The approximate number of missed times; 0 if only one was missed.
    missed: i64,
}

impl MissedSchedules {
    /// Looks back to the last start, or only as far as `startingDeadlineSeconds` allows.
    fn of(
        cron: &Tree,
        status: &Tree,
        zoned: &ZonedSchedule,
        now: Timestamp,
        by_deadline: bool,
    ) -> Result<MissedSchedules, ScheduleError> {
        let seconds = |text: &str| time::parse(text).ok().map(|time| time.seconds);
        let created = seconds(cron.str("metadata.creationTimestamp")).unwrap_or(now.seconds);
        let mut earliest = seconds(status.str("lastScheduleTime")).unwrap_or(created);
        if let Some(allowed) = cron.int("spec.startingDeadlineSeconds").filter(|_| by_deadline) {
            earliest = earliest.max(now.seconds.saturating_sub(allowed));
        }
        let first = zoned.next(earliest).ok_or(ScheduleError::NoNextTime)?;
        if now.seconds < first {
            return Ok(MissedSchedules { earliest, most_recent: None, missed: 0 });
        }
        let second = zoned.next(first).ok_or(ScheduleError::NoNextTime)?;
        if now.seconds < second {
            return Ok(MissedSchedules { earliest, most_recent: Some(first), missed: 0 });
        }
        let interval = second - first;
        let missed = (now.seconds - first) / interval + 1;
        // Starts close to the present, at a multiple of the interval from the first time.
        let mut most_recent = None;
        let mut time = zoned.next(first + (missed - 2) * interval);
        while let Some(found) = time.filter(|time| *time <= now.seconds) {
            most_recent = Some(found);
            time = zoned.next(found);
        }
        Ok(MissedSchedules { earliest, most_recent, missed })
    }
}

fn until(now: Timestamp, seconds: i64) -> Duration {
    let whole = Duration::from_secs(u64::try_from(seconds - now.seconds).unwrap_or(0));
    whole.saturating_sub(Duration::from_nanos(now.nanos.into()))
}

/// One name per minute, so that a retried start creates the same Job.
fn job_name(cron: &Tree, scheduled: i64) -> String {
    format!("{}-{}", cron.str("metadata.name"), scheduled.div_euclid(60))
}

fn build_job(cron: &Tree, name: String, scheduled: &str) -> Tree {
    let template = cron.at("spec.jobTemplate");
    let reference = tree! {
        "apiVersion" => "batch/v1",
        "kind" => "CronJob",
        "name" => cron.str("metadata.name"),
        "uid" => cron.str("metadata.uid"),
        "controller" => true,
        "blockOwnerDeletion" => true,
    };
    let mut metadata = tree! { "name" => name, "ownerReferences" => list![reference] };
    if template.at("metadata").has("labels") {
        metadata.set("labels", template.at("metadata.labels").clone());
    }
    let mut annotations = Tree::Map(template.map("metadata.annotations").clone());
    annotations.set(SCHEDULED, scheduled);
    metadata.set("annotations", annotations);
    tree! { "apiVersion" => "batch/v1", "kind" => "Job", "metadata" => metadata, "spec" => template.at("spec").clone() }
}

/// The condition type, `Complete` or `Failed`.
fn ended(job: &Tree) -> Option<&str> {
    let is_end =
        |condition: &&Tree| matches!(condition.str("type"), "Complete" | "Failed") && condition.str("status") == "True";
    job.list("status.conditions").iter().find(is_end).map(|condition| condition.str("type"))
}

/// The oldest finished Jobs beyond each history limit.
fn too_old(cron: &Tree, jobs: &[Arc<Tree>]) -> Vec<Arc<Tree>> {
    let of = |ending: &str, field: &str| {
        let mut ended: Vec<Arc<Tree>> = jobs.iter().filter(|job| ended(job) == Some(ending)).cloned().collect();
        let kept = cron.at("spec").int(field).map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
        let started = |job: &Tree| job.str("status.startTime").to_string();
        ended.sort_by_cached_key(|job| (started(job).is_empty(), started(job), job.str("metadata.name").to_string()));
        let beyond = ended.len().saturating_sub(kept);
        ended.truncate(beyond);
        ended
    };
    [of("Complete", "successfulJobsHistoryLimit"), of("Failed", "failedJobsHistoryLimit")].concat()
}

/// A time with the offset of its zone: `2006-01-02T15:04:05+01:00`.
fn with_offset(seconds: i64, offset: i64) -> String {
    let local = time::format_seconds(seconds + offset);
    if offset == 0 {
        return local.to_string();
    }
    let (sign, ahead) = if offset < 0 { ('-', -offset) } else { ('+', offset) };
    format!("{}{sign}{:02}:{:02}", local.trim_end_matches('Z'), ahead / 3600, ahead / 60 % 60)
}

/// `Mon, 02 Jan 2006 15:04:05 +0000`
fn rfc1123(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let day = seconds.div_euclid(86_400);
    let (year, month, date) = time::civil(day);
    let name = DAYS[api::time::weekday(day) as usize];
    let month = MONTHS[(month - 1) as usize];
    let rest = seconds.rem_euclid(86_400);
    format!("{name}, {date:02} {month} {year} {:02}:{:02}:{:02} +0000", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests;
