//! HTTP requests, to a server that records them.

use stdx::sync::Mutex;

use api::yaml;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// The received requests, and the response of each path: a status line and headers, or the body of a 200.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str, u16) -> String + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let length = socket.read(&mut bytes).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_string();
                seen.lock().push(text);
                let _ = socket.write_all(answer(&path, port).as_bytes()).await;
            }
        });
        Server { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// The outcome of an `httpGet`.
    async fn check_health(&self, get: &str) -> Outcome {
        // The runtime is not called.
        let (service, images) = cri::connect(std::path::Path::new("/nowhere"));
        let runtime = Runtime { service: Arc::new(service), images: Arc::new(images) };
        let container = Tree::Null;
        let target = Target { runtime: &runtime, container_id: "c", address: "127.0.0.1", container: &container };
        let mut action = yaml::decode(format!("httpGet: {get}").as_bytes()).expect("an action");
        action.child("httpGet").set("port", i64::from(self.port));
        run(&action, &target, Duration::from_secs(10), "kube-probe/1.37").await
    }
}

fn good(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 4\r\n\r\naway")
}

#[tokio::test]
async fn follows_redirects_on_the_same_host_only() {
    let server = Server::start(|path, port| match path {
        "/relative/a" => moved("login"),
        "/port" => moved(&format!("http://127.0.0.1:{port}/relative/login")),
        "/other" => moved("http://localhost/"),
        "/round" => moved("/round"),
        "/bad" => moved("/missing"),
        "/unchanged" => "HTTP/1.1 304 Not Modified\r\n\r\n".to_string(),
        "/missing" => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_string(),
        "/relative/login" => good("hello"),
        _ => "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_string(),
    })
    .await;
    let warning = |body: &str| Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"));
    let failure = |code: u16| Outcome::Failure(format!("HTTP probe failed with statuscode: {code}"));
    let round = format!("Get \"http://127.0.0.1:{}/round\": stopped after 10 redirects", server.port);
    for (path, want) in [
        ("/relative/a", Outcome::Success),
        ("/port", Outcome::Success),
        ("/other", warning("away")),
        ("/unchanged", warning("")),
        ("/bad", failure(404)),
        ("/round", Outcome::Failure(round)),
    ] {
        assert_eq!(server.check_health(&format!("{{path: {path}}}")).await, want, "{path}");
    }
}

#[tokio::test]
async fn sends_escaped_paths() {
    let server = Server::start(|_, _| good("")).await;
    assert_eq!(server.check_health("{path: '/grüße und {x}?y=\"z\"'}").await, Outcome::Success);
    assert!(server.asked()[0].starts_with("GET /gr%C3%BC%C3%9Fe%20und%20%7Bx%7D?y=%22z%22 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn pod_overrides_headers() {
    let server = Server::start(|path, _| if path == "/" { moved("/next") } else { good("") }).await;
    let own = format!("127.0.0.1:{}", server.port);
    let cases = [
        ("[]", vec![("host", own.as_str()), ("user-agent", "kube-probe/1.37"), ("accept", "*/*")]),
        (
            "[{name: host, value: a.example}, {name: User-Agent, value: me}, {name: ACCEPT, value: text/plain}, {name: X-A, value: b}]",
            vec![("host", "a.example"), ("user-agent", "me"), ("accept", "text/plain"), ("x-a", "b")],
        ),
        ("[{name: Host}, {name: User-Agent}, {name: Accept}]", vec![("host", own.as_str())]),
    ];
    for (headers, want) in cases {
        assert_eq!(
            server.check_health(&format!("{{path: /, httpHeaders: {headers}}}")).await,
            Outcome::Success,
            "{headers}"
        );
        let asked = server.asked();
        // The redirect names no host: the next request has the same Host header.
        for text in &asked[asked.len() - 2..] {
            let lines = text.lines().skip(1).filter_map(|line| line.split_once(": "));
            let mut sent: Vec<(&str, &str)> = lines.filter(|(name, _)| *name != "connection").collect();
            let mut want = want.clone();
            sent.sort_unstable();
            want.sort_unstable();
            assert_eq!(sent, want, "{headers}");
        }
    }
}
