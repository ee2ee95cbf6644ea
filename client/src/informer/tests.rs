use std::collections::VecDeque;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use stdx::sync::Mutex;

use super::*;
use crate::{Body, ResponseFuture, Transport};

/// A server with scripted responses that records the requests.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u16, String)>>,
    asked: Mutex<Vec<String>>,
}

impl Transport for Arc<Script> {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        self.asked.lock().push(request.uri().to_string());
        let answer = self.answers.lock().pop_front();
        Box::pin(async move {
            // After the script nothing happens.
            let Some((code, body)) = answer.filter(|(code, _)| *code != HANGS) else {
                return std::future::pending().await;
            };
            let mut response = Response::new(Body::new(Full::new(Bytes::from(body))));
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
            Ok(response)
        })
    }
}

/// The code of a response that never arrives.
const HANGS: u16 = 0;

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn list(version: u32, more: &str, objects: &[(&str, u32)]) -> (u16, String) {
    let items: Vec<String> = objects.iter().map(|(name, version)| object(name, *version)).collect();
    let items = items.join(",");
    (200, format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{more}"}},"items":[{items}]}}"#))
}

fn events(events: &[(&str, &str, u32)]) -> (u16, String) {
    let line = |(kind, name, version): &(&str, &str, u32)| {
        format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(name, *version))
    };
    (200, events.iter().map(line).collect())
}

fn expired() -> (u16, String) {
    (410, r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#.to_string())
}

/// Runs an informer through a script; returns the changes and the requests.
async fn run(answers: Vec<(u16, String)>) -> (String, Vec<String>) {
    let count = answers.len();
    let script = Arc::new(Script { answers: Mutex::new(answers.into()), ..Script::default() });
    let client = Client::new(Arc::new(script.clone()), "test");
    let selection = Selection { resource: Resource::core("things"), query: "" };
    let informer = Arc::new(Informer::new(client, selection, Arc::default(), Arc::new(Random::seeded(1))));
    let told = Arc::new(Mutex::new(String::new()));
    informer.on_change({
        let told = told.clone();
        move |change| {
            let mark = match (&change.old, &change.new) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            told.lock().push_str(&format!("{mark}{} ", change.key));
        }
    });
    let until_asked = async {
        while script.asked.lock().len() <= count {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = informer.run() => {}
        () = until_asked => {}
    }
    let asked = std::mem::take(&mut *script.asked.lock());
    (told.lock().clone(), asked)
}

#[tokio::test(start_paused = true)]
async fn lists_in_pages_then_watches() {
    let (told, asked) = run(vec![
        list(5, "next", &[("a", 1)]),
        list(5, "", &[("b", 2)]),
        events(&[("ADDED", "c", 6), ("MODIFIED", "a", 7), ("DELETED", "b", 8), ("BOOKMARK", "", 9)]),
    ])
    .await;
    assert_eq!(told, "+a +b +c ~a -b ");
    assert!(asked[1].contains("continue=next"), "{asked:?}");
    assert!(asked[2].contains("watch=true") && asked[2].contains("resourceVersion=5"), "{asked:?}");
    assert!(asked[3].contains("resourceVersion=9"), "it resumes behind the bookmark: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn deletions_are_reported_exactly_once() {
    let (told, asked) = run(vec![
        list(5, "", &[("a", 1), ("b", 2)]),
        // The watch breaks, and the server no longer has the next events.
        events(&[("DELETED", "a", 6)]),
        expired(),
        list(20, "", &[("c", 12)]),
        // Repeated events are ignored.
        events(&[("DELETED", "b", 21), ("ADDED", "c", 12)]),
    ])
    .await;
    assert_eq!(told, "+a +b -a +c -b ");
    assert!(!asked[3].contains("watch"), "after 410 it lists: {asked:?}");
    assert!(asked[4].contains("resourceVersion=20"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried() {
    let error = || (500, r#"{"kind":"Status","code":500,"message":"no"}"#.to_string());
    let in_stream = (200, format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", expired().1));
    let (told, asked) = run(vec![
        error(),
        list(5, "", &[("a", 1)]),
        error(),
        // A watch that ends at once, and one that reports its end as an event.
        (200, String::new()),
        in_stream,
        list(9, "", &[("a", 8)]),
    ])
    .await;
    assert_eq!(told, "+a ~a ");
    let watches: Vec<bool> = asked.iter().map(|path| path.contains("watch=true")).collect();
    assert_eq!(watches, [false, false, true, true, true, false, true]);
}

#[test]
fn selections_match_writes() {
    let check = |query: &'static str, key: &str, label: &str, want: bool| {
        let selection = Selection { resource: Resource::core("pods"), query };
        let mut labels = api::Map::new();
        labels.insert("app", label);
        let writes =
            WriteRecord { resource: selection.resource, key: key.into(), labels, mark: WriteMark::Revision(1) };
        assert_eq!(selection.covers(&writes), want, "{query} {key} {label}");
    };
    check("", "a/x", "", true);
    check("fieldSelector=metadata.name%3Dx", "a/x", "", true);
    check("fieldSelector=metadata.name%3Dx", "a/y", "", false);
    check("labelSelector=app%3Dweb", "a/y", "web", true);
    check("labelSelector=app%3Dweb&fieldSelector=metadata.namespace%3Da", "b/y", "web", false);
    check("labelSelector=app", "a/y", "any", true);
    check("fieldSelector=spec.nodeName%3Dn", "a/y", "", false);
}

#[tokio::test(start_paused = true)]
async fn late_handlers_receive_all_objects() {
    let store = Arc::new(Store::default());
    let script = Arc::new(Script::default());
    let client = Client::new(Arc::new(script), "test");
    let selection = Selection::all(Resource::core("things"));
    let informer = Informer::new(client, selection, store.clone(), Arc::new(Random::seeded(1)));
    store.put(Bytes::from(object("a", 1)));
    let (told, heard) = std::sync::mpsc::channel();
    informer.on_change(move |change| told.send((change.key.clone(), change.old.is_none())).expect("a listener"));
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [("a".into(), true)]);
}

fn error(code: u16) -> (u16, String) {
    (code, format!(r#"{{"kind":"Status","code":{code},"message":"no"}}"#))
}

#[tokio::test(start_paused = true)]
async fn retries_hanging_servers() {
    let hangs = || (HANGS, String::new());
    let (told, asked) = run(vec![hangs(), list(5, "", &[("a", 1)]), hangs(), events(&[("ADDED", "b", 6)])]).await;
    assert_eq!(told, "+a +b ");
    assert!(asked[2].contains("watch=true") && asked[3].contains("watch=true"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn resumes_broken_watches() {
    let (told, asked) = run(vec![
        list(5, "", &[("a", 1)]),
        // The last line is incomplete: the connection was cut.
        (200, format!("{}{}", events(&[("MODIFIED", "a", 6)]).1, "{\"type\":\"DELETED\",\"obj")),
        events(&[("DELETED", "a", 7)]),
    ])
    .await;
    assert_eq!(told, "+a ~a -a ");
    assert!(asked[2].contains("resourceVersion=6"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn relists_after_a_server_restore() {
    // After a restore the server has a lower version than the informer.
    let (told, asked) = run(vec![
        list(50, "", &[("a", 40), ("b", 41)]),
        error(410),
        list(9, "", &[("a", 3)]),
        events(&[("MODIFIED", "a", 10)]),
    ])
    .await;
    assert_eq!(told, "+a +b ~a -b ~a ");
    assert!(asked[3].contains("resourceVersion=9"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_in_a_hot_loop() {
    let check = async |what: &str, answers: Vec<(u16, String)>| {
        let started = Instant::now();
        let (_, asked) = run(answers).await;
        let seconds = started.elapsed().as_secs();
        // The backoff doubles up to half a minute.
        assert!(seconds > 20 * (asked.len() as u64 - 10), "{what}: {} requests in {seconds} s", asked.len());
    };
    check("refused for want of seats", (0..30).map(|_| error(429)).collect()).await;
    check("broken", (0..30).map(|_| error(500)).collect()).await;
    let mut ends = vec![list(5, "", &[])];
    ends.extend((0..30).map(|_| (200, String::new())));
    check("watches that end at once", ends).await;
    let gone = (0..30).flat_map(|at| [list(5 + at, "", &[]), error(410)]);
    check("versions that expire at once", gone.collect()).await;
    check("no JSON", (0..30).map(|_| (200, "<html>".to_string())).collect()).await;
}
