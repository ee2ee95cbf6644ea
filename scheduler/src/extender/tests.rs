use api::tree;

use super::*;

/// Returns a fixed text for each verb, and records the requests.
#[derive(Default)]
struct FixedTransport {
    responses: Vec<(&'static str, Result<&'static str, &'static str>)>,
    requests: Mutex<Vec<(String, String)>>,
}

impl ExtenderTransport for FixedTransport {
    fn post<'a>(&'a self, _: &'a ExtenderConfig, verb: &'a str, body: Vec<u8>) -> PostFuture<'a> {
        let requests = (verb.to_string(), String::from_utf8_lossy(&body).into_owned());
        self.requests.lock().push(requests);
        let response = self.responses.iter().find(|(known, _)| *known == verb).map(|(_, response)| *response);
        Box::pin(async move {
            response.unwrap_or(Err("no extender")).map(|text| text.as_bytes().to_vec()).map_err(TransportError::from)
        })
    }
}

fn extender(ignorable: bool) -> ExtenderConfig {
    ExtenderConfig {
        url_prefix: "http://x".to_string(),
        filter_verb: "filter".to_string(),
        prioritize_verb: "rate".to_string(),
        weight: 2,
        node_cache_capable: true,
        ignorable,
        ..ExtenderConfig::default()
    }
}

fn nodes() -> Vec<(Str, Arc<Tree>)> {
    ["a", "b", "c"].map(|name| (Str::new(name), Arc::new(tree! { "metadata" => tree! { "name" => name } }))).to_vec()
}

async fn call(
    extender: ExtenderConfig,
    responses: Vec<(&'static str, Result<&'static str, &'static str>)>,
) -> (Result<(), String>, Extenders, Arc<FixedTransport>) {
    let wire = Arc::new(FixedTransport { responses, ..FixedTransport::default() });
    let extenders = Extenders::new(vec![extender], wire.clone());
    let pod = crate::testing::pod("p");
    assert!(extenders.must_be_called(&pod.pod()));
    let result = extenders.filter_nodes(&pod.pod(), &pod.0, &nodes()).await.map_err(|error| error.to_string());
    (result, extenders, wire)
}

fn verdicts(extenders: &Extenders) -> Vec<(Option<(bool, String)>, i64)> {
    let response = extenders.responses().get("p").and_then(|one| one.nodes.clone()).expect("an response");
    let of = |name: &str| (response.rejection(name).map(|(last, why)| (last, why.to_string())), response.score(name));
    ["a", "b", "c"].map(of).to_vec()
}

#[tokio::test]
async fn extenders_filter_and_prioritize() {
    let left = r#"{"nodenames":["a","b"],"failedNodes":{"c":"no licence"},"error":""}"#;
    let rated = r#"[{"Host":"a","Score":3},{"Host":"b","Score":10}]"#;
    let (result, extenders, wire) = call(extender(false), vec![("filter", Ok(left)), ("rate", Ok(rated))]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(verdicts(&extenders), [(None, 60), (None, 200), (Some((false, "no licence".to_string())), 0)]);
    let requests = wire.requests.lock().clone();
    assert!(requests[0].1.contains(r#""NodeNames":["a","b","c"],"Nodes":null"#), "{}", requests[0].1);
    assert!(requests[1].1.contains(r#""NodeNames":["a","b"]"#), "{}", requests[1].1);
    let pod = crate::testing::pod("p").pod();
    assert!(!extenders.must_be_called(&pod));
    extenders.forget(&pod);
    assert!(extenders.must_be_called(&pod));
}

#[tokio::test]
async fn only_ignorable_extenders_may_fail() {
    let broken = vec![("filter", Err("timed out"))];
    let (result, ..) = call(extender(false), broken.clone()).await;
    assert_eq!(result, Err("extender http://x: timed out".to_string()));
    let (result, extenders, _) = call(extender(true), broken).await;
    assert_eq!(result, Ok(()));
    assert_eq!(verdicts(&extenders), [(None, 0), (None, 0), (None, 0)]);
    let (result, ..) = call(extender(false), vec![("filter", Ok(r#"{"Error":"out of order"}"#))]).await;
    assert_eq!(result, Err("extender http://x: out of order".to_string()));
    let (result, ..) = call(extender(false), vec![("filter", Ok(r#"{"NodeNames":["z"]}"#))]).await;
    assert!(result.is_err_and(|why| why.contains("was not in the request")));
}

#[tokio::test]
async fn managed_resources_select_pods() {
    let managed = crate::config::ManagedResource { name: "example.com/gpu".into(), is_ignored_by_scheduler: true };
    let config = ExtenderConfig { managed_resources: vec![managed], ..extender(false) };
    let extenders = Extenders::new(vec![config], Arc::new(FixedTransport::default()));
    let wants = crate::testing::pod("p").requests(tree! { "example.com/gpu" => "1" }).pod();
    assert!(extenders.must_be_called(&wants));
    assert!(!extenders.must_be_called(&crate::testing::pod("p").pod()));
}

/// A node with pods of priority 1 and 9, both of which must be removed for `p` of priority 5.
fn crowded() -> (crate::testing::TestCluster, Vec<Arc<Candidate>>) {
    let mut world = crate::testing::TestCluster::new();
    for name in ["a", "b"] {
        world.node(crate::testing::node(name));
        let on = |pod: &str, priority| crate::testing::pod(&format!("{pod}-{name}")).priority(priority).on(name);
        world.placed(on("low", 1));
        world.placed(on("lower", 0));
        world.placed(on("high", 9));
    }
    world.snapshot.update_order();
    let candidate = |name: &str| {
        let node = world.snapshot.find(name).expect("the node");
        let victims = node.pods.iter().filter(|pod| pod.priority == 1).cloned().collect();
        Arc::new(Candidate { node: node.id, victims, violations: 1 })
    };
    let candidates = ["a", "b"].map(candidate).to_vec();
    (world, candidates)
}

/// Calls an extender for the candidates of two nodes: the remaining ones by node or the error, and the requests.
async fn screen(
    change: impl FnOnce(&mut ExtenderConfig),
    response: Result<&'static str, &'static str>,
) -> (Result<Vec<String>, String>, String) {
    let mut config = ExtenderConfig { preempt_verb: "preempt".to_string(), ..extender(false) };
    change(&mut config);
    let wire = Arc::new(FixedTransport { responses: vec![("preempt", response)], ..FixedTransport::default() });
    let extenders = Extenders::new(vec![config], wire.clone());
    let (world, candidates) = crowded();
    let written = crate::testing::pod("p").priority(5);
    let pod = written.pod();
    let cycle = Cycle { snapshot: &world.snapshot, pod: &pod };
    let screened = extenders.filter_candidates(cycle, candidates.clone()).expect("no extender was called yet");
    assert_eq!(screened, candidates);
    let pending = extenders.pending_candidates(&pod).expect("a pending request");
    extenders.process_preemption(&pod, pending, |pod| crate::testing::pod(&pod.name).0).await;
    let text = |candidate: &Arc<Candidate>| {
        let names: Vec<&str> = candidate.victims.iter().map(|victim| victim.name.as_str()).collect();
        format!("{} {}", names.join("+"), candidate.violations)
    };
    let left = extenders.filter_candidates(cycle, candidates).map(|left| left.iter().map(text).collect());
    let left = left.map_err(|error| error.to_string());
    assert!(extenders.pending_candidates(&pod).is_none(), "it was called");
    let requests = wire.requests.lock()[0].1.clone();
    (left, requests)
}

#[tokio::test]
async fn extenders_restrict_candidates() {
    let both = r#"{"nodeNameToMetaVictims":{"a":{"pods":[{"uid":"lower-a"}],"numPDBViolations":0},"b":{"Pods":[{"UID":"low-b"},{"UID":"lower-b"}],"NumPDBViolations":2}}}"#;
    let cases: [(&str, Result<&[&str], &str>); 7] = [
        (both, Ok(&["lower-a 0", "low-b+lower-b 2"])),
        (r#"{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"low-b"}],"NumPDBViolations":1}}}"#, Ok(&["low-b 1"])),
        ("{}", Ok(&[])),
        (
            r#"{"NodeNameToMetaVictims":{"c":{"Pods":[]}}}"#,
            Err("the response contains node \"c\", which was not in the request"),
        ),
        (r#"{"NodeNameToMetaVictims":{"a":{"Pods":[]}}}"#, Err("expected at least one victim pod on node \"a\"")),
        (
            r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"low-b"}]}}}"#,
            Err("claims to preempt pod (UID: low-b) on node: a, but the pod is not found on that node"),
        ),
        (
            r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"high-a"}]}}}"#,
            Err("claims to preempt pod (UID: high-a) on node: a, but the pod is not of lower priority"),
        ),
    ];
    for (response, want) in cases {
        let want = want.map(|left| left.iter().map(|one| one.to_string()).collect::<Vec<_>>());
        let want = want.map_err(|why| format!("extender http://x: {why}"));
        assert_eq!(screen(|_| {}, Ok(response)).await.0, want, "{response}");
    }
}

#[tokio::test]
async fn failing_ignorable_extenders_keep_all_candidates() {
    let ignorable = |config: &mut ExtenderConfig| config.ignorable = true;
    let all = Ok(vec!["low-a 1".to_string(), "low-b 1".to_string()]);
    assert_eq!(screen(ignorable, Err("timed out")).await.0, all);
    assert_eq!(screen(|_| {}, Err("timed out")).await.0, Err("extender http://x: timed out".to_string()));
    let empty = r#"{"NodeNameToMetaVictims":{"a":{"Pods":[]},"b":{"Pods":[{"UID":"low-b"}]}}}"#;
    assert_eq!(
        screen(ignorable, Ok(empty)).await.0,
        Ok(vec!["low-b 0".to_string()]),
        "only the node without victims is dropped"
    );
}

#[tokio::test]
async fn full_victims_are_sent_without_node_cache() {
    let (_, requests) = screen(|_| {}, Ok("{}")).await;
    let meta = r#""NodeNameToMetaVictims":{"a":{"NumPDBViolations":1,"Pods":[{"UID":"low-a"}]}"#;
    assert!(requests.contains(meta) && requests.contains(r#""NodeNameToVictims":null"#), "{requests}");
    let (_, requests) = screen(|config| config.node_cache_capable = false, Ok("{}")).await;
    let whole = r#""NodeNameToVictims":{"a":{"NumPDBViolations":1,"Pods":[{"metadata":{"name":"low-a""#;
    assert!(requests.contains(whole) && requests.contains(r#""NodeNameToMetaVictims":null"#), "{requests}");
}
