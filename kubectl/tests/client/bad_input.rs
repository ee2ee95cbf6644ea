//! Bad files, bad kubeconfigs, and servers that do not do what servers should.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::support::{Reply, User, Web, discovery, json, pki, response};

#[test]
fn syntax_errors_have_a_line_and_a_column() {
    let user = User::new();
    user.kubeconfig("http://127.0.0.1:1", "");
    let check = |text: &str, want: &str| {
        let path = user.write("file", text);
        user.fails("create -f file", want);
        user.fails(&format!("apply -f {path}"), want);
    };
    check(
        "a: 1\nb: c: d\n",
        "yaml: line 2: mapping values are not allowed in this context (line 2, column 5 of the file)",
    );
    check("a: 1\n---\nb: 1\n---\nc:\n  d: [\n", "(line 6, column 6 of the file)");
    check("{\"a\": 1,\n  \"b\" 2}", "invalid character '2' after object key (line 2, column 7)");
    check("{\"a\": 1}\n{\"b\" \"c\"}", "(line 2, column 6)");
    user.fails("create -f /nonexistent/file", "the path \"/nonexistent/file\" does not exist");
}

#[test]
fn kubeconfigs_that_cannot_be_read_are_named() {
    let user = User::new();
    let check = |line: &str, want: &str| user.fails(&format!("--kubeconfig={line} get pods"), want);
    check("/nonexistent/x", "stat /nonexistent/x: no such file or directory");
    let directory = user.home.path().to_string_lossy().into_owned();
    check(&directory, "is a directory");
    user.write("text", "a: b: c");
    check(
        "text",
        "error loading config file \"text\": yaml: mapping values are not allowed in this context (line 1, column 5)",
    );
    user.write("pod", "apiVersion: v1\nkind: Pod\n");
    check("pod", "no kind \"Pod\" is registered");
    user.write("cycle", "apiVersion: v1\nkind: Config\nclusters: &a\n- *a\n");
    check("cycle", "anchor value contains itself");
    symlink("loop-b", user.home.path().join("loop-a")).expect("a link");
    symlink("loop-a", user.home.path().join("loop-b")).expect("a link");
    check("loop-a", "error loading config file \"loop-a\"");
    let large = std::fs::File::create(user.home.path().join("large")).expect("a file");
    large.set_len(17 * 1024 * 1024).expect("a size");
    check("large", "the file is larger than");
    std::fs::write(user.home.path().join("bytes"), [0xff, 0xfe, 0x00]).expect("written");
    check("bytes", "error loading config file \"bytes\"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_everybody_can_read_are_warned_about() {
    let server = Web::start(|_| json("{}")).await;
    let user = User::new();
    let path = user.home.path().join(".kube/config");
    let config = |credentials: &str| {
        user.write(
            ".kube/config",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{{credentials}}}}}]\n",
                server.address
            ),
        )
    };
    let warns = |mode: u32| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let outcome = user.run("get --raw /");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.err.contains("every user of this machine can read it")
    };
    config("token: secret");
    assert!(warns(0o644));
    assert!(!warns(0o600));
    config("");
    assert!(!warns(0o644), "there is nothing to hide");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_servers_are_described() {
    let check = async |reply: fn() -> Reply, line: &str, want: &str| {
        let server = Web::start(move |_| reply()).await;
        let user = User::new();
        user.kubeconfig(&format!("http://{}", server.address), "");
        let started = Instant::now();
        user.fails(line, want);
        assert!(started.elapsed() < Duration::from_secs(20), "{line}");
    };
    let unable = "Unable to connect to the server: ";
    check(|| Reply::Close, "get pods", unable).await;
    check(|| Reply::Bytes(b"garbage\r\n\r\n".to_vec()), "get pods", unable).await;
    check(|| Reply::Stall(Vec::new()), "get pods --request-timeout=1s", "Client.Timeout exceeded").await;
    let stalled = || Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec());
    check(stalled, "get pods --request-timeout=1s", "imeout").await;
    let cut = || Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"a\":".to_vec());
    check(cut, "get --raw /x", "unexpected EOF").await;
    let page = || response("200 OK", "text/html", "<html>hello</html>");
    check(page, "get pods", "is a web page; is this the URL of a Kubernetes API server?").await;
    check(page, "version", "is a web page").await;
    let error = || response("502 Bad Gateway", "text/html", "<html>no</html>");
    check(error, "get pods", "Error from server").await;
    check(|| json("{\"kind\": "), "version", "json parse error").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_breaks_is_an_error() {
    let server = Web::start(|head| {
        discovery(head).unwrap_or_else(|| match head.contains("watch=true") {
            true => {
                Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"type\": nonsense\n".to_vec())
            }
            false => json(&crate::support::table(&["a"])),
        })
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let outcome = user.run("get pods --watch");
    assert!(outcome.code == Some(1) && outcome.out.contains("a\n") && !outcome.err.is_empty(), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_verified() {
    let (good, expired) = (pki(2100), pki(2020));
    let check = async |served: &crate::support::Pki, trusted: &str, flags: &str, want: &str| {
        let server = Web::start_tls(served, |_| json("{}")).await;
        let user = User::new();
        user.write(".kube/ca.crt", trusted);
        user.kubeconfig(&format!("https://{}", server.address), ", certificate-authority: ca.crt");
        let outcome = user.run(&format!("get --raw / {flags}"));
        assert_eq!(outcome.code, Some(i32::from(!want.is_empty())), "{outcome:?}");
        assert!(outcome.err.contains(want), "{outcome:?}");
        assert_eq!(server.requests().is_empty(), !want.is_empty(), "{want}");
    };
    check(&good, &good.ca, "", "").await;
    check(&expired, &expired.ca, "", "x509: certificate has expired or is not yet valid").await;
    check(&good, &expired.ca, "", "x509: certificate signed by unknown authority").await;
    check(&good, &good.ca, "--tls-server-name=other.example", "x509: certificate is not valid for").await;
    check(&good, &good.ca, "--tls-server-name=127.0.0.1", "").await;
    // What is no handshake is answered in plain text.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let user = User::new();
    user.kubeconfig(&format!("https://{}", plain.local_addr().expect("an address")), "");
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a client");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("it reads");
    });
    user.fails("get --raw /", "http: server gave HTTP response to HTTPS client");
}
