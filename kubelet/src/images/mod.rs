//! The images of containers: present already or pulled, with which credentials and how often.

pub(crate) mod keyring;
mod name;
pub(crate) mod providers;
pub(crate) mod records;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time};
use client::Recorder;
use stdx::backoff::{Backoff, pause_following};
use stdx::clock::Clock;
use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;
use tokio::sync::Semaphore;

use crate::clock::is_within;
use crate::config::Config;
use crate::metrics::Starts;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::runtime::Runtime;
use providers::Providers;
use records::{Credential, RecordError, Records};

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A slow pull is reported after this time, and again after twice the time.
const FIRST_WORD: Duration = Duration::from_secs(10);
const RAREST_WORD: Duration = Duration::from_secs(160);
const SECOND: i64 = 1_000_000_000;

pub(crate) struct Images {
    runtime: Runtime,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    /// None without a limit of parallel pulls.
    turns: Option<Arc<Semaphore>>,
    pauses: Mutex<BTreeMap<String, PullBackoff>>,
    providers: Providers,
    records: Records,
    /// The directory that may contain the node's own credentials.
    root_dir: PathBuf,
    /// None without a rate limit.
    pulls: Option<Mutex<TokenBucket<tokio::time::Instant>>>,
    starts: Arc<Starts>,
}

#[derive(Debug, Clone)]
struct PullBackoff {
    length: Duration,
    until: i64,
    /// The error of the last attempt.
    why: String,
}

/// An image that is present.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LocalImage {
    pub(crate) id: String,
    /// The image's user, by number or by name.
    pub(crate) uid: Option<i64>,
    pub(crate) username: String,
}

/// Why a container has no image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageError {
    pub(crate) problem: Problem,
    /// [`Images::next_pull_attempt`] has the time of the next pull.
    pub(crate) is_scheduled: bool,
}

impl ImageError {
    /// A problem that the next sync of the pod may find solved.
    fn unscheduled(reason: &'static str, message: String) -> ImageError {
        ImageError { problem: Problem { reason: reason.into(), message }, is_scheduled: false }
    }
}

/// The pulled image, and the credential that was used.
struct PullResult {
    id: String,
    by: Option<Credential>,
}

/// Which image a container needs, and the pull secrets for it.
pub(crate) struct ImageRequest<'a> {
    pub(crate) pod: &'a Tree,
    pub(crate) container: &'a Tree,
    /// Of the pod, in order.
    pub(crate) secrets: &'a [Arc<Tree>],
    pub(crate) sandbox: Option<&'a cri::PodSandboxConfig>,
}

impl ImageRequest<'_> {
    /// The object that events refer to.
    fn subject(&self) -> Tree {
        crate::model::pod::subject(self.pod, self.container.str("name"))
    }
}

/// The rate limit of pulls; none if the rate is 0.
fn pull_rate(config: &Config) -> Option<TokenBucket<tokio::time::Instant>> {
    let (per_second, burst) = (f64::from(config.image_pulls.qps), f64::from(config.image_pulls.burst.max(1)));
    (config.image_pulls.qps > 0).then(|| TokenBucket::new(per_second, burst, tokio::time::Instant::now()))
}

impl Images {
    pub(crate) fn new(
        runtime: Runtime,
        recorder: Recorder,
        config: &Config,
        providers: Providers,
        starts: Arc<Starts>,
    ) -> Images {
        let parallel = if config.image_pulls.serialize { Some(1) } else { config.image_pulls.max_parallel };
        let turns = parallel.map(|most| Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(1).max(1))));
        Images {
            clock: providers.clock.clone(),
            runtime,
            recorder,
            turns,
            pauses: Mutex::default(),
            providers,
            records: Records::open(&config.root_dir, config.image_verification.clone()),
            root_dir: config.root_dir.clone(),
            pulls: pull_rate(config).map(Mutex::new),
            starts,
        }
    }

    /// The image of a container, pulled if its policy requires it.
    pub(crate) async fn ensure(&self, wanted: &ImageRequest<'_>) -> Result<LocalImage, ImageError> {
        let result = self.find(wanted).await;
        if let Err(error) = &result {
            self.recorder.warning(&wanted.subject(), "Failed", format!("Error: {}", error.problem.reason));
        }
        result
    }

    async fn find(&self, wanted: &ImageRequest<'_>) -> Result<LocalImage, ImageError> {
        let name = wanted.container.str("image");
        if let Err(why) = name::check(name) {
            let why = format!("couldn't parse image reference {name:?}: {why}");
            let message = format!("Failed to apply default image tag {name:?}: {why}");
            self.recorder.warning(&wanted.subject(), "InspectFailed", message.as_str());
            return Err(ImageError::unscheduled("InvalidImageName", message));
        }
        let spec = spec(name);
        let there = self.runtime.image(spec.clone()).await.map_err(|status| {
            let message = format!("Failed to inspect image {name:?}: {}", status.message());
            ImageError::unscheduled("ImageInspectError", message)
        })?;
        let policy = policy(wanted.container);
        let there = match there {
            Some(image) if policy != "Always" && !self.may_use(wanted, name, &image.id).await => None,
            there => there,
        };
        match (policy, there) {
            ("Never", None) => {
                let message = format!("Container image {name:?} is not present with pull policy of Never");
                self.recorder.warning(&wanted.subject(), "ErrImageNeverPull", message.as_str());
                Err(ImageError::unscheduled("ErrImageNeverPull", message))
            }
            ("Always", _) | (_, None) => self.pull(wanted, name, spec).await,
            (_, Some(image)) => {
                let text =
                    format!("Container image {name:?} already present on machine and can be accessed by the pod");
                self.recorder.normal(&wanted.subject(), "Pulled", text);
                Ok(present(image))
            }
        }
    }

    /// Plugins are called only if the pull secrets do not decide.
    async fn may_use(&self, wanted: &ImageRequest<'_>, name: &str, reference: &str) -> bool {
        let of_secrets = keyring::find(wanted.secrets, name);
        self.records.may_use(name, reference, &of_secrets)
            || self.records.may_use(name, reference, &self.credentials(wanted, name).await)
    }

    /// The credentials that the pod could pull an image with, in the order in which they are tried.
    async fn credentials(&self, wanted: &ImageRequest<'_>, name: &str) -> Vec<Credential> {
        let mut found = keyring::find(wanted.secrets, name);
        found.extend(self.providers.find(wanted.pod, name).await);
        found.extend(keyring::node_credentials(&self.root_dir, name));
        found
    }

    async fn pull(
        &self,
        wanted: &ImageRequest<'_>,
        name: &str,
        spec: cri::ImageSpec,
    ) -> Result<LocalImage, ImageError> {
        let key = format!("{}_{name}", pod::uid(wanted.pod));
        if let Some(pause) = self.pause(&key) {
            let text = format!("Back-off pulling image {name:?}");
            self.recorder.normal(&wanted.subject(), "BackOff", text.as_str());
            let problem = Problem { reason: "ImagePullBackOff".into(), message: format!("{text}: {}", pause.why) };
            return Err(ImageError { problem, is_scheduled: true });
        }
        self.recorder.normal(&wanted.subject(), "Pulling", format!("Pulling image {name:?}"));
        self.starts.record_pull_start(pod::uid(wanted.pod), self.now());
        let requested_at = self.now();
        let turn = match &self.turns {
            Some(turns) => turns.clone().acquire_owned().await.ok(),
            None => None,
        };
        self.wait_for_rate_limit().await;
        let begun = self.now();
        self.log_record_error(self.records.record_intent(name));
        let pulled =
            self.report_pull_progress(wanted, &spec, Box::pin(self.pull_with_credentials(wanted, spec.clone()))).await;
        drop(turn);
        match pulled {
            Ok(pulled) => {
                self.pauses().remove(&key);
                self.pulled(wanted, name, pulled, spec, (requested_at, begun)).await
            }
            Err(status) => {
                self.records.record_failure(name);
                Err(ImageError { problem: self.failed(wanted, name, key, &status), is_scheduled: true })
            }
        }
    }

    /// Waits for a pull, and reports its progress.
    async fn report_pull_progress<T>(
        &self,
        wanted: &ImageRequest<'_>,
        image: &cri::ImageSpec,
        mut pull: Pin<Box<impl Future<Output = T>>>,
    ) -> T {
        let mut backoff = Backoff::new(FIRST_WORD, RAREST_WORD);
        let mut reported = None;
        loop {
            if let Ok(pulled) = tokio::time::timeout(backoff.next_pause(), &mut pull).await {
                return pulled;
            }
            let progress = self.runtime.progress(image.clone()).await.filter(|line| reported.as_ref() != Some(line));
            if let Some(line) = progress {
                let text = format!("Pulling image {:?}: {line}", image.image);
                self.recorder.normal(&wanted.subject(), "Pulling", text);
                reported = Some(line);
            }
        }
    }

    /// Pulls with each matching credential, or without a credential if none matches.
    async fn pull_with_credentials(
        &self,
        wanted: &ImageRequest<'_>,
        image: cri::ImageSpec,
    ) -> Result<PullResult, cri::Status> {
        let found = self.credentials(wanted, &image.image).await;
        let mut credentials = found.into_iter().map(Some).collect::<Vec<_>>();
        if credentials.is_empty() {
            credentials.push(None);
        }
        let mut last = cri::Status::unknown("");
        for credential in credentials {
            let auth = credential.as_ref().map(|credential| credential.auth.clone());
            let request =
                cri::PullImageRequest { image: Some(image.clone()), auth, sandbox_config: wanted.sandbox.cloned() };
            match self.runtime.pull(request).await {
                Ok(answer) => return Ok(PullResult { id: answer.image_ref, by: credential }),
                Err(status) => last = status,
            }
        }
        Err(last)
    }

    async fn pulled(
        &self,
        wanted: &ImageRequest<'_>,
        name: &str,
        pulled: PullResult,
        spec: cri::ImageSpec,
        (requested_at, begun): (i64, i64),
    ) -> Result<LocalImage, ImageError> {
        let PullResult { id, by } = pulled;
        let by_id = cri::ImageSpec { image: id.clone(), ..spec.clone() };
        let mut image = self.runtime.image(by_id).await.ok().flatten();
        if image.is_none() {
            image = self.runtime.image(spec).await.ok().flatten();
        }
        let reference = image.as_ref().map_or(id.as_str(), |image| image.id.as_str());
        self.log_record_error(self.records.ends(name, reference, by.as_ref()));
        let now = self.now();
        self.starts.record_pull_end(pod::uid(wanted.pod), now);
        let size = image.as_ref().map_or(0, |image| image.size);
        let text = format!(
            "Successfully pulled image {name:?} in {} ({} including waiting). Image size: {size} bytes.",
            time::format_duration(rounded(now - begun)),
            time::format_duration(rounded(now - requested_at))
        );
        self.recorder.normal(&wanted.subject(), "Pulled", text);
        Ok(image.map_or(LocalImage { id, uid: None, username: String::new() }, present))
    }

    fn failed(&self, wanted: &ImageRequest<'_>, name: &str, key: String, status: &cri::Status) -> Problem {
        let why = status.message();
        let subject = wanted.subject();
        self.recorder.warning(&subject, "Failed", format!("Failed to pull image {name:?}: {why}"));
        let problem = classify_failure(name, why);
        let mut pauses = self.pauses();
        let previous = pauses.get(&key).map(|pause| pause.length);
        let length = pause_following(previous, FIRST_PAUSE, LONGEST_PAUSE);
        let until = self.now() + i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        pauses.insert(key, PullBackoff { length, until, why: format!("{}: {}", problem.reason, problem.message) });
        problem
    }

    fn pause(&self, key: &str) -> Option<PullBackoff> {
        let now = self.now();
        self.pauses().get(key).filter(|pause| is_within(now, pause.until, pause.length)).cloned()
    }

    /// An intent or record that is not written costs another pull later.
    fn log_record_error(&self, written: Result<(), RecordError>) {
        if let Err(error) = written {
            tracing::warn!(why = %error, "failed to write image pull record");
        }
    }

    /// Removes the records of images that do not exist any more.
    pub(crate) async fn remove_stale_records(&self) {
        if let Ok(listed) = self.runtime.images.list_images(cri::ListImagesRequest::default()).await {
            self.records.retain(|reference| listed.images.iter().any(|image| image.id == reference));
        }
    }

    /// Waits for the rate limit of pulls.
    async fn wait_for_rate_limit(&self) {
        let reserve = |bucket: &Mutex<TokenBucket<_>>| bucket.lock().reserve(tokio::time::Instant::now());
        let wait = self.pulls.as_ref().map_or(Duration::ZERO, reserve);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// When a pod's images may be tried again.
    pub(crate) fn next_pull_attempt(&self, uid: &str) -> Option<i64> {
        let pauses = self.pauses();
        let own = pauses.range(format!("{uid}_")..).take_while(|(key, _)| key.starts_with(uid));
        let now = self.now();
        own.map(|(_, pause)| pause.until).filter(|until| *until > now).min()
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.pauses().retain(|key, _| !key.starts_with(uid));
        self.providers.remove_pod(uid);
    }

    fn now(&self) -> i64 {
        let now = self.clock.now();
        now.seconds * SECOND + i64::from(now.nanos)
    }

    fn pauses(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<String, PullBackoff>> {
        self.pauses.lock()
    }
}

/// CRI has no field for the kind of a failure: by its contract, two kinds are the first word of the message.
fn classify_failure(name: &str, why: &str) -> Problem {
    let named = [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ];
    let Some((reason, text)) = named.into_iter().find(|(reason, _)| why.starts_with(reason)) else {
        return Problem { reason: "ErrImagePull".into(), message: why.to_string() };
    };
    let more = why.trim_start_matches(reason).trim_start_matches([':', ' ']);
    let more = if more.is_empty() { String::new() } else { format!(": {more}") };
    Problem { reason: reason.into(), message: format!("image pull failed for {name} because {text}{more}") }
}

/// To the millisecond, as upstream writes it.
fn rounded(nanos: i64) -> i64 {
    nanos / 1_000_000 * 1_000_000
}

fn present(image: cri::Image) -> LocalImage {
    LocalImage { id: image.id, uid: image.uid.map(|uid| uid.value), username: image.username }
}

pub(crate) fn spec(name: &str) -> cri::ImageSpec {
    cri::ImageSpec { image: name.to_string(), user_specified_image: name.to_string(), ..Default::default() }
}

/// The pull policy, or the default for the tag.
fn policy(container: &Tree) -> &str {
    match container.str("imagePullPolicy") {
        "" if is_latest(container.str("image")) => "Always",
        "" => "IfNotPresent",
        policy => policy,
    }
}

fn is_latest(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_failures_have_upstreams_reasons() {
        let cases = [
            ("no such image", "ErrImagePull: no such image"),
            ("RegistryUnavailable", "RegistryUnavailable: image pull failed for i because the registry is unavailable"),
            (
                "SignatureValidationFailed: key",
                "SignatureValidationFailed: image pull failed for i because the signature validation failed: key",
            ),
        ];
        for (why, expected) in cases {
            let problem = classify_failure("i", why);
            assert_eq!(format!("{}: {}", problem.reason, problem.message), expected);
        }
    }
}
