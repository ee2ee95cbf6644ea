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
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
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
    let answer = extenders.answers().get("p").cloned().expect("an answer");
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
    let asked = wire.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
