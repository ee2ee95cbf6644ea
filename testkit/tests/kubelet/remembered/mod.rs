//! A fake runtime that keeps pods in memory and records its calls.

mod calls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerState, PodSandboxState, Status};
use kubelet::eviction::rank::Layout;
use kubelet::eviction::signal::{Measurement, Measurements, Signal};
use kubelet::eviction::signal_source::{Paths, SignalSource};
use stdx::clock::{Clock, SystemClock};
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// A runtime of sandboxes and containers that are records.
#[derive(Default)]
pub struct Remembered {
    state: Mutex<State>,
    /// Containers do not end while this is true.
    pub holds: watch::Sender<bool>,
    /// How many images that are named slow may be pulled; other images do not wait.
    pub gate: tokio::sync::Notify,
}

#[derive(Default)]
pub struct State {
    /// Bytes that containers of a pod use, by its name.
    pub memory: BTreeMap<String, u64>,
    /// Images that are present although they were not pulled.
    pub images: Vec<String>,
    /// The free disk space in percent; one less for each of those images.
    pub disk: i64,
    /// The duration of a pull, and its progress messages.
    pub pull: Duration,
    pub progress: Option<String>,
    /// None for the machine's.
    pub clock: Option<Arc<dyn Clock>>,
    /// Whether the runtime sends events. Nothing happens by itself.
    pub has_events: bool,
    /// The runtime does not list its sandboxes.
    pub is_mute: bool,
    /// Of sandboxes, where they can be reached.
    pub address: Option<String>,
    /// The log directory of each sandbox.
    logs: BTreeMap<String, PathBuf>,
    made: u64,
    sandboxes: BTreeMap<String, cri::PodSandboxStatus>,
    containers: BTreeMap<String, (String, cri::ContainerStatus)>,
    /// Names of containers that only end when their time is over.
    pub stubborn: Vec<String>,
    /// Names of stopped containers, with their grace periods.
    stopped: Vec<(String, i64)>,
    pulls: Vec<cri::PullImageRequest>,
    /// Pulls that wait for permission now, and the maximum at a time.
    pulling: usize,
    pub most_pulling: usize,
    /// Starts and exits of containers in their order.
    order: Vec<String>,
    /// Whether the runtime is not ready for pods, and the number of status requests.
    pub is_unready: bool,
    pub looks: u64,
    /// Pod CIDRs that the runtime has received.
    pub cidrs: Vec<String>,
    /// Calls whose next request gets no response.
    pub hangs: Vec<&'static str>,
}

fn open_log(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::File::options().append(true).create(true).open(path).expect("a log");
}

fn fits(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Remembered {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub fn stopped(&self) -> Vec<(String, i64)> {
        self.state().stopped.clone()
    }

    pub fn pulls(&self) -> Vec<cri::PullImageRequest> {
        self.state().pulls.clone()
    }

    /// `+name` for each start, `-name` for each exit; `?name` for a stop request that is held.
    pub fn order(&self) -> Vec<String> {
        self.state().order.clone()
    }

    /// Ends the container of a pod without a request.
    pub fn crash(&self, pod: &str) {
        let mut state = self.state();
        let State { sandboxes, containers, .. } = &mut *state;
        let is_its = |of: &String| sandboxes[of].metadata.as_ref().is_some_and(|metadata| metadata.name == pod);
        let mut own = containers.values_mut().filter(|(of, _)| is_its(of)).map(|(_, status)| status);
        let status = own.find(|status| status.state() == ContainerState::Running).expect("it runs");
        status.set_state(ContainerState::Exited);
        status.exit_code = 1;
        let id = status.id.clone();
        let now = state.now();
        state.containers.get_mut(&id).expect("it is there").1.finished_at = now;
    }

    fn order_stop(&self, id: &str) {
        let mut state = self.state();
        if let Some((_, status)) = state.containers.get(id).filter(|_| *self.holds.borrow()) {
            let name = status.metadata.clone().unwrap_or_default().name;
            state.order.push(format!("?{name}"));
        }
    }

    /// The number of pulls that wait for permission.
    pub fn pulling(&self) -> usize {
        self.state().pulling
    }

    /// Removes all sandboxes, as a restart of the machine does.
    pub fn lose_sandboxes(&self) {
        let mut state = self.state();
        let ids: Vec<String> = state.containers.keys().cloned().collect();
        ids.iter().for_each(|id| state.end(id, 0));
        state.sandboxes.values_mut().for_each(|sandbox| sandbox.set_state(PodSandboxState::Notready));
    }

    /// Stays here for ever where this call is to hang.
    async fn hang(&self, call: &str) {
        let place = self.state().hangs.iter().position(|hangs| *hangs == call);
        if let Some(place) = place {
            self.state().hangs.remove(place);
            std::future::pending::<()>().await;
        }
    }

    /// A container ends by itself.
    pub fn exit(&self, name: &str, code: i32) {
        let mut state = self.state();
        let now = state.now();
        let is_it = |status: &cri::ContainerStatus| status.metadata.as_ref().is_some_and(|own| own.name == name);
        let running = |status: &cri::ContainerStatus| status.state() == ContainerState::Running;
        for (_, status) in state.containers.values_mut().filter(|(_, status)| is_it(status) && running(status)) {
            status.set_state(ContainerState::Exited);
            (status.exit_code, status.finished_at) = (code, now);
        }
    }

    /// Nothing runs any more, and the runtime has no record of it.
    pub fn forget(&self) {
        let mut state = self.state();
        state.sandboxes.clear();
        state.containers.clear();
        state.order.clear();
    }

    /// Names of containers that run.
    pub fn running(&self) -> Vec<String> {
        let state = self.state();
        let running = state.containers.values().filter(|(_, status)| status.state() == ContainerState::Running);
        running.map(|(_, status)| status.metadata.clone().unwrap_or_default().name).collect()
    }
}

impl State {
    fn now(&self) -> i64 {
        let now = self.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now());
        now.seconds * 1_000_000_000 + i64::from(now.nanos)
    }

    fn id(&mut self) -> String {
        self.made += 1;
        format!("{:064x}", self.made)
    }

    /// Bytes that the containers of a sandbox use.
    fn used(&self, sandbox: &cri::PodSandboxStatus) -> u64 {
        let own = |(of, status): &&(String, cri::ContainerStatus)| {
            *of == sandbox.id && status.state() == ContainerState::Running
        };
        let name = sandbox.metadata.clone().unwrap_or_default().name;
        let each = self.memory.get(&name).copied().unwrap_or(1 << 20);
        self.containers.values().filter(own).count() as u64 * each
    }

    /// The log of a pod's container.
    pub fn log(&self, pod: &str) -> PathBuf {
        let is_its = |of: &String| self.sandboxes[of].metadata.as_ref().is_some_and(|metadata| metadata.name == pod);
        let found = self.containers.values().find(|(of, _)| is_its(of));
        found.map(|(_, status)| PathBuf::from(&status.log_path)).unwrap_or_default()
    }

    fn stats(&self, sandbox: &cri::PodSandboxStatus) -> cri::PodSandboxStats {
        let working_set_bytes = Some(cri::UInt64Value { value: self.used(sandbox) });
        let memory = cri::MemoryUsage { working_set_bytes, ..Default::default() };
        let metadata = Some(cri::ContainerMetadata { name: "c".to_string(), attempt: 0 });
        let attributes = Some(cri::ContainerAttributes { metadata, ..Default::default() });
        let container = cri::ContainerStats { attributes, memory: Some(memory.clone()), ..Default::default() };
        let linux =
            cri::LinuxPodSandboxStats { memory: Some(memory), containers: vec![container], ..Default::default() };
        let attributes = cri::PodSandboxAttributes { metadata: sandbox.metadata.clone(), ..Default::default() };
        cri::PodSandboxStats { attributes: Some(attributes), linux: Some(linux), ..Default::default() }
    }

    fn end(&mut self, id: &str, timeout: i64) {
        let now = self.now();
        let Some((_, status)) = self.containers.get_mut(id) else { return };
        if status.state() == ContainerState::Running {
            status.set_state(ContainerState::Exited);
            status.finished_at = now;
            let name = status.metadata.clone().unwrap_or_default().name;
            self.order.push(format!("-{name}"));
            self.stopped.push((name, timeout));
        }
    }
}

impl cri::ImageService for Remembered {
    async fn list_images(&self, _: cri::ListImagesRequest) -> Result<cri::ListImagesResponse, Status> {
        let image = |id: &String| cri::Image { id: id.clone(), size: 7, ..Default::default() };
        Ok(cri::ListImagesResponse { images: self.state().images.iter().map(image).collect() })
    }

    async fn remove_image(&self, asked: cri::RemoveImageRequest) -> Result<cri::RemoveImageResponse, Status> {
        let id = asked.image.unwrap_or_default().image;
        self.state().images.retain(|other| *other != id);
        Ok(cri::RemoveImageResponse {})
    }

    async fn image_status(&self, asked: cri::ImageStatusRequest) -> Result<cri::ImageStatusResponse, Status> {
        let name = asked.image.unwrap_or_default().image;
        let pulled = self.state().pulls.iter().any(|pull| pull.image.as_ref().is_some_and(|image| image.image == name));
        let image = cri::Image { id: name, size: 7, ..Default::default() };
        let progress = self.state().progress.clone().filter(|_| asked.verbose);
        let info = progress.into_iter().map(|line| ("progress".to_string(), format!("{line:?}"))).collect();
        Ok(cri::ImageStatusResponse { image: pulled.then_some(image), info })
    }

    async fn pull_image(&self, asked: cri::PullImageRequest) -> Result<cri::PullImageResponse, Status> {
        let image_ref = asked.image.clone().unwrap_or_default().image;
        let takes = self.state().pull;
        tokio::time::sleep(takes).await;
        if image_ref.contains("missing") {
            return Err(Status::unknown("no such image"));
        }
        if image_ref.contains("slow") {
            {
                let mut state = self.state();
                state.pulling += 1;
                state.most_pulling = state.most_pulling.max(state.pulling);
            }
            self.gate.notified().await;
            self.state().pulling -= 1;
        }
        self.state().pulls.push(asked);
        Ok(cri::PullImageResponse { image_ref })
    }

    absent! { image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse }

    absent_streams! { stream_images(StreamImagesRequest) -> StreamImagesResponse }
}

/// A machine that runs only the recorded containers, and whose disk is never full by itself.
impl SignalSource for Remembered {
    fn measure(&self, _: &Paths) -> Measurements {
        let state = self.state();
        let used: u64 = state.sandboxes.values().map(|sandbox| state.used(sandbox)).sum();
        let available = MEMORY.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX));
        let disk = state.disk - state.images.len() as i64;
        Measurements::from([
            (Signal::Memory, Measurement { available, capacity: MEMORY }),
            (Signal::NodeFs, Measurement { available: disk, capacity: 100 }),
        ])
    }

    fn layout(&self, _: &Paths) -> Layout {
        Layout::One
    }
}

const MEMORY: i64 = 1000 << 20;

/// A fake runtime without any state.
pub fn remembered() -> Arc<Remembered> {
    let runtime = Remembered::default();
    runtime.state().disk = 50;
    Arc::new(runtime)
}
