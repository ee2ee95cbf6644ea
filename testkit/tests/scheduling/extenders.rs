//! Scheduler extenders.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::Tree;
use testkit::Https;

use super::{condition, create, is_bound, pod, preemption, start_as};

fn configuration(url: &str, rest: &str) -> scheduler::config::Configuration {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: 1\n\
         podMaxBackoffSeconds: 1\nextenders:\n- {{urlPrefix: {url}/v1, filterVerb: filter, prioritizeVerb: rate, \
         weight: 9, nodeCacheCapable: true, tlsConfig: {{insecure: true}}, {rest}}}\n"
    );
    scheduler::config::read(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Refuses `b` and likes `c` best.
fn answer(path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let asked = api::json::decode(body).expect("JSON");
    assert_eq!(asked.str("Pod.metadata.namespace"), "default");
    let names: Vec<&str> = asked.list("NodeNames").iter().filter_map(Tree::as_str).collect();
    let text = match path {
        "/v1/filter" => {
            let left: Vec<String> = names.iter().filter(|name| **name != "b").map(|name| format!("{name:?}")).collect();
            format!(r#"{{"NodeNames":[{}],"FailedNodes":{{"b":"no licence for it"}}}}"#, left.join(","))
        }
        "/v1/rate" => r#"[{"Host":"a","Score":1},{"Host":"c","Score":10}]"#.to_string(),
        other => panic!("{other}"),
    };
    (200, text.into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn extenders_filter_and_prioritize_nodes() {
    let serving = cluster::pki::self_signed("localhost", IpAddr::from([127, 0, 0, 1])).expect("a certificate");
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let service = Https::serve(&serving, move |path, body| match down.load(Ordering::Acquire) {
        true => (500, Vec::new()),
        false => answer(path, body),
    })
    .await;
    let nodes = [("a", "4", "10"), ("b", "4", "10"), ("c", "4", "10")];
    let cluster = start_as(Some(configuration(&service.url(), "ignorable: false")), &nodes).await;
    let client = &cluster.client;
    for name in ["one", "two", "three"] {
        let bound = client.until(&create(client, &pod(name, "1")).await, is_bound).await;
        assert_eq!(bound.str("spec.nodeName"), "c", "{name}");
    }
    let why = client.until(&create(client, &pod("large", "4")).await, is_bound).await;
    assert_eq!(why.str("spec.nodeName"), "a", "c has no room");
    // Only b is free for the pod, and the extender rejects b.
    let path = create(client, &pod("last", "3")).await;
    let waits = client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let text = condition(&waits, "PodScheduled").map(|one| one.str("message")).unwrap_or_default();
    assert!(text.contains("1 no licence for it"), "{text}");
    is_down.store(true, Ordering::Release);
    let path = create(client, &pod("p", "1")).await;
    let waits = client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let said = condition(&waits, "PodScheduled").map(|one| (one.str("reason"), one.str("message")));
    assert!(said.is_some_and(|(reason, text)| reason == "SchedulerError" && text.contains("code 500")), "{said:?}");
    is_down.store(false, Ordering::Release);
    client.until(&path, is_bound).await;
}

/// Leaves capacity only on `b`.
fn rooms(path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let asked = api::json::decode(body).expect("JSON");
    let text = match path {
        "/v1/filter" => api::json::encode(&api::tree! { "NodeNames" => asked.at("NodeNames").clone() }, None),
        "/v1/rate" => b"[]".to_vec(),
        "/v1/preempt" => {
            let rooms = asked.at("NodeNameToMetaVictims");
            assert_eq!(rooms.as_map().map(|rooms| rooms.len()), Some(2), "{asked:?}");
            let left = api::tree! { "b" => rooms.at("b").clone() };
            api::json::encode(&api::tree! { "NodeNameToMetaVictims" => left }, None)
        }
        other => panic!("{other}"),
    };
    (200, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn extenders_choose_preemption_victims() {
    let serving = cluster::pki::self_signed("localhost", IpAddr::from([127, 0, 0, 1])).expect("a certificate");
    let service = Https::serve(&serving, rooms).await;
    let nodes = [("a", "1", "10"), ("b", "1", "10")];
    let cluster = start_as(Some(configuration(&service.url(), "preemptVerb: preempt")), &nodes).await;
    let client = &cluster.client;
    preemption::class(client, "low", 10).await;
    // Without extenders the first node would be chosen: there are no budgets, and no pod has started.
    for round in 0..2 {
        for name in ["one", "two"] {
            client.until(&create(client, &pod(&format!("{name}-{round}"), "1")).await, is_bound).await;
        }
        let urgent = preemption::of_class(&format!("p-{round}"), "1", "low");
        let waits = create(client, &urgent).await;
        let waits = client.until(&waits, |_, pod| !pod.str("status.nominatedNodeName").is_empty()).await;
        assert_eq!(waits.str("status.nominatedNodeName"), "b");
        for name in [format!("one-{round}"), format!("two-{round}"), format!("p-{round}")] {
            client.delete(&format!("{}/{name}?gracePeriodSeconds=0", super::PODS)).await;
        }
    }
}
