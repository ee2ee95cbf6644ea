//! The stage on a whole server: which requests get a seat, wait, or are rejected, and the headers of their responses.

use std::time::Duration;

use api::{Tree, list, tree};
use http::Method;

use super::*;
use crate::fairness::{ADJUSTMENT, rebalance_seats};
use crate::request::limits::Limits;
use crate::{Config, testing};

fn level(response: Tree) -> Tree {
    let limited = tree! {
        "nominalConcurrencyShares" => 1, "lendablePercent" => 0, "borrowingLimitPercent" => 0, "limitResponse" => response,
    };
    tree! {
        "kind" => "PriorityLevelConfiguration", "apiVersion" => "flowcontrol.apiserver.k8s.io/v1",
        "metadata" => tree! { "name" => "tight", "uid" => "level-uid" },
        "spec" => tree! { "type" => "Limited", "limited" => limited },
    }
}

fn schema() -> Tree {
    schema_of("bob", "tight")
}

fn schema_of(user: &str, level: &str) -> Tree {
    let everything = tree! {
        "verbs" => list!["*"], "apiGroups" => list!["*"], "resources" => list!["*"], "namespaces" => list!["*"],
        "clusterScope" => true,
    };
    let subject = tree! { "kind" => "User", "user" => tree! { "name" => user } };
    tree! {
        "kind" => "FlowSchema", "apiVersion" => "flowcontrol.apiserver.k8s.io/v1",
        "metadata" => tree! { "name" => format!("{user}s"), "uid" => "schema-uid" },
        "spec" => tree! {
            "priorityLevelConfiguration" => tree! { "name" => level }, "matchingPrecedence" => 50,
            "distinguisherMethod" => tree! { "type" => "ByUser" },
            "rules" => list![tree! { "subjects" => list![subject], "resourceRules" => list![everything] }],
        },
    }
}

/// A server on which the user bob has one seat.
async fn server(response: Tree) -> Arc<Server> {
    let limits = Limits { max_requests_inflight: 1, max_mutating_requests_inflight: 1, ..Limits::default() };
    let server = testing::server(Config { limits, ..Config::default() }).await;
    testing::put(
        &server.registry,
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "prioritylevelconfigurations",
        level(response),
    )
    .await;
    testing::put(&server.registry, "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", schema()).await;
    server.fairness.reload(&server.registry.storage, &server.config.limits);
    server
}

fn get(user: &str) -> Call {
    testing::call(Method::GET, "/api/v1/namespaces/a/pods/x", user)
}

async fn admitted(server: &Arc<Server>, call: &mut Call) -> Result<(), Status> {
    match admit(server, call) {
        StageResult::Done(result) => result,
        StageResult::Later(wait) => wait.await,
    }
}

#[tokio::test]
async fn level_without_queues_rejects_at_once() {
    let server = server(tree! { "type" => "Reject" }).await;
    let (mut first, mut second) = (get("bob"), get("bob"));
    assert!(matches!(admit(&server, &mut first), StageResult::Done(Ok(()))));
    let status = admitted(&server, &mut second).await.expect_err("no seat is left");
    assert_eq!((status.code, second.seats.too_many), (429, Some(1)));
    let response = too_many_requests(1);
    assert_eq!(response.headers()["retry-after"], "1");
    let mut headers = HeaderMap::new();
    sign(&mut headers, &second.seats);
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], "schema-uid");
    assert_eq!(headers["x-kubernetes-pf-prioritylevel-uid"], "level-uid");
    // Other users are not affected, and bob's seat is released.
    assert!(matches!(admit(&server, &mut get("ada")), StageResult::Done(Ok(()))));
    drop(first);
    assert!(admitted(&server, &mut second).await.is_ok());
    server.fairness.show();
    let text = String::from_utf8(server.metrics.text()).expect("text");
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"bobs\",priority_level=\"tight\",reason=\"concurrency-limit\"} 1";
    assert!(text.contains(rejected), "{text}");
    assert!(text.contains("apiserver_flowcontrol_current_executing_seats{priority_level=\"tight\"} 1"), "{text}");
}

fn queuing() -> Tree {
    tree! { "type" => "Queue", "queuing" => tree! { "queues" => 4, "handSize" => 2, "queueLengthLimit" => 5 } }
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_get_a_seat_or_time_out() {
    let server = server(queuing()).await;
    let mut first = get("bob");
    assert!(matches!(admit(&server, &mut first), StageResult::Done(Ok(()))));
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move {
            let mut call = get("bob");
            admitted(&server, &mut call).await.map(|()| call.seats.held.is_some())
        })
    };
    tokio::task::yield_now().await;
    drop(first);
    assert_eq!(waiting.await.expect("the task").map_err(|status| status.code), Ok(true));
    let (mut holder, mut late) = (get("bob"), get("bob"));
    assert!(admitted(&server, &mut holder).await.is_ok());
    late.timeout = Some(Duration::from_secs(4));
    let began = tokio::time::Instant::now();
    assert_eq!(admitted(&server, &mut late).await.map_err(|status| status.code), Err(429));
    assert_eq!(began.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn cancelled_waiting_request_holds_no_seat() {
    let server = server(queuing()).await;
    let (mut first, mut gone, mut next) = (get("bob"), get("bob"), get("bob"));
    assert!(admitted(&server, &mut first).await.is_ok());
    drop(admit(&server, &mut gone));
    drop(first);
    assert!(matches!(admit(&server, &mut next), StageResult::Done(Ok(()))));
}

fn dumped(server: &Server, what: &str) -> Vec<String> {
    let call = testing::call(Method::GET, &format!("/debug/api_priority_and_fairness/{what}"), "root");
    let page = dump::page(&server.fairness, &call.head.path, &call.head.query).expect("a table");
    page.lines().map(|line| line.replace(' ', "")).collect()
}

#[tokio::test(start_paused = true)]
async fn dumps_levels_queues_and_waiting_requests() {
    let server = server(queuing()).await;
    let mut first = get("bob");
    assert!(admitted(&server, &mut first).await.is_ok());
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move { admitted(&server, &mut get("bob")).await.is_ok() })
    };
    tokio::task::yield_now().await;
    let levels = dumped(&server, "dump_priority_levels");
    assert!(levels[0].starts_with("PriorityLevelName,ActiveQueues,IsIdle,IsQuiescing,"), "{}", levels[0]);
    assert!(levels.contains(&"tight,1,false,false,1,1,1,0,0,0".to_string()), "{levels:?}");
    assert!(levels.contains(&"catch-all,0,true,false,0,0,0,0,0,0".to_string()), "{levels:?}");
    assert!(levels.contains(&"exempt,<none>,<none>,false,<none>,<none>,0,0,0,0".to_string()), "{levels:?}");
    let queues = dumped(&server, "dump_queues");
    let own: Vec<_> = queues.iter().filter(|row| row.starts_with("tight,")).collect();
    assert_eq!(own.len(), 4, "{queues:?}");
    assert!(own.iter().any(|row| row.ends_with(",1,1,0.00300000ss")), "{queues:?}");
    let requests = dumped(&server, "dump_requests?includeRequestDetails=1");
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(
        requests[0]
            .ends_with(",AdditionalLatency,UserName,Verb,APIPath,Namespace,Name,APIVersion,Resource,SubResource")
    );
    assert!(requests[1].starts_with("tight,bobs,"), "{requests:?}");
    assert!(requests[1].ends_with(",1,0,0s,bob,get,/api/v1/namespaces/a/pods/x,a,x,v1,pods,"), "{requests:?}");
    assert!(dumped(&server, "dump_requests")[0].ends_with(",AdditionalLatency"));
    waiting.abort();
    assert!(waiting.await.is_err());
    let levels = dumped(&server, "dump_priority_levels");
    assert!(levels.contains(&"tight,0,false,false,0,1,1,0,0,1".to_string()), "{levels:?}");
}

#[tokio::test]
async fn streams_other_than_watches_need_no_seat() {
    let server = server(tree! { "type" => "Reject" }).await;
    let _first = {
        let mut call = get("bob");
        assert!(admitted(&server, &mut call).await.is_ok());
        call
    };
    let mut log = testing::call(Method::GET, "/api/v1/namespaces/a/pods/x/log", "bob");
    assert!(admitted(&server, &mut log).await.is_ok() && log.seats.held.is_none());
    let mut watch = testing::call(Method::GET, "/api/v1/pods?watch=1", "bob");
    assert!(admitted(&server, &mut watch).await.is_err());
}

/// A level that lends all of its unused seats.
fn lending(name: &str, shares: i64) -> Tree {
    let queuing = tree! { "queues" => 8, "handSize" => 2, "queueLengthLimit" => 1000 };
    let mut level = level(tree! { "type" => "Queue", "queuing" => queuing });
    level.child("metadata").set("name", name);
    let limited = level.child("spec").child("limited");
    limited.set("nominalConcurrencyShares", shares);
    limited.set("lendablePercent", 100);
    limited.set("borrowingLimitPercent", Tree::Null);
    level
}

/// Keeps `count` requests of a user in flight, each of one second.
fn flood(server: &Arc<Server>, user: &'static str, count: usize) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let server = server.clone();
        tasks.spawn(async move {
            loop {
                let mut call = get(user);
                call.timeout = Some(Duration::from_secs(3600));
                admitted(&server, &mut call).await.expect("a seat in time");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    tasks
}

/// The nominal seats of a level, its current limit, and the seats in use.
fn seats_of(server: &Server, name: &str) -> (u32, u32, u32) {
    let plan = server.fairness.plan.load();
    let priority = plan.levels.iter().find(|priority| priority.name == name).expect("the level");
    let level = priority.level.as_ref().expect("a limited level");
    (level.bounds().nominal, level.load().limit, level.load().running_seats)
}

#[tokio::test(start_paused = true)]
async fn lent_seats_come_back_to_whom_they_belong() {
    let limits = Limits { max_requests_inflight: 60, max_mutating_requests_inflight: 40, ..Limits::default() };
    let server = testing::server(Config { limits, ..Config::default() }).await;
    let group = "flowcontrol.apiserver.k8s.io";
    for (user, shares) in [("ada", 245), ("bob", 245)] {
        testing::put(&server.registry, group, "v1", "prioritylevelconfigurations", lending(user, shares)).await;
        testing::put(&server.registry, group, "v1", "flowschemas", schema_of(user, user)).await;
    }
    server.fairness.reload(&server.registry.storage, &server.config.limits);
    let period = ADJUSTMENT + Duration::from_secs(2);
    let (nominal, limit, _) = seats_of(&server, "ada");
    assert_eq!((nominal, limit), (34, 34), "a third of 100 for each, and for all the others together");

    let _bobs = flood(&server, "bob", 90);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(seats_of(&server, "bob"), (34, 34, 34), "nothing is lent yet");
    tokio::time::sleep(period).await;
    let (_, _, before) = seats_of(&server, "bob");
    assert!(before > 60, "ada's seats are lent: {before}");
    assert!(seats_of(&server, "ada").1 < 5, "{:?}", seats_of(&server, "ada"));

    // Ada gets a seat or two immediately and her nominal seats with the next adjustment; bob's requests finish anyway.
    let _adas = flood(&server, "ada", 50);
    tokio::time::sleep(period).await;
    let (nominal, _, used) = seats_of(&server, "ada");
    assert!(used >= nominal, "{used} of {nominal}");
    let (_, limit, used) = seats_of(&server, "bob");
    assert!(used <= limit && used <= 66, "bob keeps no seats of ada: {used} of {limit}");
}

#[tokio::test(start_paused = true)]
async fn lent_seats_return_without_other_requests() {
    let limits = Limits { max_requests_inflight: 60, max_mutating_requests_inflight: 40, ..Limits::default() };
    let server = testing::server(Config { limits, ..Config::default() }).await;
    let group = "flowcontrol.apiserver.k8s.io";
    testing::put(&server.registry, group, "v1", "prioritylevelconfigurations", lending("ada", 245)).await;
    testing::put(&server.registry, group, "v1", "flowschemas", schema_of("ada", "ada")).await;
    server.fairness.reload(&server.registry.storage, &server.config.limits);
    let plan = server.fairness.plan.load_full();
    tokio::time::sleep(ADJUSTMENT).await;
    rebalance_seats(&plan, Instant::now());
    plan.levels
        .iter()
        .find(|level| level.name == "ada")
        .and_then(|level| level.level.as_ref())
        .expect("a level")
        .set_limit(Instant::now(), 1);
    let (mut first, mut second) = (get("ada"), get("ada"));
    second.timeout = Some(Duration::from_secs(3600));
    assert!(admitted(&server, &mut first).await.is_ok());
    let began = Instant::now();
    assert!(admitted(&server, &mut second).await.is_ok(), "the first still has the only seat");
    assert!(began.elapsed() <= ADJUSTMENT + Duration::from_secs(1), "{:?}", began.elapsed());
}
