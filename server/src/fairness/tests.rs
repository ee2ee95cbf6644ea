//! The stage on a whole server: who gets a seat, who waits, who is refused, and what answers say.

use api::{Tree, list, tree};
use http::Method;

use super::*;
use crate::limits::Limits;
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
    let everything = tree! {
        "verbs" => list!["*"], "apiGroups" => list!["*"], "resources" => list!["*"], "namespaces" => list!["*"],
        "clusterScope" => true,
    };
    let bob = tree! { "kind" => "User", "user" => tree! { "name" => "bob" } };
    tree! {
        "kind" => "FlowSchema", "apiVersion" => "flowcontrol.apiserver.k8s.io/v1",
        "metadata" => tree! { "name" => "bobs", "uid" => "schema-uid" },
        "spec" => tree! {
            "priorityLevelConfiguration" => tree! { "name" => "tight" }, "matchingPrecedence" => 50,
            "distinguisherMethod" => tree! { "type" => "ByUser" },
            "rules" => list![tree! { "subjects" => list![bob], "resourceRules" => list![everything] }],
        },
    }
}

/// A server on which bob has one seat.
async fn server(response: Tree) -> Arc<Server> {
    let limits = Limits { max_requests_inflight: 1, max_mutating_requests_inflight: 1, ..Limits::default() };
    let server = testing::server(Config { limits, ..Config::default() }).await;
    testing::put(&server, "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", level(response)).await;
    testing::put(&server, "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", schema()).await;
    server.fairness.reload(&server);
    server
}

fn get(user: &str) -> Call {
    testing::call(Method::GET, "/api/v1/namespaces/a/pods/x", user)
}

async fn admitted(server: &Arc<Server>, call: &mut Call) -> Result<(), Status> {
    match admit(server, call) {
        Step::Done(result) => result,
        Step::Later(wait) => wait.await,
    }
}

#[tokio::test]
async fn a_level_without_queues_refuses_at_once() {
    let server = server(tree! { "type" => "Reject" }).await;
    let (mut first, mut second) = (get("bob"), get("bob"));
    assert!(matches!(admit(&server, &mut first), Step::Done(Ok(()))));
    let status = admitted(&server, &mut second).await.expect_err("no seat is left");
    assert_eq!((status.code, second.too_many), (429, true));
    let answer = too_many_answer();
    assert_eq!(answer.headers()["retry-after"], "1");
    let mut headers = HeaderMap::new();
    sign(&mut headers, &second);
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], "schema-uid");
    assert_eq!(headers["x-kubernetes-pf-prioritylevel-uid"], "level-uid");
    // Others are not in bob's way, and his seat comes back.
    assert!(matches!(admit(&server, &mut get("ada")), Step::Done(Ok(()))));
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
async fn those_who_wait_get_a_seat_or_a_refusal_in_time() {
    let server = server(queuing()).await;
    let mut first = get("bob");
    assert!(matches!(admit(&server, &mut first), Step::Done(Ok(()))));
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move {
            let mut call = get("bob");
            admitted(&server, &mut call).await.map(|()| call.held.is_some())
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
async fn one_who_goes_away_while_waiting_takes_no_seat_along() {
    let server = server(queuing()).await;
    let (mut first, mut gone, mut next) = (get("bob"), get("bob"), get("bob"));
    assert!(admitted(&server, &mut first).await.is_ok());
    drop(admit(&server, &mut gone));
    drop(first);
    assert!(matches!(admit(&server, &mut next), Step::Done(Ok(()))));
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
    assert!(admitted(&server, &mut log).await.is_ok() && log.held.is_none());
    let mut watch = testing::call(Method::GET, "/api/v1/pods?watch=1", "bob");
    assert!(admitted(&server, &mut watch).await.is_err());
}
