//! Probes between all pods in parallel. Sockets do not block; a client waits for the replies that it expects, then a short
//! time for those that must not come.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::support::{PORTS, Pod};

const DEADLINE: Duration = Duration::from_secs(20);
/// Packets between namespaces of one machine are delivered when they are sent.
const GRACE: Duration = Duration::from_millis(60);
/// A datagram may be lost on a busy machine.
const RESEND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    pub to: SocketAddr,
    pub udp: bool,
    /// The number of the pod that replies.
    pub server: u8,
    pub expected: bool,
}

type Work = (Vec<Probe>, Arc<Barrier>, mpsc::Sender<(usize, Vec<bool>)>);

/// A client in each pod.
pub struct Clients {
    senders: Vec<mpsc::Sender<Work>>,
}

impl Clients {
    /// Starts servers and clients in all pods.
    pub fn start(pods: &[Pod]) -> Clients {
        let start = |(number, pod): (usize, &Pod)| {
            serve(pod, number as u8);
            let sockets = [pod.at(false, 0), pod.at(true, 0)].map(|at| {
                let socket = pod.space.udp(at);
                socket.set_nonblocking(true).expect("nonblocking");
                socket
            });
            let (sender, works) = mpsc::channel::<Work>();
            let netns = pod.space.run(network::ns::Netns::current).expect("a namespace");
            std::thread::spawn(move || {
                netns.run(move || {
                    let mut client = Client { sockets, sequence: 0 };
                    while let Ok((probes, barrier, results)) = works.recv() {
                        let _ = results.send((number, client.probe(&probes, &barrier)));
                    }
                    Ok(())
                })
            });
            sender
        };
        Clients { senders: pods.iter().enumerate().map(start).collect() }
    }

    /// Runs the probes of all pods, and returns whether each had a reply.
    pub fn run(&self, probes: Vec<Vec<Probe>>) -> Vec<Vec<bool>> {
        let barrier = Arc::new(Barrier::new(self.senders.len()));
        let (sender, results) = mpsc::channel();
        let mut found = vec![Vec::new(); probes.len()];
        for (client, probes) in self.senders.iter().zip(probes) {
            client.send((probes, barrier.clone(), sender.clone())).expect("the client runs");
        }
        drop(sender);
        while let Ok((number, replies)) = results.recv() {
            found[number] = replies;
        }
        found
    }
}

fn serve(pod: &Pod, number: u8) {
    for port in PORTS {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let listener: TcpListener = pod.space.listen(any);
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.write_all(&[number]);
            }
        });
        let socket = pod.space.run(|| UdpSocket::bind(any)).expect("a socket");
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((length, from)) = socket.recv_from(&mut buffer[1..]) {
                buffer[0] = number;
                let _ = socket.send_to(&buffer[..=length], from);
            }
        });
    }
}

struct Client {
    /// IPv4 and IPv6. They exist as long as the client: the kernel tracks their connections from earlier policies.
    sockets: [UdpSocket; 2],
    sequence: u32,
}

enum Stream {
    Open(OwnedFd),
    Done,
}

impl Client {
    fn probe(&mut self, probes: &[Probe], barrier: &Barrier) -> Vec<bool> {
        self.sequence += 1;
        let mut streams: HashMap<usize, Stream> = HashMap::new();
        let mut replies = vec![false; probes.len()];
        for (index, probe) in probes.iter().enumerate() {
            if probe.udp {
                self.send(index, probe);
            } else {
                streams.insert(index, open(probe.to));
            }
        }
        let started = Instant::now();
        let mut sent = started;
        let is_missing = |replies: &[bool]| probes.iter().zip(replies).any(|(probe, reply)| probe.expected && !reply);
        while is_missing(&replies) && started.elapsed() < DEADLINE {
            self.wait(probes, &mut streams, &mut replies);
            if sent.elapsed() > RESEND {
                sent = Instant::now();
                let lost = |index: &usize| probes[*index].udp && probes[*index].expected && !replies[*index];
                (0..probes.len()).filter(lost).for_each(|index| self.send(index, &probes[index]));
            }
        }
        barrier.wait();
        let done = Instant::now();
        while done.elapsed() < GRACE {
            self.wait(probes, &mut streams, &mut replies);
        }
        replies
    }

    fn send(&self, index: usize, probe: &Probe) {
        let payload = [self.sequence.to_be_bytes(), (index as u32).to_be_bytes()].concat();
        self.sockets[usize::from(probe.to.is_ipv6())].send_to(&payload, probe.to).expect("sent");
    }

    /// Waits for something to happen, but not long.
    fn wait(&self, probes: &[Probe], streams: &mut HashMap<usize, Stream>, replies: &mut [bool]) {
        let open: Vec<(usize, &OwnedFd)> = streams
            .iter()
            .filter_map(|(index, stream)| match stream {
                Stream::Open(fd) => Some((*index, fd)),
                Stream::Done => None,
            })
            .collect();
        let mut polled: Vec<PollFd<'_>> =
            self.sockets.iter().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)).collect();
        polled.extend(open.iter().map(|(_, fd)| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let pause = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        poll(&mut polled, Some(&pause)).expect("polled");
        let ready: Vec<usize> = open
            .iter()
            .zip(&polled[2..])
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((index, _), _)| *index)
            .collect();
        for index in ready {
            if let Some(Stream::Open(fd)) = streams.insert(index, Stream::Done) {
                replies[index] = read(fd, probes[index].server);
            }
        }
        self.sockets.iter().for_each(|socket| self.receive(socket, probes, replies));
    }

    fn receive(&self, socket: &UdpSocket, probes: &[Probe], replies: &mut [bool]) {
        let mut buffer = [0; 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let word = |at: usize| u32::from_be_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]]);
            if length == 9 && word(1) == self.sequence {
                let index = word(5) as usize;
                assert_eq!((from, buffer[0]), (probes[index].to, probes[index].server), "another pod replied");
                replies[index] = true;
            }
        }
    }
}

fn open(to: SocketAddr) -> Stream {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
    // A reset when it is closed, so that no state stays.
    set_socket_linger(&fd, Some(Duration::ZERO)).expect("an option");
    match connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Stream::Open(fd),
        Err(_) => Stream::Done,
    }
}

/// Whether the right pod has replied.
fn read(fd: OwnedFd, server: u8) -> bool {
    let mut stream = TcpStream::from(fd);
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(1) => {
            assert_eq!(byte[0], server, "another pod replied");
            true
        }
        Ok(_) => false,
        Err(error) => {
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the socket was readable");
            false
        }
    }
}
