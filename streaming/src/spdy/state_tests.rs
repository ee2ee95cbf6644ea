use super::*;

fn server() -> State {
    let mut state = State::new(Role::Server, Limits { streams: 2, buffer: 1024 }, |_| Ok(()));
    drain(&mut state);
    state
}

fn drain(state: &mut State) -> Vec<Frame> {
    std::iter::from_fn(|| state.next_frame()).collect()
}

fn syn(id: u32) -> Frame {
    Frame::SynStream { id, headers: Headers::new(), fin: false, unidirectional: false }
}

fn reply(id: u32) -> Frame {
    Frame::SynReply { id, headers: Headers::new(), fin: false }
}

fn data(id: u32, size: usize, fin: bool) -> Frame {
    Frame::Data { id, data: vec![b'x'; size].into(), fin }
}

fn write(state: &mut State, id: u32, size: usize) {
    state.streams.get_mut(&id).unwrap().waiting.extend_from_slice(&vec![b'x'; size]);
    state.written(id);
}

#[test]
fn accepts_and_refuses_streams_by_id() {
    let reset = |id, status| Frame::RstStream { id, status };
    let check = |before: &[u32], id, answer| {
        let mut state = server();
        before.iter().for_each(|id| state.receive(syn(*id)).unwrap());
        drain(&mut state);
        state.receive(syn(id)).unwrap();
        assert_eq!(drain(&mut state), [answer], "{id} after {before:?}");
    };
    check(&[], 1, reply(1));
    check(&[1], 3, reply(3));
    check(&[], 2, reset(2, status::PROTOCOL_ERROR));
    check(&[3], 1, reset(1, status::PROTOCOL_ERROR));
    check(&[1], 1, reset(1, status::STREAM_IN_USE));
    check(&[1, 3], 5, reset(5, status::REFUSED_STREAM));
}

#[test]
fn rejected_streams_are_cancelled() {
    let mut state = State::new(Role::Server, Limits::default(), |_| Err("no".into()));
    drain(&mut state);
    state.receive(syn(1)).unwrap();
    assert_eq!(drain(&mut state), [Frame::RstStream { id: 1, status: status::CANCEL }]);
    assert!(state.arrived.is_empty());
}

#[test]
fn answers_pings_once() {
    let mut state = server();
    state.receive(Frame::Ping(1)).unwrap();
    state.receive(Frame::Ping(2)).unwrap();
    assert_eq!(drain(&mut state), [Frame::Ping(1)]);
}

#[test]
fn windows_apply_once_the_peer_uses_them() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    drain(&mut state);
    write(&mut state, 1, 70_000);
    let sent = |frames: &[Frame]| -> usize {
        frames.iter().map(|frame| if let Frame::Data { data, .. } = frame { data.len() } else { 0 }).sum()
    };
    assert_eq!(sent(&drain(&mut state)), 70_000, "it has not said anything");
    state.receive(Frame::WindowUpdate { id: 1, delta: 5_000 }).unwrap();
    write(&mut state, 1, 1_000);
    assert_eq!(sent(&drain(&mut state)), 536, "65536 + 5000 - 70000");
    state.receive(Frame::Settings(vec![(SETTING_INITIAL_WINDOW, 65_636)])).unwrap();
    assert_eq!(sent(&drain(&mut state)), 100);
    state.receive(Frame::WindowUpdate { id: 0, delta: 1 }).unwrap();
    state.receive(Frame::WindowUpdate { id: 1, delta: 1_000 }).unwrap();
    assert_eq!(sent(&drain(&mut state)), 0, "the session's window counts all that was sent");
    state.receive(Frame::WindowUpdate { id: 0, delta: 100_000 }).unwrap();
    assert_eq!(sent(&drain(&mut state)), 364);
    assert_eq!(state.receive(Frame::WindowUpdate { id: 1, delta: 0x7fff_ffff }), Err(Error::Window(1)));
}

#[test]
fn grants_windows_by_halves() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    state.receive(Frame::Settings(vec![(SETTING_INITIAL_WINDOW, 65_536)])).unwrap();
    state.receive(data(1, 1024, false)).unwrap();
    assert!(!state.has_room(&data(1, 1, false)));
    drain(&mut state);
    state.consume(1, 511);
    assert_eq!(drain(&mut state), []);
    state.consume(1, 1);
    assert_eq!(drain(&mut state), [Frame::WindowUpdate { id: 1, delta: 512 }]);
}

#[test]
fn streams_take_turns() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    state.receive(syn(3)).unwrap();
    drain(&mut state);
    write(&mut state, 1, 2 * MAX_PIECE);
    write(&mut state, 3, MAX_PIECE);
    state.streams.get_mut(&3).unwrap().finish = true;
    let ids: Vec<_> = drain(&mut state)
        .into_iter()
        .map(|frame| if let Frame::Data { id, fin, .. } = frame { (id, fin) } else { (0, false) })
        .collect();
    assert_eq!(ids, [(1, false), (3, true), (1, false)]);
    state.receive(data(3, 1, true)).unwrap();
    assert_eq!(state.streams[&3].inbound, Inbound::Finished);
    assert_eq!(state.streams[&1].inbound, Inbound::Open);
    state.release(3);
    assert!(!state.streams.contains_key(&3));
}

#[test]
fn dropped_streams_are_flushed() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    drain(&mut state);
    write(&mut state, 1, 10);
    state.release(1);
    state.receive(data(1, 2000, false)).unwrap();
    assert!(state.has_room(&data(1, 2000, false)), "the stream has no reader, so nothing is kept");
    assert_eq!(drain(&mut state), [data(1, 10, true), Frame::RstStream { id: 1, status: status::CANCEL }]);
    assert!(state.streams.is_empty());
}

#[test]
fn goaway_follows_all_data() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    drain(&mut state);
    write(&mut state, 1, 1);
    state.release(1);
    state.closing = true;
    let reset = Frame::RstStream { id: 1, status: status::CANCEL };
    assert_eq!(drain(&mut state), [data(1, 1, true), reset, Frame::GoAway { last: 1, status: 0 }]);
    assert!(state.has_sent_goaway());
}

#[test]
fn resets_unknown_streams_but_not_late_data() {
    let mut state = server();
    state.receive(syn(1)).unwrap();
    state.reset(1);
    state.release(1);
    drain(&mut state);
    state.receive(data(1, 5, false)).unwrap();
    assert_eq!(drain(&mut state), []);
    state.receive(data(9, 5, false)).unwrap();
    assert_eq!(drain(&mut state), [Frame::RstStream { id: 9, status: status::INVALID_STREAM }]);
}
