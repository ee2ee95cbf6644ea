use api::tree;

use super::*;

/// Answers each verb with a fixed text, and remembers what it was asked.
#[derive(Default)]
struct Fixed {
    answers: Vec<(&'static str, Result<&'static str, &'static str>)>,
    asked: Mutex<Vec<(String, String)>>,
}

impl Wire for Fixed {
    fn post<'a>(&'a self, _: &'a ExtenderConfig, verb: &'a str, body: Vec<u8>) -> Posting<'a> {
        let asked = (verb.to_string(), String::from_utf8_lossy(&body).into_owned());
        self.asked.lock().push(asked);
        let answer = self.answers.iter().find(|(known, _)| *known == verb).map(|(_, answer)| *answer);
        Box::pin(async move {
            answer.unwrap_or(Err("nobody is there")).map(|text| text.as_bytes().to_vec()).map_err(String::from)
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

async fn ask(
    extender: ExtenderConfig,
    answers: Vec<(&'static str, Result<&'static str, &'static str>)>,
) -> (Result<(), String>, Extenders, Arc<Fixed>) {
    let wire = Arc::new(Fixed { answers, ..Fixed::default() });
    let extenders = Extenders::new(vec![extender], wire.clone());
    let pod = crate::testing::pod("p");
    assert!(extenders.are_to_be_asked(&pod.pod()));
    let result = extenders.ask(&pod.pod(), &pod.0, &nodes()).await;
    (result, extenders, wire)
}

fn verdicts(extenders: &Extenders) -> Vec<(Option<(bool, String)>, i64)> {
    let answer = extenders.said().get("p").and_then(|said| said.nodes.clone()).expect("an answer");
    let of = |name: &str| (answer.refusal(name).map(|(last, why)| (last, why.to_string())), answer.score(name));
    ["a", "b", "c"].map(of).to_vec()
}

#[tokio::test]
async fn nodes_are_refused_and_rated() {
    let left = r#"{"nodenames":["a","b"],"failedNodes":{"c":"no licence"},"error":""}"#;
    let rated = r#"[{"Host":"a","Score":3},{"Host":"b","Score":10}]"#;
    let (result, extenders, wire) = ask(extender(false), vec![("filter", Ok(left)), ("rate", Ok(rated))]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(verdicts(&extenders), [(None, 60), (None, 200), (Some((false, "no licence".to_string())), 0)]);
    let asked = wire.asked.lock().clone();
    assert!(asked[0].1.contains(r#""NodeNames":["a","b","c"],"Nodes":null"#), "{}", asked[0].1);
    assert!(asked[1].1.contains(r#""NodeNames":["a","b"]"#), "{}", asked[1].1);
    let pod = crate::testing::pod("p").pod();
    assert!(!extenders.are_to_be_asked(&pod));
    extenders.forget(&pod);
    assert!(extenders.are_to_be_asked(&pod));
}

#[tokio::test]
async fn one_that_fails_is_passed_by_only_where_that_was_said() {
    let broken = vec![("filter", Err("timed out"))];
    let (result, ..) = ask(extender(false), broken.clone()).await;
    assert_eq!(result, Err("extender http://x: timed out".to_string()));
    let (result, extenders, _) = ask(extender(true), broken).await;
    assert_eq!(result, Ok(()));
    assert_eq!(verdicts(&extenders), [(None, 0), (None, 0), (None, 0)]);
    let (result, ..) = ask(extender(false), vec![("filter", Ok(r#"{"Error":"out of order"}"#))]).await;
    assert_eq!(result, Err("extender http://x: out of order".to_string()));
    let (result, ..) = ask(extender(false), vec![("filter", Ok(r#"{"NodeNames":["z"]}"#))]).await;
    assert!(result.is_err_and(|why| why.contains("was not asked about")));
}

#[tokio::test]
async fn managed_resources_say_whose_pods_matter() {
    let managed = crate::config::ManagedResource { name: "example.com/gpu".into(), is_ignored_by_scheduler: true };
    let config = ExtenderConfig { managed_resources: vec![managed], ..extender(false) };
    let extenders = Extenders::new(vec![config], Arc::new(Fixed::default()));
    let wants = crate::testing::pod("p").requests(tree! { "example.com/gpu" => "1" }).pod();
    assert!(extenders.are_to_be_asked(&wants));
    assert!(!extenders.are_to_be_asked(&crate::testing::pod("p").pod()));
}

/// A node with a pod of priority 1 and one of priority 9, which has to leave both for `p` of priority 5.
fn crowded() -> (crate::testing::World, Vec<Arc<Candidate>>) {
    let mut world = crate::testing::World::new();
    for name in ["a", "b"] {
        world.node(crate::testing::node(name));
        let on = |pod: &str, priority| crate::testing::pod(&format!("{pod}-{name}")).priority(priority).on(name);
        world.placed(on("low", 1));
        world.placed(on("lower", 0));
        world.placed(on("high", 9));
    }
    world.snapshot.settle();
    let candidate = |name: &str| {
        let node = world.snapshot.find(name).expect("the node");
        let victims = node.pods.iter().filter(|pod| pod.priority == 1).cloned().collect();
        Arc::new(Candidate { node: node.id, victims, violations: 1 })
    };
    let candidates = ["a", "b"].map(candidate).to_vec();
    (world, candidates)
}

/// Asks an extender about the rooms of two nodes: what is left, by node, or why nothing is; and what was asked.
async fn screen(
    change: impl FnOnce(&mut ExtenderConfig),
    answer: Result<&'static str, &'static str>,
) -> (Result<Vec<String>, String>, String) {
    let mut config = ExtenderConfig { preempt_verb: "preempt".to_string(), ..extender(false) };
    change(&mut config);
    let wire = Arc::new(Fixed { answers: vec![("preempt", answer)], ..Fixed::default() });
    let extenders = Extenders::new(vec![config], wire.clone());
    let (world, candidates) = crowded();
    let written = crate::testing::pod("p").priority(5);
    let pod = written.pod();
    let cycle = Cycle { snapshot: &world.snapshot, pod: &pod };
    let screened = extenders.screen(cycle, candidates.clone()).expect("nobody was asked yet");
    assert_eq!(screened, candidates);
    let rooms = extenders.question(&pod).expect("somebody is to be asked");
    extenders.ask_rooms(&pod, rooms, |pod| crate::testing::pod(&pod.name).0).await;
    let text = |candidate: &Arc<Candidate>| {
        let names: Vec<&str> = candidate.victims.iter().map(|victim| victim.name.as_str()).collect();
        format!("{} {}", names.join("+"), candidate.violations)
    };
    let left = extenders.screen(cycle, candidates).map(|left| left.iter().map(text).collect());
    assert!(extenders.question(&pod).is_none(), "it was asked");
    let asked = wire.asked.lock()[0].1.clone();
    (left, asked)
}

#[tokio::test]
async fn rooms_are_left_or_not() {
    let both = r#"{"nodeNameToMetaVictims":{"a":{"pods":[{"uid":"lower-a"}],"numPDBViolations":0},"b":{"Pods":[{"UID":"low-b"},{"UID":"lower-b"}],"NumPDBViolations":2}}}"#;
    let cases: [(&str, Result<&[&str], &str>); 7] = [
        (both, Ok(&["lower-a 0", "low-b+lower-b 2"])),
        (r#"{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"low-b"}],"NumPDBViolations":1}}}"#, Ok(&["low-b 1"])),
        ("{}", Ok(&[])),
        (r#"{"NodeNameToMetaVictims":{"c":{"Pods":[]}}}"#, Err("the answer has node \"c\", which was not asked about")),
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
    for (answer, want) in cases {
        let want = want.map(|left| left.iter().map(|one| one.to_string()).collect::<Vec<_>>());
        let want = want.map_err(|why| format!("extender http://x: {why}"));
        assert_eq!(screen(|_| {}, Ok(answer)).await.0, want, "{answer}");
    }
}

#[tokio::test]
async fn one_that_may_be_passed_by_leaves_all_rooms_where_it_fails() {
    let ignorable = |config: &mut ExtenderConfig| config.ignorable = true;
    let all = Ok(vec!["low-a 1".to_string(), "low-b 1".to_string()]);
    assert_eq!(screen(ignorable, Err("timed out")).await.0, all);
    assert_eq!(screen(|_| {}, Err("timed out")).await.0, Err("extender http://x: timed out".to_string()));
    let empty = r#"{"NodeNameToMetaVictims":{"a":{"Pods":[]},"b":{"Pods":[{"UID":"low-b"}]}}}"#;
    assert_eq!(screen(ignorable, Ok(empty)).await.0, Ok(vec!["low-b 0".to_string()]), "only the room goes");
}

#[tokio::test]
async fn whole_victims_are_shown_to_who_keeps_no_nodes() {
    let (_, asked) = screen(|_| {}, Ok("{}")).await;
    let meta = r#""NodeNameToMetaVictims":{"a":{"NumPDBViolations":1,"Pods":[{"UID":"low-a"}]}"#;
    assert!(asked.contains(meta) && asked.contains(r#""NodeNameToVictims":null"#), "{asked}");
    let (_, asked) = screen(|config| config.node_cache_capable = false, Ok("{}")).await;
    let whole = r#""NodeNameToVictims":{"a":{"NumPDBViolations":1,"Pods":[{"metadata":{"name":"low-a""#;
    assert!(asked.contains(whole) && asked.contains(r#""NodeNameToMetaVictims":null"#), "{asked}");
}
