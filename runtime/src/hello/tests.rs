use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http::{Server, below, connection, parse};
use super::options::{Mode, Options, read};

#[test]
fn arguments() {
    let serve = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Ok(Mode::Serve(options))
    };
    let cases: &[(&str, Result<Mode, &str>)] = &[
        ("", serve(|_| {})),
        ("--port 90", serve(|options| options.port = Some(90))),
        ("--port=90 --fail", serve(|options| (options.port, options.fail) = (Some(90), true))),
        (
            "--tcp-echo 1 --tcp-echo 2 --udp-echo 3",
            serve(|options| {
                (options.tcp_echo, options.udp_echo) = (vec![1, 2], vec![3]);
            }),
        ),
        ("sleep 1.5", Ok(Mode::Sleep(1.5))),
        ("sleep infinity", Ok(Mode::Sleep(4_294_967_295.0))),
        ("exit 7", Ok(Mode::Exit(7))),
        ("--help", Ok(Mode::Help)),
        ("sleep", Err("one number")),
        ("sleep -1", Err("not a number")),
        ("sleep nan", Err("not a number")),
        ("exit 256", Err("not a code")),
        ("--port", Err("needs a value")),
        ("--port x", Err("not a port")),
        ("--no-http", Err("needs --tcp-echo")),
        ("--fail=1", Err("unknown argument")),
        ("--what", Err("unknown argument")),
        ("8080", Err("unknown argument")),
    ];
    for (text, expected) in cases {
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match (read(&args), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, *expected, "{text}"),
            (Err(why), Err(expected)) => assert!(why.to_string().contains(expected), "{text}: {why}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn parses_request_heads() {
    let cases: &[(&str, Result<usize, &str>)] = &[
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", Ok(0)),
        ("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\n", Ok(5)),
        ("GET /\r\n\r\n", Err("400")),
        ("GET / x HTTP/1.1\r\n\r\n", Err("400")),
        ("GET / HTTP/2\r\n\r\n", Err("505")),
        ("GET / HTTP/1.1\r\nnonsense\r\n\r\n", Err("400")),
        ("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", Err("400")),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", Err("413")),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Err("411")),
    ];
    for (text, expected) in cases {
        match (parse(text.as_bytes()), expected) {
            (Ok((_, length)), Ok(expected)) => assert_eq!(length, *expected, "{text:?}"),
            (Err(invalid), Err(expected)) => assert!(invalid.to_string().starts_with(expected), "{text:?}: {invalid}"),
            (found, _) => panic!("{text:?}: {found:?}"),
        }
    }
}

#[test]
fn files_stay_below_their_root() {
    let cases =
        [("/a/b", Some("/srv/a/b")), ("", Some("/srv")), ("//etc", Some("/srv/etc")), ("/a/../b", None), ("/..", None)];
    for (inner, expected) in cases {
        assert_eq!(below(Path::new("/srv"), inner).as_deref(), expected.map(Path::new), "{inner}");
    }
}

/// Sends bytes over one connection and reads the whole response.
async fn talk(options: &Options, bytes: &str) -> String {
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(connection(far, Server::new(options)));
    near.write_all(bytes.as_bytes()).await.unwrap();
    near.shutdown().await.unwrap();
    let mut response = String::new();
    near.read_to_string(&mut response).await.unwrap();
    served.await.unwrap();
    response
}

#[tokio::test]
async fn reports_its_pod() {
    let response = talk(&Options::default(), "GET / HTTP/1.1\r\nX-Mark: seen\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("Hello from "), "{response}");
    assert!(response.contains("X-Mark: seen\n") && response.contains("\nPATH="), "{response}");
}

#[tokio::test]
async fn serves_two_requests_on_one_connection() {
    let body = "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
    let response =
        talk(&Options::default(), &format!("{body}GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")).await;
    assert!(response.contains("\r\n\r\nabcHTTP/1.1 200 OK\r\n") && response.ends_with("ok\n"), "{response}");
}

#[tokio::test]
async fn failing_health_and_missing_paths() {
    let failing = Options { fail: true, ..Options::default() };
    let cases = [
        ("GET /healthz HTTP/1.1\r\n\r\n", "500"),
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        ("DELETE / HTTP/1.1\r\n\r\n", "405"),
        ("POST /exit?code=900 HTTP/1.1\r\n\r\n", "400"),
        ("GET /files/../etc HTTP/1.1\r\n\r\n", "400"),
        ("GET /files/%2e%2e/etc HTTP/1.1\r\n\r\n", "400"),
        ("GET /files/no/such HTTP/1.1\r\n\r\n", "404"),
        ("GET /filesystem HTTP/1.1\r\n\r\n", "404"),
    ];
    for (request, status) in cases {
        let response = talk(&failing, request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
    }
}

#[tokio::test]
async fn serves_files_and_directories() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a b"), "content").unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    let options = Options { files: directory.path().to_owned(), ..Options::default() };
    assert!(talk(&options, "GET /files/a%20b HTTP/1.1\r\n\r\n").await.ends_with("\r\n\r\ncontent"));
    assert!(talk(&options, "GET /files/ HTTP/1.1\r\n\r\n").await.ends_with("a b\ninner/\n"));
    let head = talk(&options, "HEAD /files/a%20b HTTP/1.1\r\n\r\n").await;
    assert!(head.contains("Content-Length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}
