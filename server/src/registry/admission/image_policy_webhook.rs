//! ImagePolicyWebhook: a webhook decides which images may run. Its responses are cached.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::status::Status;
use api::{Map, Tree, tree};
use stdx::sync::Mutex;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, PluginFuture, Settings};
use crate::outbound::callout;
use crate::outbound::callout::kubeconfig::{self, Remote};

const PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
const MAX_KEPT: usize = 1024;
const TRIES: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct ImagePolicy {
    remote: Remote,
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_backoff: Duration,
    default_allow: bool,
    kept: Mutex<HashMap<Vec<u8>, (Tree, Instant)>>,
}

/// Why the webhook returned no decision.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error("Error contacting webhook: {0}")]
    Code(u16),
    #[error(transparent)]
    Json(#[from] api::json::Error),
    #[error("the response is not an ImageReview")]
    NotReview,
}

/// Why the webhook denies the images of a pod.
#[derive(Debug, thiserror::Error)]
enum Denial {
    #[error("one or more images rejected by webhook backend")]
    Unexplained,
    #[error("image policy webhook backend denied one or more images: {0}")]
    Reason(String),
}

pub(super) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    source.only("", source.tree, &["imagePolicy"])?;
    let policy = source.tree.at("imagePolicy");
    let fields = ["kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"];
    source.only("imagePolicy", policy, &fields)?;
    let named = |error: FieldError| error.below("imagePolicy");
    let file = policy.str("kubeConfigFile");
    if file.is_empty() {
        return Err(named(FieldError::new("kubeConfigFile", "required")));
    }
    let unreadable = |error| named(FieldError::new("kubeConfigFile", error));
    let remote = kubeconfig::read(&source.beside(file)).map_err(unreadable)?;
    let time = |key: &str, unit, default, limits| duration(policy, key, unit, default, limits).map_err(named);
    let (second, half_hour) = (Duration::from_secs(1), Duration::from_secs(1800));
    settings.image_policy = Some(ImagePolicy {
        remote,
        allow_ttl: time("allowTTL", second, Duration::from_secs(300), (second, half_hour))?,
        deny_ttl: time("denyTTL", second, Duration::from_secs(30), (second, half_hour))?,
        retry_backoff: time(
            "retryBackoff",
            Duration::from_millis(1),
            Duration::from_millis(500),
            (Duration::from_millis(1), Duration::from_secs(300)),
        )?,
        default_allow: policy.bool("defaultAllow"),
        kept: Mutex::default(),
    });
    Ok(())
}

/// A duration in units; 0 selects the default, and -1 disables it.
fn duration(
    policy: &Tree,
    key: &str,
    unit: Duration,
    default: Duration,
    (min, max): (Duration, Duration),
) -> Result<Duration, FieldError> {
    let number = match policy.int(key).unwrap_or(0) {
        0 => return Ok(default),
        -1 => return Ok(Duration::ZERO),
        number => {
            u32::try_from(number).map_err(|_| FieldError::new(key, format_args!("{number} is not a valid duration")))?
        }
    };
    let given = unit.checked_mul(number).filter(|given| (min..=max).contains(given));
    given.ok_or_else(|| FieldError::new(key, format_args!("valid value is between {min:?} and {max:?}, got {number}")))
}

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    pod: Option<&'a Tree>,
    _: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let write = attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update);
    let pod = pod.filter(|_| write)?;
    let policy = attributes.registry.admission.settings.image_policy.as_ref()?;
    Some(Box::pin(call(attributes, policy, pod)))
}

async fn call(attributes: &Attributes<'_>, policy: &ImagePolicy, pod: &Tree) -> Result<(), Status> {
    let spec = spec(pod, attributes.namespace);
    let status = match policy.status(&spec).await {
        Ok(status) => status,
        Err(why) if policy.default_allow => {
            tracing::warn!(%why, "image policy webhook failed, allowing the pod");
            attributes.annotate(format!("{PREFIX}failed-open"), "true");
            return Ok(());
        }
        Err(why) => return Err(attributes.forbidden(&why)),
    };
    for (key, value) in status.map("auditAnnotations").iter() {
        attributes.annotate(format!("{PREFIX}{key}"), value.as_str().unwrap_or(""));
    }
    read_status(&status).map_err(|why| attributes.forbidden(&why))
}

fn read_status(status: &Tree) -> Result<(), Denial> {
    match (status.bool("allowed"), status.str("reason")) {
        (true, _) => Ok(()),
        (false, "") => Err(Denial::Unexplained),
        (false, reason) => Err(Denial::Reason(reason.to_string())),
    }
}

fn spec(pod: &Tree, namespace: &str) -> Tree {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod.at("spec").list(list));
    let images: Vec<Tree> = containers.map(|container| tree! { "image" => container.str("image") }).collect();
    let mut annotations: Map = pod.map("metadata.annotations").clone();
    annotations.retain(|key, _| key.contains(".image-policy.k8s.io/"));
    let mut spec = tree! { "containers" => images, "namespace" => namespace };
    if !annotations.is_empty() {
        spec.set("annotations", Tree::Map(annotations));
    }
    spec
}

impl ImagePolicy {
    async fn status(&self, spec: &Tree) -> Result<Tree, ReviewError> {
        let key = api::json::encode(spec, None);
        let now = Instant::now();
        if let Some(status) = self.cached_status(&key, now) {
            return Ok(status);
        }
        let review = tree! {
            "kind" => "ImageReview", "apiVersion" => "imagepolicy.k8s.io/v1alpha1", "spec" => spec.clone(),
        };
        let status = self.call(api::json::encode(&review, None)).await?;
        let ttl = if status.bool("allowed") { self.allow_ttl } else { self.deny_ttl };
        self.cache_status(key, status.clone(), now + ttl, now);
        Ok(status)
    }

    /// Calls the webhook; retries with backoff if it cannot be reached.
    async fn call(&self, body: Vec<u8>) -> Result<Tree, ReviewError> {
        let mut pause = self.retry_backoff;
        let mut attempt = 1;
        loop {
            let failure = match self.remote.client.post_json(&self.remote.url, body.clone(), TIMEOUT).await {
                Ok(response) if response.is_success() => return read(&response.body),
                Ok(response) if response.code < 500 && response.code != 429 => {
                    return Err(ReviewError::Code(response.code));
                }
                Ok(response) => ReviewError::Code(response.code),
                Err(error) => error.into(),
            };
            if attempt == TRIES {
                return Err(failure);
            }
            attempt += 1;
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.5);
        }
    }

    fn cached_status(&self, key: &[u8], now: Instant) -> Option<Tree> {
        let kept = self.kept.lock();
        kept.get(key).filter(|(_, until)| now < *until).map(|(status, _)| status.clone())
    }

    fn cache_status(&self, key: Vec<u8>, status: Tree, until: Instant, now: Instant) {
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (_, until)| now < *until);
        }
        if kept.len() < MAX_KEPT && now < until {
            kept.insert(key, (status, until));
        }
    }
}

fn read(body: &[u8]) -> Result<Tree, ReviewError> {
    let review = api::json::decode(body)?;
    if review.str("kind") != "ImageReview" || !review.has("status") {
        return Err(ReviewError::NotReview);
    }
    Ok(review.at("status").clone())
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_review_shows_images_and_its_own_annotations() {
        let pod = json(
            r#"{"metadata":{"annotations":{"a":"b","x.image-policy.k8s.io/break-glass":"y"}},
            "spec":{"containers":[{"image":"a"}],"initContainers":[{"image":"b"}]}}"#,
        );
        let want = r#"{"containers":[{"image":"a"},{"image":"b"}],"annotations":{"x.image-policy.k8s.io/break-glass":"y"},"namespace":"n"}"#;
        assert_eq!(spec(&pod, "n"), json(want));
    }

    #[test]
    fn answers_and_times_are_judged() {
        assert!(read_status(&json(r#"{"allowed":true}"#)).is_ok());
        assert!(read_status(&json(r#"{"reason":"old"}"#)).is_err_and(|why| why.to_string().ends_with("images: old")));
        assert!(read(b"{}").is_err());
        let second = Duration::from_secs(1);
        let time = |json_text: &str| duration(&json(json_text), "t", second, second * 7, (second, second * 9));
        assert_eq!(time("{}"), Ok(second * 7));
        assert_eq!(time(r#"{"t":-1}"#), Ok(Duration::ZERO));
        assert_eq!(time(r#"{"t":3}"#), Ok(second * 3));
        assert!(
            time(r#"{"t":10}"#).is_err_and(|why| why.to_string().starts_with("t: valid value is between 1s and 9s"))
        );
    }
}
