//! The queues against a simulated clock: flows with unlimited demand, and the share of each.

use std::collections::HashMap;

use super::*;

/// A small seeded generator: failures are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % limit
    }
}

const SHAPE: QueueConfig = QueueConfig { queues: 64, hand_size: 6, queue_length_limit: 50 };

/// One flow: how many requests it keeps in flight, their width and their duration.
#[derive(Clone, Copy)]
struct Flow {
    hash: u64,
    at_once: u32,
    seats: u32,
    millis: u64,
}

struct Running {
    until: u64,
    began: u64,
    place: Ticket,
    flow: usize,
}

/// Simulates flows that send their next request as soon as one is served, and checks the seats at each step.
struct Simulation {
    flows: Vec<Flow>,
    queues: Queues<usize>,
    limit: u32,
    running: Vec<Running>,
    waiting: HashMap<usize, (usize, Ticket)>,
    rejected: Vec<u64>,
    /// Seat-milliseconds and requests that each flow got.
    served: Vec<u64>,
    done: Vec<u64>,
    longest_wait: Vec<u64>,
    began_waiting: HashMap<usize, u64>,
    next_token: usize,
    millis: u64,
}

impl Simulation {
    fn new(flows: Vec<Flow>, shape: QueueConfig, limit: u32) -> Simulation {
        let count = flows.len();
        Simulation {
            flows,
            queues: Queues::new(shape, limit, Duration::ZERO),
            limit,
            running: Vec::new(),
            waiting: HashMap::new(),
            rejected: vec![0; count],
            served: vec![0; count],
            done: vec![0; count],
            longest_wait: vec![0; count],
            began_waiting: HashMap::new(),
            next_token: 0,
            millis: 0,
        }
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn under_way(&self, flow: usize) -> u32 {
        let running = self.running.iter().filter(|running| running.flow == flow).count();
        (running + self.waiting.values().filter(|(of, _)| *of == flow).count()) as u32
    }

    fn run(&mut self, millis: u64) {
        let end = self.millis + millis;
        while self.millis < end {
            self.finish();
            for flow in 0..self.flows.len() {
                while self.under_way(flow) < self.flows[flow].at_once && self.send(flow) {}
            }
            self.check();
            self.millis += 1;
        }
    }

    fn send(&mut self, flow: usize) -> bool {
        let Flow { hash, seats, .. } = self.flows[flow];
        let token = self.next_token;
        self.next_token += 1;
        match self.queues.arrive(self.now(), hash, seats, || token) {
            Verdict::Run(place) => self.begin(flow, place),
            Verdict::Wait(place) => {
                self.waiting.insert(token, (flow, place));
                self.began_waiting.insert(token, self.millis);
            }
            Verdict::Reject(_) => {
                self.rejected[flow] += 1;
                return false;
            }
        }
        true
    }

    fn begin(&mut self, flow: usize, place: Ticket) {
        self.running.push(Running { until: self.millis + self.flows[flow].millis, began: self.millis, place, flow });
    }

    fn finish(&mut self) {
        let (done, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|running| running.until <= self.millis);
        self.running = running;
        for Running { began, place, flow, .. } in done {
            self.done[flow] += 1;
            self.served[flow] += (self.millis - began) * u64::from(place.seats);
            let (woken, _) = self.queues.leave(self.now(), place, Duration::from_millis(self.millis - began));
            self.wake(woken);
        }
    }

    fn wake(&mut self, tokens: Vec<usize>) {
        for token in tokens {
            let (flow, place) = self.waiting.remove(&token).expect("only those that wait are woken");
            let waited = self.millis - self.began_waiting.remove(&token).expect("it began to wait");
            self.longest_wait[flow] = self.longest_wait[flow].max(waited);
            self.begin(flow, place);
        }
    }

    fn check(&self) {
        let load = self.queues.load();
        let seats: u32 = self.running.iter().map(|running| running.place.seats).sum();
        assert_eq!((load.running_seats, load.running as usize), (seats, self.running.len()));
        assert_eq!(load.waiting as usize, self.waiting.len());
        assert!(seats <= self.limit || self.running.len() == 1, "{seats} seats of {}", self.limit);
    }
}

fn flow(hash: u64, at_once: u32, millis: u64) -> Flow {
    Flow { hash, at_once, seats: 1, millis }
}

#[test]
fn a_light_flow_is_served_beside_a_flood() {
    let mut simulation = Simulation::new(vec![flow(11, 300, 20), flow(7_777_777, 1, 20)], SHAPE, 8);
    simulation.run(5_000);
    // Without any waiting it would be served 250 times.
    assert!(simulation.done[1] > 100, "{:?}", simulation.done);
    assert!(simulation.longest_wait[1] <= 40, "{:?}", simulation.longest_wait);
    assert_eq!(simulation.rejected[1], 0);
}

#[test]
fn greedy_flows_get_equal_shares_whatever_their_requests_cost() {
    let wide = Flow { hash: 987_654_321, at_once: 40, seats: 4, millis: 10 };
    // The flows share no queue: only the queueing decides the share of each flow.
    let one_queue = QueueConfig { hand_size: 1, ..SHAPE };
    let mut simulation = Simulation::new(vec![flow(1, 40, 5), flow(2, 40, 50), wide], one_queue, 16);
    simulation.run(20_000);
    let most = *simulation.served.iter().max().expect("flows") as f64;
    let least = *simulation.served.iter().min().expect("flows") as f64;
    assert!(least / most > 0.8, "{:?}", simulation.served);
}

#[test]
fn seats_are_never_exceeded_and_everyone_is_served() {
    for seed in 1..40u64 {
        let mut random = Random(seed);
        let flows: Vec<Flow> = (0..2 + random.below(6))
            .map(|_| Flow {
                hash: random.below(u64::MAX),
                at_once: 1 + random.below(60) as u32,
                seats: 1 + random.below(10) as u32,
                millis: 1 + random.below(40),
            })
            .collect();
        let mut simulation = Simulation::new(flows, SHAPE, 1 + random.below(20) as u32);
        simulation.run(4_000);
        assert!(simulation.done.iter().all(|done| *done > 0), "seed {seed}: {:?}", simulation.done);
    }
}

#[test]
fn cancelled_requests_release_everything() {
    let mut simulation = Simulation::new(vec![flow(5, 30, 10)], SHAPE, 2);
    simulation.run(5);
    let places: Vec<Ticket> = simulation.waiting.drain().map(|(_, (_, place))| place).collect();
    assert!(places.len() > 10);
    for place in places {
        let (woken, gave_up) = simulation.queues.leave(Duration::from_millis(5), place, Duration::ZERO);
        assert!(woken.is_empty() && gave_up);
    }
    let load = simulation.queues.load();
    assert_eq!((load.waiting, load.waiting_seats, load.running), (0, 0, 2));
}

#[test]
fn the_place_that_is_full_is_named() {
    let tight = QueueConfig { queues: 1, hand_size: 1, queue_length_limit: 1 };
    let mut queues = Queues::new(tight, 1, Duration::ZERO);
    assert!(matches!(queues.arrive(Duration::ZERO, 0, 1, || ()), Verdict::Run(_)));
    assert!(matches!(queues.arrive(Duration::ZERO, 0, 1, || ()), Verdict::Wait(_)));
    assert_eq!(queues.arrive(Duration::ZERO, 0, 1, || ()), Verdict::Reject(Reason::QueueFull));
    let mut queues = Queues::new(QueueConfig::default(), 1, Duration::ZERO);
    assert!(matches!(queues.arrive(Duration::ZERO, 0, 1, || ()), Verdict::Run(_)));
    assert_eq!(queues.arrive(Duration::ZERO, 0, 1, || ()), Verdict::Reject(Reason::ConcurrencyLimit));
}

#[test]
fn reconfiguration_loses_no_request() {
    let mut simulation = Simulation::new(vec![flow(5, 30, 10), flow(6, 30, 10)], SHAPE, 4);
    simulation.run(50);
    let before = simulation.queues.load();
    simulation.queues.reshape(QueueConfig { queues: 2, hand_size: 1, queue_length_limit: 50 });
    assert_eq!(simulation.queues.load(), before);
    simulation.limit = 10;
    let woken = simulation.queues.set_limit(simulation.now(), 10);
    assert_eq!(woken.len(), 6);
    simulation.wake(woken);
    simulation.run(200);
}
