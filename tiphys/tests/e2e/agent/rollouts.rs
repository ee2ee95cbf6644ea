//! Rolling updates of a service under load (ADR 26): no request is lost, because a pod stops only when the proxy has
//! confirmed that it gets no new connections. Without the confirmation, requests are lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use stdx::sync::Mutex;

use super::case::{Case, condition};
use super::cluster::{Cluster, NGINX, Runtime};

/// Rollouts of a normal run; the environment variable `TIPHYS_ROLLOUTS` overrides it.
const ROLLOUTS: usize = 4;
/// So many rollouts without a loss would mean that the test cannot see any.
const MOST_LOSSLESS: usize = 20;
const CLIENTS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between the requests of a client, which leaves the machine time for pods.
const PAUSE: Duration = Duration::from_millis(2);

/// The server refuses new connections as soon as its pod terminates, and completes those that it has, as servers should.
const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      containers:
      - name: main
        image: NGINX
        command: [sh, -c, 'nginx & trap \"kill -QUIT $!; wait $!; exit\" TERM; wait']
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
";

/// The requests of clients.
#[derive(Default)]
struct Requests {
    stop: AtomicBool,
    count: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

impl Requests {
    /// Sends requests, each on a new connection, until it is stopped.
    #[allow(clippy::disallowed_methods, reason = "a thread of a test may block")]
    fn send(&self, to: SocketAddr) {
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(error) = request(to) {
                self.lost.lock().push(error.to_string());
            }
            self.count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
    }
}

fn request(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let is_whole =
        reply.lines().next().is_some_and(|line| line.ends_with(" 200 OK")) && reply.contains("\r\n\r\nnginx in web-");
    if is_whole { Ok(()) } else { Err(std::io::Error::other(format!("not a reply: {reply:?}"))) }
}

/// Restarts the pods of a service under load, until `goes_on` returns false after a rollout. Returns the number of
/// requests and the lost ones.
fn roll(flags: &[&str], goes_on: impl Fn(usize, &Requests) -> bool) -> (usize, Vec<String>) {
    let cluster = Cluster::up_with(Runtime::Embedded, flags);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let case = Case::new(&cluster, "rollouts");
    case.apply(&WEB.replace("NGINX", NGINX));
    case.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    case.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=80"]);
    let ip = case.object("services", "web").str("spec.clusterIP").to_string();
    let to: SocketAddr = format!("{ip}:80").parse().expect("an address");
    case.until("a reply", || request(to), Result::is_ok).expect("a reply");
    let requests = Requests::default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                cluster.enter();
                requests.send(to);
            });
        }
        let rolled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut count = 0;
            while goes_on(count, &requests) {
                case.kubectl(&["set", "env", "deployment/web", &format!("ROLLOUT={count}")]);
                case.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
                count += 1;
            }
            // The last pods have to terminate under load too. The server has closed the idle connection meanwhile.
            let case = Case::of_cluster(&cluster);
            let is_terminating = |pod: &api::Tree| !pod.str("metadata.deletionTimestamp").is_empty();
            let pods = || {
                case.read("/api/v1/namespaces/rollouts/pods")
                    .list("items")
                    .iter()
                    .filter(|pod| is_terminating(pod))
                    .count()
            };
            case.until("the end of terminated pods", pods, |left| *left == 0);
        }));
        requests.stop.store(true, Ordering::Relaxed);
        if let Err(panic) = rolled {
            std::panic::resume_unwind(panic);
        }
    });
    (requests.count.into_inner(), requests.lost.into_inner())
}

#[test]
fn rolling_updates_lose_no_request() {
    let chosen = std::env::var("TIPHYS_ROLLOUTS").ok();
    let rollouts = chosen.map_or(ROLLOUTS, |text| text.parse().expect("TIPHYS_ROLLOUTS is a number"));
    let (count, lost) = roll(&[], |done, _| done < rollouts);
    println!("{count} requests during {rollouts} rollouts");
    assert!(count > rollouts * 100, "only {count} requests");
    assert_eq!(lost, Vec::<String>::new(), "of {count} requests");
}

#[test]
fn rolling_updates_lose_requests_without_confirmation() {
    let goes_on = |done: usize, requests: &Requests| done < MOST_LOSSLESS && requests.lost.lock().is_empty();
    let (count, lost) = roll(&["--drain-by-proxies=false"], goes_on);
    assert!(!lost.is_empty(), "none of {count} requests was lost: the other test could not see a loss");
}
