//! Node ports: the service that holds each port. The index follows the cache of services and contains all committed
//! ports, of any writer; uncommitted ports are reserved.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use api::json;
use bytes::Bytes;
use kinds::core::service::allocation;
use stdx::sync::{Mutex, MutexGuard};

use super::ranges::band;
use crate::storage::cache::{Cache, RingRead};

/// The minimum and maximum size of the band for named ports, and its share of the range.
const BAND: (u128, u128, u128) = (16, 128, 32);

/// The number of bytes of changes that are read at a time.
const READ_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PortError {
    OutOfRange(String),
    Taken,
    Full,
}

impl std::fmt::Display for PortError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortError::OutOfRange(range) => {
                write!(f, "provided port is not in the valid range. The range of valid ports is {range}")
            }
            PortError::Taken => f.write_str("provided port is already allocated"),
            PortError::Full => f.write_str("range is full"),
        }
    }
}

/// One pool for all services and protocols.
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The position of the index in the cache's history; None before the first read.
    cursor: Option<u64>,
    /// The services (`NAMESPACE/NAME`) that hold a port. A port has several holders only in imported data.
    held: HashMap<u16, Vec<Arc<str>>>,
    /// Ports of writes in flight, with their owner and count.
    reserved: HashMap<u16, (Arc<str>, usize)>,
}

/// Ports that are allocated but not yet published; released when dropped.
pub(crate) struct Reservation {
    state: Arc<Mutex<State>>,
    ports: Vec<u16>,
}

impl Ports {
    pub(super) fn new(range: RangeInclusive<u16>) -> Ports {
        Ports { range, state: Arc::default() }
    }

    /// Begins a claim for a service.
    pub(super) fn begin<'a>(&'a self, services: &'a Cache, owner: &str) -> Claim<'a> {
        let reservation = Reservation { state: self.state.clone(), ports: Vec::new() };
        Claim { ports: self, services: Some(services), owner: Arc::from(owner), reservation }
    }

    fn free_port(&self, state: &State) -> Option<u16> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let size = u64::from(last - first) + 1;
        let reserved = u64::try_from(band(u128::from(size), BAND)).unwrap_or(0);
        let pick = |from: u64, to: u64| {
            let length = to.checked_sub(from).filter(|length| *length > 0)?;
            let start = crate::common::ids::below(length);
            let offsets = (0..length).map(|step| from + (start + step) % length);
            offsets
                .filter_map(|offset| first.checked_add(u16::try_from(offset).ok()?))
                .find(|port| state.is_free(*port))
        };
        pick(reserved, size).or_else(|| pick(0, reserved))
    }
}

/// The ports of one write.
pub(super) struct Claim<'a> {
    ports: &'a Ports,
    /// None in tests that fill the index themselves.
    services: Option<&'a Cache>,
    owner: Arc<str>,
    reservation: Reservation,
}

impl<'a> Claim<'a> {
    /// The index, up to date with the cache. Both are read under one lock: a reservation is released only after its
    /// write is published, and a port is always in one or the other.
    fn state(&self) -> MutexGuard<'a, State> {
        let mut state = self.ports.state.lock();
        self.services.into_iter().for_each(|services| state.catch_up(services));
        state
    }

    /// Takes a port that was named.
    pub(super) fn take(&mut self, port: i64) -> Result<(), PortError> {
        let range = &self.ports.range;
        let number = u16::try_from(port).ok().filter(|port| range.contains(port));
        let number = number.ok_or_else(|| PortError::OutOfRange(format!("{}-{}", range.start(), range.end())))?;
        let mut state = self.state();
        if self.reservation.ports.contains(&number) || !state.is_available(number, &self.owner) {
            return Err(PortError::Taken);
        }
        self.reserve(&mut state, number);
        Ok(())
    }

    /// Takes any port.
    pub(crate) fn take_next(&mut self) -> Result<i64, PortError> {
        let mut state = self.state();
        let number = self.ports.free_port(&state).ok_or(PortError::Full)?;
        self.reserve(&mut state, number);
        Ok(i64::from(number))
    }

    fn reserve(&mut self, state: &mut State, port: u16) {
        state.reserved.entry(port).or_insert_with(|| (self.owner.clone(), 0)).1 += 1;
        self.reservation.ports.push(port);
    }

    pub(super) fn finish(self) -> Reservation {
        self.reservation
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        for port in &self.ports {
            if let Some((_, count)) = state.reserved.get_mut(port) {
                *count -= 1;
                if *count == 0 {
                    state.reserved.remove(port);
                }
            }
        }
    }
}

impl State {
    fn is_free(&self, port: u16) -> bool {
        !self.held.contains_key(&port) && !self.reserved.contains_key(&port)
    }

    /// Two writes to one service may request the same port: one of them will fail with a conflict anyway.
    fn is_available(&self, port: u16, owner: &str) -> bool {
        let held = self.held.get(&port).is_none_or(|owners| owners.iter().all(|other| &**other == owner));
        held && self.reserved.get(&port).is_none_or(|(other, _)| &**other == owner)
    }

    fn catch_up(&mut self, services: &Cache) {
        let Some(mut cursor) = self.cursor else { return self.rebuild(services) };
        loop {
            match services.read(cursor, READ_BYTES) {
                RingRead::Empty => break,
                RingRead::Lost => return self.rebuild(services),
                RingRead::Changes(changes, next) => {
                    for change in &changes {
                        self.replace(
                            &change.key,
                            change.old.as_ref().map(|item| &item.bytes),
                            change.new.as_ref().map(|item| &item.bytes),
                        );
                    }
                    cursor = next;
                }
            }
        }
        self.cursor = Some(cursor);
    }

    fn rebuild(&mut self, services: &Cache) {
        let (snapshot, cursor) = services.snapshot_and_cursor();
        self.held.clear();
        for (key, item) in &snapshot.map {
            self.replace(key, None, Some(&item.bytes));
        }
        self.cursor = Some(cursor);
    }

    fn replace(&mut self, key: &str, old: Option<&Bytes>, new: Option<&Bytes>) {
        for port in old.map(numbers).unwrap_or_default() {
            if let Some(owners) = self.held.get_mut(&port) {
                owners.retain(|owner| &**owner != key);
                if owners.is_empty() {
                    self.held.remove(&port);
                }
            }
        }
        for port in new.map(numbers).unwrap_or_default() {
            self.held.entry(port).or_default().push(Arc::from(key));
        }
    }
}

/// The node ports of a stored service, each once.
fn numbers(service: &Bytes) -> Vec<u16> {
    let wanted = ["spec.ports", "spec.healthCheckNodePort"];
    let service = json::decode_only(service, &wanted).unwrap_or_default();
    let ports = allocation::node_ports(&service);
    let mut numbers: Vec<u16> = ports.iter().filter_map(|port| u16::try_from(port.number).ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(ports: &[u16]) -> Bytes {
        let ports: Vec<String> = ports.iter().map(|port| format!("{{\"nodePort\":{port}}}")).collect();
        Bytes::from(format!("{{\"spec\":{{\"ports\":[{}]}}}}", ports.join(",")))
    }

    fn ports(held: &[(&str, &[u16])]) -> Ports {
        let ports = Ports::new(30000..=30063);
        let mut state = ports.state.lock();
        for (key, numbers) in held {
            state.replace(key, None, Some(&service(numbers)));
        }
        drop(state);
        ports
    }

    fn claim<'a>(ports: &'a Ports, owner: &str) -> Claim<'a> {
        let reservation = Reservation { state: ports.state.clone(), ports: Vec::new() };
        Claim { ports, services: None, owner: Arc::from(owner), reservation }
    }

    #[test]
    fn named_ports_are_judged() {
        let ports = ports(&[("a/x", &[30001])]);
        let out_of_range = || PortError::OutOfRange("30000-30063".to_string());
        let cases = [
            ("a/x", 30001, Ok(())),
            ("a/y", 30001, Err(PortError::Taken)),
            ("a/y", 30002, Ok(())),
            ("a/y", 40000, Err(out_of_range())),
            ("a/y", 1 << 20, Err(out_of_range())),
        ];
        for (owner, port, want) in cases {
            assert_eq!(claim(&ports, owner).take(port), want, "{owner} {port}");
        }
        let mut twice = claim(&ports, "a/y");
        assert_eq!((twice.take(30002), twice.take(30002)), (Ok(()), Err(PortError::Taken)));
    }

    #[test]
    fn allocates_the_upper_band_first_and_releases_all() {
        let ports = ports(&[("a/x", &[30001])]);
        let mut all = claim(&ports, "a/y");
        let mut given: Vec<i64> = std::iter::from_fn(|| all.take_next().ok()).collect();
        assert!(given[..48].iter().all(|port| *port >= 30016), "{given:?}");
        given.sort_unstable();
        let want: Vec<i64> = (30000..=30063).filter(|port| *port != 30001).collect();
        assert_eq!(given, want);
        assert_eq!(all.take_next(), Err(PortError::Full));
        drop(all);
        assert!(ports.state.lock().reserved.is_empty());
    }

    #[test]
    fn changed_service_releases_unused_ports() {
        let ports = ports(&[("a/x", &[30001, 30002])]);
        ports.state.lock().replace("a/x", Some(&service(&[30001, 30002])), Some(&service(&[30002])));
        assert_eq!(claim(&ports, "a/y").take(30001), Ok(()));
        assert_eq!(claim(&ports, "a/y").take(30002), Err(PortError::Taken));
    }
}
