use std::sync::Arc;

use api::json::decode;
use kinds::time_zones::Zone;

use super::*;

const CREATED: i64 = 1_704_067_200; // 2024-01-01T00:00:00Z, a Monday

fn cron(spec: &str, status: &str) -> Tree {
    let metadata = r#"{"namespace":"n","name":"c","uid":"u","creationTimestamp":"2024-01-01T00:00:00Z"}"#;
    let template = r#""jobTemplate":{"metadata":{"labels":{"a":"b"}},"spec":{"completions":1}}"#;
    let json = format!(r#"{{"metadata":{metadata},"spec":{{{spec}{template}}},"status":{{{status}}}}}"#);
    decode(json.as_bytes()).expect("a cron job")
}

fn job(name: &str, ending: &str, minute: i64) -> Arc<Tree> {
    let time = time::format_seconds(CREATED + minute * 60);
    let condition = match ending {
        "" => String::new(),
        ending => format!(r#","completionTime":"{time}","conditions":[{{"type":"{ending}","status":"True"}}]"#),
    };
    let metadata = format!(r#"{{"namespace":"n","name":"{name}","uid":"{name}"}}"#);
    let json = format!(r#"{{"metadata":{metadata},"status":{{"startTime":"{time}"{condition}}}}}"#);
    Arc::new(decode(json.as_bytes()).expect("a job"))
}

fn run(cron: &Tree, jobs: &[Arc<Tree>], second: i64) -> Plan {
    let schedule = cron.str("spec.schedule");
    let schedule = kinds::batch::cron::parse(if schedule.is_empty() { "*/10 * * * *" } else { schedule });
    let zoned = ZonedSchedule { schedule: schedule.expect("a schedule"), zone: Arc::new(Zone::utc()) };
    plan(cron, jobs, Ok(zoned), Timestamp { seconds: CREATED + second, nanos: 0 })
}

fn reasons(plan: &Plan) -> String {
    plan.events.iter().map(|event| event.reason).collect::<Vec<_>>().join(" ")
}

/// Expects the started Job (`-` for none) and the events.
fn check(spec: &str, status: &str, second: i64, want: (&str, &str)) {
    let plan = run(&cron(spec, status), &[job("old", "", 0)], second);
    let started = plan.start.as_ref().map_or("-", |start| start.job.str("metadata.name"));
    let minutes = started.strip_prefix("c-").map(|minutes| minutes.parse::<i64>().expect("a number") - CREATED / 60);
    let started = minutes.map_or_else(|| "-".to_string(), |minutes| format!("+{minutes}"));
    assert_eq!((started.as_str(), reasons(&plan).as_str()), want, "{spec} {status} {second}");
}

const OLD: &str = r#""active":[{"name":"old","uid":"old"}]"#;

#[test]
fn starts_a_job_when_due() {
    check("", OLD, 599, ("-", ""));
    check("", OLD, 600, ("+10", ""));
    check("", OLD, 1199, ("+10", ""));
    check("", OLD, 1900, ("+30", ""));
    check(r#""suspend":true,"#, OLD, 600, ("-", ""));
    let last = |time: &str| format!(r#"{OLD},"lastScheduleTime":"2024-01-01T{time}Z""#);
    check("", &last("00:10:00"), 700, ("-", ""));
    check("", &last("00:10:00"), 1200, ("+20", ""));
    check(r#""startingDeadlineSeconds":50,"#, OLD, 649, ("+10", ""));
    check(r#""startingDeadlineSeconds":50,"#, OLD, 651, ("-", ""));
}

#[test]
fn reports_many_missed_times() {
    check("", OLD, 600 * 101 + 5, ("+1010", "TooManyMissedTimes"));
    check("", OLD, 600 * 100 + 5, ("+1000", ""));
    check(r#""startingDeadlineSeconds":1200,"#, OLD, 600 * 200 + 5, ("+2000", ""));
}

#[test]
fn concurrency_policies_apply_to_active_jobs() {
    check(r#""concurrencyPolicy":"Forbid","#, OLD, 600, ("-", "JobAlreadyActive"));
    check(r#""concurrencyPolicy":"Allow","#, OLD, 600, ("+10", ""));
    let plan = run(&cron(r#""concurrencyPolicy":"Replace","#, OLD), &[job("old", "", 0)], 600);
    assert_eq!(plan.replace.len(), 1);
    assert!(plan.start.is_some());
}

#[test]
fn jobs_are_built_from_the_template() {
    let plan = run(&cron("", ""), &[], 600);
    let start = plan.start.expect("a start");
    assert_eq!(start.job.map("metadata.labels").str("a"), "b");
    assert_eq!(start.job.map("metadata.annotations").str(SCHEDULED), "2024-01-01T00:10:00Z");
    assert_eq!(start.job.list("metadata.ownerReferences")[0].str("uid"), "u");
    assert_eq!(start.job.int("spec.completions"), Some(1));
    let mut status = plan.status;
    let mut made = start.job.clone();
    made.child("metadata").set("uid", "made");
    started(&mut status, &made, start.scheduled);
    assert_eq!(status.str("lastScheduleTime"), "2024-01-01T00:10:00Z");
    assert_eq!(status.list("active")[0].str("uid"), "made");
    assert_eq!(with_offset(0, -12_600), "1969-12-31T20:30:00-03:30");
}

#[test]
fn requeues_slightly_after_the_next_time() {
    let again = |status: &str, second: i64| run(&cron("", status), &[], second).again;
    assert_eq!(again("", 0), Some(Duration::from_millis(600_100)));
    assert_eq!(again("", 599), Some(Duration::from_millis(1_100)));
    assert_eq!(again("", 700), Some(Duration::from_millis(500_100)));
    let never = run(&cron(r#""schedule":"0 0 31 2 *","#, ""), &[], 0);
    assert_eq!((never.again, reasons(&never).as_str()), (None, "InvalidSchedule"));
}

#[test]
fn tracks_active_jobs() {
    let status = r#""active":[{"name":"a","uid":"a"},{"name":"gone","uid":"gone"}]"#;
    let jobs = [job("a", "Complete", 1), job("strange", "", 2)];
    let plan = run(&cron(r#""suspend":true,"#, status), &jobs, 60);
    assert_eq!(reasons(&plan), "SawCompletedJob UnexpectedJob MissingJob");
    assert_eq!(plan.events[0].message, "Saw completed job: a, condition: Complete");
    assert!(!plan.status.has("active"));
    assert_eq!(plan.status.str("lastSuccessfulTime"), "2024-01-01T00:01:00Z");
}

#[test]
fn history_limits_apply_per_result() {
    let jobs = [job("c", "Complete", 3), job("a", "Complete", 1), job("b", "Complete", 2), job("f", "Failed", 0)];
    let spec = r#""suspend":true,"successfulJobsHistoryLimit":1,"failedJobsHistoryLimit":1,"#;
    let names = |spec: &str| {
        let old = run(&cron(spec, ""), &jobs, 60).old;
        old.iter().map(|job| job.str("metadata.name").to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(spec), "a b");
    assert_eq!(names(r#""failedJobsHistoryLimit":0,"#), "f");
    assert_eq!(names(""), "");
}

#[test]
fn reports_invalid_schedules() {
    let message_of = |spec: &str, event: Event| {
        let plan = plan(&cron(spec, ""), &[], Err(event), Timestamp { seconds: CREATED, nanos: 0 });
        assert!(plan.again.is_none());
        plan.events.iter().map(|event| event.message.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(message_of("", unknown_zone("Mars")), r#"invalid timeZone: "Mars": unknown time zone Mars"#);
    assert_eq!(message_of("", unparseable("x", "why")), r#"unparseable schedule: "x" : why"#);
    assert_eq!(message_of(r#""suspend":true,"#, unparseable("x", "why")), "");
    let zoned = run(&cron(r#""schedule":"TZ=UTC 0 0 * * *","#, ""), &[], 60);
    assert_eq!(reasons(&zoned), "UnsupportedSchedule");
    assert_eq!(rfc1123(CREATED), "Mon, 01 Jan 2024 00:00:00 +0000");
}
