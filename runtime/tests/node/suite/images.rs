//! Calls about images.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::{
    AuthConfig, Image, ImageFilter, ImageFsInfoRequest, ImageFsInfoResponse, ImageService, ImageSpec,
    ImageStatusRequest, ListImagesRequest, RemoveImageRequest, StreamImagesRequest,
};
use tokio_stream::StreamExt;

use super::{Suite, cases, code, password};

cases! {
    "PullImage: by tag, with a password" => by_tag, "an id, test/busybox:1, test/busybox@sha256";
    "PullImage: by digest" => by_digest, "the same id";
    "PullImage: with encoded credentials" => encoded, "ok";
    "PullImage: a wrong password" => wrong_password, "Unknown";
    "PullImage: without a password" => no_password, "Unknown";
    "PullImage: a tag that does not exist" => no_tag, "NotFound";
    "PullImage: a registry that does not exist" => no_registry, "refused";
    "PullImage: an invalid reference" => no_reference, "refused";
    "PullImage: without a name" => no_name, "refused";
    "ImageStatus: by tag, id and digest" => three_names, "tag 1, id 1, short id 1, digest 1";
    "ImageStatus: reflects the image's config" => shown, "web, no uid, more than 100000 bytes, not pinned";
    "ImageStatus: unknown ID" => unknown, "empty";
    "ImageStatus: more with verbose" => verbose, "0, some";
    "ListImages: one, all and none" => listed, "one: itself, another: none, all: some";
    "StreamImages: streams the list" => streamed, "1";
    "RemoveImage: twice" => removed, "ok, ok, empty";
    "RemoveImage: unknown ID" => remove_unknown, "ok";
    "RemoveImage: an id takes all its names" => remove_by_id, "two names, ok, empty, empty";
    "ImageFsInfo: mount point and usage" => filesystem, "images 1 some, containers 1";
}

fn named(name: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: name.into(), ..Default::default() })
}

async fn status(suite: &Suite, name: &str) -> Option<Image> {
    let request = ImageStatusRequest { image: named(name), verbose: false };
    suite.node.images.image_status(request).await.unwrap().image
}

async fn by_tag(suite: Arc<Suite>) -> String {
    let id = suite.pull(&suite.image(), password("secret")).await.unwrap();
    let image = status(&suite, &suite.image()).await.unwrap();
    let is_id = id == image.id && id.len() == 71 && id.starts_with("sha256:");
    let prefix = suite.registry.name("");
    let tag = image.repo_tags.iter().find(|tag| tag.contains("test/")).unwrap().replace(&prefix, "");
    let digest = image.repo_digests.iter().find(|digest| digest.contains("test/")).unwrap().replace(&prefix, "");
    format!("{}, {tag}, {}", if is_id { "an id" } else { &id }, digest.split(':').next().unwrap())
}

async fn by_digest(suite: Arc<Suite>) -> String {
    let id = suite.pull(&suite.own_image("digest"), password("secret")).await.unwrap();
    let image = status(&suite, &id).await.unwrap();
    let digest = image.repo_digests.iter().find(|digest| digest.contains("own/digest")).unwrap();
    let pulled = suite.pull(digest, password("secret")).await.unwrap();
    let found = status(&suite, digest).await.is_some_and(|found| found.id == id);
    if pulled == id && found { "the same id".into() } else { pulled }
}

async fn encoded(suite: Arc<Suite>) -> String {
    // `user:secret`.
    let auth = AuthConfig { auth: "dXNlcjpzZWNyZXQ=".into(), ..Default::default() };
    code(&suite.pull(&suite.image(), Some(auth)).await)
}

async fn wrong_password(suite: Arc<Suite>) -> String {
    code(&suite.pull(&suite.image(), password("wrong")).await)
}

async fn no_password(suite: Arc<Suite>) -> String {
    code(&suite.pull(&suite.image(), None).await)
}

async fn no_tag(suite: Arc<Suite>) -> String {
    code(&suite.pull(&suite.registry.name("test/busybox:none"), password("secret")).await)
}

async fn refused(suite: &Suite, name: &str) -> String {
    suite.pull(name, None).await.map_or("refused".into(), |id| id)
}

async fn no_registry(suite: Arc<Suite>) -> String {
    refused(&suite, "127.0.0.1:1/test/busybox:1").await
}

async fn no_reference(suite: Arc<Suite>) -> String {
    refused(&suite, "Not An Image").await
}

async fn no_name(suite: Arc<Suite>) -> String {
    refused(&suite, "").await
}

async fn three_names(suite: Arc<Suite>) -> String {
    let image = status(&suite, &suite.image()).await.unwrap();
    let digest = image.repo_digests.iter().find(|digest| digest.contains("test/")).unwrap().clone();
    let names = [
        ("tag", suite.image()),
        ("id", image.id.clone()),
        ("short id", image.id["sha256:".len()..][..13].to_string()),
        ("digest", digest),
    ];
    let mut results = Vec::new();
    for (kind, name) in names {
        let found = status(&suite, &name).await.is_some_and(|found| found.id == image.id);
        results.push(format!("{kind} {}", u8::from(found)));
    }
    results.join(", ")
}

async fn shown(suite: Arc<Suite>) -> String {
    let image = status(&suite, &suite.image()).await.unwrap();
    format!(
        "{}, {}, {} than 100000 bytes, {}",
        image.username,
        image.uid.map_or("no uid".into(), |uid| uid.value.to_string()),
        if image.size > 100_000 { "more" } else { "less" },
        if image.pinned { "pinned" } else { "not pinned" },
    )
}

fn presence(image: Option<Image>) -> String {
    image.map_or("empty".into(), |image| image.id)
}

async fn unknown(suite: Arc<Suite>) -> String {
    presence(status(&suite, &suite.registry.name("test/none:1")).await)
}

async fn verbose(suite: Arc<Suite>) -> String {
    let request = |verbose| ImageStatusRequest { image: named(&suite.image()), verbose };
    let plain = suite.node.images.image_status(request(false)).await.unwrap().info;
    let more = suite.node.images.image_status(request(true)).await.unwrap().info;
    format!("{}, {}", plain.len(), if more.is_empty() { "none" } else { "some" })
}

fn filter(name: &str) -> Option<ImageFilter> {
    Some(ImageFilter { image: named(name) })
}

async fn listed(suite: Arc<Suite>) -> String {
    let list = async |filter| suite.node.images.list_images(ListImagesRequest { filter }).await.unwrap().images;
    let alone = |images: &[Image]| matches!(images, [image] if image.repo_tags.contains(&suite.image()));
    let one = if alone(&list(filter(&suite.image())).await) { "itself" } else { "others too" };
    let amount = |images: &[Image]| if images.is_empty() { "none" } else { "some" };
    let other = list(filter(&suite.registry.name("no/such:1"))).await;
    format!("one: {one}, another: {}, all: {}", amount(&other), amount(&list(None).await))
}

async fn streamed(suite: Arc<Suite>) -> String {
    let request = StreamImagesRequest { filter: filter(&suite.image()) };
    let mut answers = match suite.node.images.stream_images(request).await {
        Ok(answers) => answers,
        refused => return code(&refused),
    };
    let mut count = 0;
    while let Some(answer) = answers.next().await {
        count += answer.unwrap().images.len();
    }
    count.to_string()
}

async fn remove(suite: &Suite, name: &str) -> String {
    code(&suite.node.images.remove_image(RemoveImageRequest { image: named(name) }).await)
}

/// A separate image: removing an image by its ID removes all its names.
async fn removed(suite: Arc<Suite>) -> String {
    let name = suite.registry.name("lone/remove:1");
    suite.pull(&name, password("secret")).await.unwrap();
    let both = [remove(&suite, &name).await, remove(&suite, &name).await].join(", ");
    format!("{both}, {}", presence(status(&suite, &name).await))
}

async fn remove_unknown(suite: Arc<Suite>) -> String {
    remove(&suite, &suite.registry.name("test/none:1")).await
}

async fn remove_by_id(suite: Arc<Suite>) -> String {
    let names = ["a", "b"].map(|tag| suite.registry.name(&format!("lone/names:{tag}")));
    let mut id = String::new();
    for name in &names {
        id = suite.pull(name, password("secret")).await.unwrap();
    }
    let known = status(&suite, &id).await.unwrap().repo_tags.len();
    let gone = remove(&suite, &id).await;
    let [a, b] = [&names[0], &names[1]].map(|name| status(&suite, name));
    let known = if known == 2 { "two names".into() } else { known.to_string() };
    format!("{known}, {gone}, {}, {}", presence(a.await), presence(b.await))
}

async fn filesystem(suite: Arc<Suite>) -> String {
    let mut info = suite.node.images.image_fs_info(ImageFsInfoRequest {}).await.unwrap();
    let uses = |info: &ImageFsInfoResponse| {
        info.image_filesystems.iter().filter_map(|fs| fs.used_bytes.as_ref()).any(|bytes| bytes.value > 0)
    };
    // containerd updates it every ten seconds.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !uses(&info) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        info = suite.node.images.image_fs_info(ImageFsInfoRequest {}).await.unwrap();
    }
    let used = uses(&info);
    let amount = if used { "some" } else { "none" };
    format!("images {} {amount}, containers {}", info.image_filesystems.len(), info.container_filesystems.len())
}
