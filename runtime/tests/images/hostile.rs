//! Registries that send wrong data, break off and send too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::images::{Digest, Error, NoProgress};
use serde_json::json;

use crate::server::{Content, Request, Response, Server, architecture};
use crate::support::{ProgressRecorder, Store, gzip, noise, tar};

fn content() -> Content {
    Content::plain(&[tar(&[("a", &noise(200_000))]), tar(&[("b", b"2")])])
}

/// A server with correct responses, except for requests of the first layer.
async fn odd(content: &Content, layer: impl Fn(&Request, &[u8], usize) -> Response + Send + Sync + 'static) -> Server {
    let (content, count) = (content.clone(), AtomicUsize::new(0));
    Server::start(move |request| {
        if !request.path.contains(&content.layers[0]) {
            return content.answer(request);
        }
        let blob = &content.blobs[&content.layers[0]];
        layer(request, blob, count.fetch_add(1, Ordering::Relaxed))
    })
    .await
}

/// The response for a layer: from the request, the layer, and the number of earlier requests.
type Layer = fn(&Request, &[u8], usize) -> Response;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continues_interrupted_transfers() {
    let content = content();
    // The behaviour of the server.
    let cases: &[(&str, Layer)] = &[
        ("breaks off twice", |request, blob, count| match (request.range(), count) {
            (from, 0 | 1) => Response::part_or_whole(blob, from).cut(50_000),
            (from, _) => Response::part_or_whole(blob, from),
        }),
        ("cannot do ranges", |_, blob, count| match count {
            0 => Response::of(200, blob).cut(50_000),
            _ => Response::of(200, blob),
        }),
        ("does not like the range", |request, blob, count| match (request.range(), count) {
            (_, 0) => Response::of(200, blob).cut(50_000),
            (Some(_), _) => Response::of(416, ""),
            (None, _) => Response::of(200, blob),
        }),
        ("answers a range from the start", |_, blob, count| match count {
            0 => Response::of(200, blob).cut(50_000),
            _ => Response::part(blob, 0),
        }),
        ("is overloaded", |_, blob, count| match count {
            0 => Response::of(429, "").with("Retry-After", "0"),
            1 => Response::of(503, ""),
            _ => Response::of(200, blob),
        }),
        ("is slow to begin", |_, blob, count| match count {
            0..4 => Response::of(200, blob).cut(0),
            _ => Response::of(200, blob),
        }),
    ];
    for (name, layer) in cases {
        let server = odd(&content, *layer).await;
        let store = Store::new();
        let id = store.images.pull(&server.name("a:1"), None, &NoProgress).await;
        assert_eq!(id.unwrap_or_else(|error| panic!("{name}: {error}")), content.id);
        assert_eq!(store.unfinished(), 0, "{name}");
    }
}

impl Response {
    fn part_or_whole(blob: &[u8], from: Option<usize>) -> Response {
        from.map_or_else(|| Response::of(200, blob), |from| Response::part(blob, from))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_the_rest_after_an_interruption() {
    let content = content();
    let server = odd(&content, |request, blob, count| {
        let answer = Response::part_or_whole(blob, request.range());
        if count < 3 { answer.cut(50_000) } else { answer }
    })
    .await;
    let recorder = ProgressRecorder::default();
    Store::new().images.pull(&server.name("a:1"), None, &recorder).await.unwrap();
    let ranges: Vec<Option<usize>> =
        server.seen().iter().filter(|request| request.path.contains(&content.layers[0])).map(Request::range).collect();
    assert_eq!(ranges, [None, Some(50_000), Some(100_000), Some(150_000)]);
    assert_eq!(recorder.bytes.lock()[&content.layers[0]], content.blobs[&content.layers[0]].len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detects_wrong_blobs() {
    let content = content();
    let cases: &[(&str, Layer, &str)] = &[
        ("other bytes", |_, blob, _| Response::of(200, vec![7; blob.len()]), "expected digest"),
        (
            "other bytes at the end",
            |request, blob, count| match (request.range(), count) {
                (None, 0) => Response::of(200, blob).cut(50_000),
                (Some(from), _) => Response::part(&vec![0; blob.len()], from),
                (None, _) => Response::of(200, blob),
            },
            "expected digest",
        ),
        ("fewer", |_, blob, _| Response::of(200, &blob[..100]), "has 100 bytes"),
        ("more", |_, blob, _| Response::of(200, [blob, b"x"].concat()), "bytes of a blob of"),
        ("nothing, again and again", |_, blob, _| Response::of(200, blob).cut(0), "failed to reach"),
        (
            "another range",
            |request, blob, count| match (request.range(), count) {
                (_, 0) => Response::of(200, blob).cut(50_000),
                (from, _) => Response::part(blob, from.unwrap_or(0) + 1),
            },
            "another range",
        ),
        ("no such blob", |_, _, _| Response::of(404, ""), "has no"),
        (
            "forbidden",
            |_, _, _| Response::of(403, r#"{"errors":[{"message":"not \u001b[31myou"}]}"#),
            "not \\u{1b}[31myou",
        ),
        (
            "a redirect in circles",
            |request, _, _| Response::of(307, "").with("Location", &request.path),
            "more than 10 times",
        ),
        (
            "a redirect to nonsense",
            |_, _, _| Response::of(307, "").with("Location", "gopher://x"),
            "neither http nor https",
        ),
    ];
    for (name, layer, why) in cases {
        let server = odd(&content, *layer).await;
        let store = Store::new();
        let error = store.images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap_err();
        assert!(error.chain().contains(why), "{name}: {}", error.chain());
        assert!(store.images.list().is_empty(), "{name}");
        assert!(!store.names("blobs/sha256").iter().any(|hex| content.layers[0].ends_with(hex.as_str())), "{name}");
        crate::support::until(name, || store.unfinished() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_invalid_manifests() {
    let content = content();
    let good = content.clone();
    let digest = Digest::of(&content.manifest);
    let other = Digest::of(b"other");
    let bomb = format!("{{\"x\":\"{}\"", "y".repeat(5 << 20));
    let wrong_config = String::from_utf8(content.manifest.clone()).unwrap().replace(&content.id, other.as_str());
    let two = json!({"schemaVersion": 2, "manifests": [{"digest": digest, "size": 1, "platform":
        {"os": "windows", "architecture": architecture()}}, {"digest": digest, "size": 1, "platform":
        {"os": "linux", "architecture": "s390x"}}]});
    let cases: Vec<(&str, String, Response, &str)> = vec![
        (
            "another's digest",
            "a:1".into(),
            Response::of(200, content.manifest.clone()).with("Docker-Content-Digest", other.as_str()),
            "expected digest",
        ),
        ("by another digest", format!("a@{other}"), Response::of(200, content.manifest.clone()), "expected digest"),
        ("endless", "a:1".into(), Response::of(200, bomb), "larger than"),
        ("a page", "a:1".into(), Response::of(200, "<html>"), "invalid manifest"),
        ("first schema", "a:1".into(), Response::of(200, r#"{"schemaVersion":1,"fsLayers":[]}"#), "schema 1"),
        ("other machines", "a:1".into(), Response::of(200, two.to_string()), "linux/s390x, windows/"),
        ("no such configuration", "a:1".into(), Response::of(200, wrong_config), "has no"),
        ("an error", "a:1".into(), Response::of(500, ""), "failed to reach"),
        ("not there", "a:1".into(), Response::of(404, ""), "has no"),
        ("a teapot", "a:1".into(), Response::of(418, ""), "418"),
    ];
    for (name, reference, answer, why) in cases {
        let good = good.clone();
        let server = Server::start(move |request| match request.path.contains("/manifests/") {
            true => answer.clone(),
            false => good.answer(request),
        })
        .await;
        let store = Store::new();
        let error = store.images.pull(&server.name(&reference), None, &NoProgress).await.unwrap_err();
        assert!(error.chain().contains(why), "{name}: {}", error.chain());
        assert!(store.images.list().is_empty() && store.unfinished() == 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolves_an_index_to_the_image_for_this_machine() {
    let content = content();
    let digest = Digest::of(&content.manifest);
    let entry = |architecture: &str, digest: &Digest| json!({"digest": digest, "size": content.manifest.len(), "platform": {"os": "linux", "architecture": architecture}});
    let list = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry("s390x", &Digest::of(b"x")), entry(architecture(), &digest)]});
    let list = serde_json::to_vec(&list).unwrap();
    let target = Digest::of(&list);
    let (own, wanted) = (content.clone(), digest.to_string());
    let server = Server::start(move |request| {
        let of_list = request.path.contains("/manifests/") && !request.path.ends_with(&wanted);
        if of_list { Response::of(200, list.clone()) } else { own.answer(request) }
    })
    .await;
    let store = Store::new();
    let id = store.images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap();
    assert_eq!(id, content.id);
    let image = store.images.get(&id).unwrap();
    assert_eq!(image.repo_digests, [server.name(&format!("a@{target}"))], "the digest is the list's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_invalid_layers() {
    let plain = tar(&[("a", b"1")]);
    let zeros = tar(&[("zeros", &vec![0; 64 << 20])]);
    let cases: Vec<(&str, Content, &str)> = vec![
        ("other content", Content::of(&[(gzip(&plain), b"other".to_vec())]), "expected digest"),
        ("a bomb", Content::of(&[(gzip(&zeros), zeros.clone())]), "bytes when unpacked"),
        ("no archive", Content::plain(&[vec![7; 2000]]), "damaged"),
        ("climbing", Content::plain(&[tar(&[("../../escaped", b"x")])]), "`..`"),
        ("cut", Content::of(&[(gzip(&plain)[..40].to_vec(), plain.clone())]), "failed to read"),
    ];
    for (name, content, why) in cases {
        let own = content.clone();
        let server = Server::start(move |request| own.answer(request)).await;
        let store = Store::with(|options| {
            options.limits.free_bytes = 1 << 20;
            // The achieved compression of zeros depends on the compressor.
            options.limits.ratio = 20;
        });
        let error = store.images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap_err();
        assert!(matches!(error, Error::Layer { .. }) && error.chain().contains(why), "{name}: {}", error.chain());
        assert!(store.images.list().is_empty() && store.names("layers") == ["empty"], "{name}");
        assert_eq!(store.unfinished(), 0, "{name}");
        assert!(!store.path().join("escaped").exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_pulls_download_each_blob_once() {
    let content = content();
    let own = content.clone();
    let server = Arc::new(Server::start(move |request| own.answer(request)).await);
    let store = Store::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..10 {
        let (images, name) = (store.images.clone(), server.name(&format!("a:{number}")));
        tasks.spawn(async move { images.pull(&name, None, &NoProgress).await });
    }
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.unwrap().unwrap(), content.id);
    }
    for layer in &content.layers {
        assert_eq!(server.count(layer), 1);
    }
    assert_eq!(store.images.get(&content.id).unwrap().repo_tags.len(), 10);
}
