//! The assignment of CPUs, as tables.

use super::super::machine::made_up::machine;
use super::super::numa::Hint;
use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("CPUs")
}

fn taken(machine: &Machine, free: &str, wanted: usize, strategy: AllocationStrategy) -> String {
    take_cpus(machine, &set(free), wanted, strategy).map_or_else(|why| why.to_string(), |cpus| cpus.to_string())
}

#[test]
fn takes_whole_parts_first() {
    let (flat, threads) = (machine(1, 1, 4, 1, 4), machine(2, 1, 4, 2, 4));
    let cases = [
        (&flat, "0-3", 0, ""),
        (&flat, "0-3", 2, "0-1"),
        (&flat, "1,3", 2, "1,3"),
        (&flat, "1", 2, "not enough cpus available to satisfy request: requested=2, available=1"),
        // Both threads of a core: 0 and 8, of the first socket 0-3,8-11.
        (&threads, "0-15", 1, "0"),
        (&threads, "0-15", 2, "0,8"),
        (&threads, "0-15", 3, "0-1,8"),
        (&threads, "0-15", 8, "0-3,8-11"),
        (&threads, "0-15", 10, "0-4,8-12"),
        // A partly used core is filled up first.
        (&threads, "1-15", 1, "8"),
        (&threads, "1-15", 2, "1,9"),
        // Whole cores, wherever they are; of them the socket with the least left.
        (&threads, "0-7,12-15", 2, "4,12"),
        (&threads, "3,11,4-7,12-15", 2, "3,11"),
    ];
    for (machine, free, wanted, want) in cases {
        assert_eq!(taken(machine, free, wanted, AllocationStrategy::default()), want, "{wanted} of {free}");
    }
}

#[test]
fn takes_sockets_with_several_nodes_whole() {
    // 2 sockets of 2 nodes of 2 cores: nodes 0-1, 2-3 and 4-5, 6-7.
    let machine = machine(2, 2, 2, 1, 2);
    for (free, wanted, want) in [
        ("0-7", 4, "0-3"),
        ("0-7", 2, "0-1"),
        ("1-7", 2, "2-3"),
        ("1-7", 4, "4-7"),
        ("1-7", 3, "1-3"),
        ("0-6", 2, "4-5"),
    ] {
        assert_eq!(taken(&machine, free, wanted, AllocationStrategy::default()), want, "{wanted} of {free}");
    }
}

#[test]
fn spreads_threads_over_cores() {
    let (machine, strategy) =
        (machine(1, 1, 4, 2, 4), AllocationStrategy { spread: true, ..AllocationStrategy::default() });
    for (free, wanted, want) in [("0-7", 2, "0-1"), ("0-7", 5, "0-4"), ("0,4,1", 2, "0-1"), ("0-7", 8, "0-7")] {
        assert_eq!(taken(&machine, free, wanted, strategy), want, "{wanted} of {free}");
    }
}

#[test]
fn keeps_caches_together() {
    // 8 cores of 2 threads; a cache for each 4 cores: 0-3,8-11 and 4-7,12-15.
    let machine = machine(1, 1, 8, 2, 4);
    let strategy = AllocationStrategy { by_cache: true, ..AllocationStrategy::default() };
    let cases = [
        ("0-15", 8, "0-3,8-11"),
        ("1-15", 8, "4-7,12-15"),
        ("1-15", 4, "1-2,9-10"),
        ("3,11,4-7,12-15", 4, "4-5,12-13"),
        ("0-15", 10, "0-4,8-12"),
        ("0-15", 3, "0-1,8"),
        ("0-2,4-6", 4, "0-2,4"),
    ];
    for (free, wanted, want) in cases {
        assert_eq!(taken(&machine, free, wanted, strategy), want, "{wanted} of {free}");
    }
}

#[test]
fn distributes_cpus_evenly_over_nodes() {
    // 4 nodes of 4 cores of 1 thread, one a socket.
    let wide = machine(4, 1, 4, 1, 4);
    let even = |group| AllocationStrategy { distribute: Some(group), ..AllocationStrategy::default() };
    let cases = [
        (&wide, "0-15", 3, 1, "0-2"),
        (&wide, "0-15", 6, 1, "0-2,4-6"),
        (&wide, "0-15", 9, 1, "0-2,4-6,8-10"),
        (&wide, "0-15", 7, 1, "0-3,4-6"),
        (&wide, "0,4-15", 6, 1, "4-6,8-10"),
    ];
    for (machine, free, wanted, group, want) in cases {
        let want = set(want).to_string();
        assert_eq!(taken(machine, free, wanted, even(group)), want, "{wanted} of {free}");
    }
    // 2 nodes of 4 cores of 2 threads; cores stay whole.
    let threads = machine(2, 1, 4, 2, 4);
    assert_eq!(taken(&threads, "0-15", 12, even(2)), "0-2,4-6,8-10,12-14");
    assert_eq!(
        taken(&threads, "0-15", 9, even(2)),
        taken(&threads, "0-15", 9, AllocationStrategy::default()),
        "not in groups"
    );
}

fn policy(machine: Machine, options: Options, reserved: &str) -> Policy {
    Policy::new(Arc::new(machine), options, Reserved::These(&set(reserved))).expect("a policy")
}

fn pod(uid: &str, init: &[(&str, u32, bool)], main: &[(&str, u32)]) -> Tree {
    let container = |name: &str, cpus: u32, stays: bool| {
        let amounts = tree! { "cpu" => cpus.to_string(), "memory" => "1Gi" };
        let mut spec = tree! {
            "name" => name,
            "resources" => tree! { "requests" => amounts.clone(), "limits" => amounts },
        };
        if stays {
            spec.set("restartPolicy", "Always");
        }
        spec
    };
    let init: Vec<Tree> = init.iter().map(|(name, cpus, stays)| container(name, *cpus, *stays)).collect();
    let main: Vec<Tree> = main.iter().map(|(name, cpus)| container(name, *cpus, false)).collect();
    tree! {
        "metadata" => tree! { "uid" => uid, "name" => uid },
        "spec" => tree! { "initContainers" => init, "containers" => main },
    }
}

fn allocate(policy: &Policy, state: &mut State, pod: &Tree) -> Result<String, Rejection> {
    for spec in requests::containers(pod) {
        policy.allocate(state, pod, spec, None)?;
    }
    let shown = |(name, cpus): (&String, &CpuSet)| format!("{name}={cpus}");
    Ok(state.given.get(pod::uid(pod)).into_iter().flatten().map(shown).collect::<Vec<_>>().join(" "))
}

#[test]
fn assigns_reuses_and_releases_cpus() {
    let policy = policy(machine(1, 1, 8, 1, 8), Options::default(), "0");
    let mut state = policy.fresh();
    let first = pod("a", &[("i", 3, false), ("s", 1, true)], &[("c", 2), ("d", 1)]);
    assert_eq!(allocate(&policy, &mut state, &first).ok().as_deref(), Some("c=2-3 d=4 i=1-3 s=1"));
    assert_eq!(state.shared.to_string(), "0,5-7");
    let before = state.clone();
    assert!(allocate(&policy, &mut state, &first).is_ok());
    assert_eq!(state, before, "what a container has it keeps");
    let second = pod("b", &[], &[("c", 4)]);
    let why = "not enough cpus available to satisfy request: requested=4, available=3";
    let refused = allocate(&policy, &mut state, &second);
    assert!(matches!(refused, Err(Rejection::Unexpected(error)) if error.to_string() == why));
    assert_eq!(policy.check(&state), Ok(()));
    assert_eq!(State::read(&state.to_checkpoint()), Ok(state.clone()));
    assert!(state.release("a") && !state.release("a"));
    assert_eq!(state, policy.fresh());
}

#[test]
fn assigns_only_whole_cores() {
    let options = Options { full_cores_only: true, ..Options::default() };
    let policy = policy(machine(1, 1, 2, 2, 2), options, "0");
    let mut state = policy.fresh();
    let odd = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2";
    let refused = allocate(&policy, &mut state, &pod("a", &[], &[("c", 1)]));
    assert!(matches!(refused, Err(Rejection::Smt(error)) if error.to_string() == odd));
    let many = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, \
                CPUs per core = 2";
    let refused = allocate(&policy, &mut state, &pod("a", &[], &[("c", 4)]));
    assert!(matches!(refused, Err(Rejection::Smt(error)) if error.to_string() == many));
    assert_eq!(allocate(&policy, &mut state, &pod("a", &[], &[("c", 2)])).ok().as_deref(), Some("c=1,3"));
    assert!(allocate(&policy, &mut state, &pod("a", &[], &[("c", 2)])).is_ok(), "it has them");
}

#[test]
fn reserved_cpus_are_shared_unless_they_are_strictly_reserved() {
    let strict = Options { strict_reservation: true, ..Options::default() };
    let made = |options| policy(machine(1, 1, 4, 1, 4), options, "0,2").fresh().shared.to_string();
    assert_eq!((made(Options::default()), made(strict)), ("0-3".to_string(), "1,3".to_string()));
    let machine = Arc::new(machine(1, 1, 4, 2, 4));
    let counted = |milli| Policy::new(machine.clone(), Options::default(), Reserved::Milli(milli));
    assert_eq!(counted(1500).map(|policy| policy.reserved.to_string()).as_deref(), Ok("0,4"));
    assert!(counted(0).is_err_and(|why| why.to_string().contains("to be greater than zero")));
    let missing = Policy::new(machine.clone(), Options::default(), Reserved::These(&set("7-9")));
    assert!(missing.is_err_and(|why| why.to_string() == "there are no CPUs 8-9 to reserve"));
}

#[test]
fn rejects_state_that_does_not_fit() {
    let policy = policy(machine(1, 1, 4, 1, 4), Options::default(), "0");
    let state = |shared: &str, given: &str| {
        let containers = BTreeMap::from([("c".to_string(), set(given))]);
        State { shared: set(shared), given: BTreeMap::from([("u".to_string(), containers)]) }
    };
    let cases = [
        ("0,2-3", "1", ""),
        ("", "0-3", "default cpuset cannot be empty"),
        ("1-2", "3", "not all reserved cpus: \"0\" are present in defaultCpuSet: \"1-2\""),
        ("0-2", "2-3", "pod: u, container: c cpuset: \"2-3\" overlaps with default cpuset \"0-2\""),
        ("0-2", "3-4", "current set of available CPUs \"0-3\" doesn't match with CPUs in state \"0-4\""),
        ("0-1", "2", "current set of available CPUs \"0-3\" doesn't match with CPUs in state \"0-2\""),
    ];
    for (shared, given, want) in cases {
        assert_eq!(
            policy.check(&state(shared, given)).err().map(|error| error.to_string()).unwrap_or_default(),
            want,
            "{shared} {given}"
        );
    }
}

fn shown(hints: &[Hint]) -> String {
    let one = |hint: &Hint| {
        let nodes: CpuSet = hint.affinity.unwrap_or_default().bits().collect();
        format!("{nodes}{}", if hint.preferred { "!" } else { "" })
    };
    hints.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn hints_name_nodes_with_enough_cpus() {
    // Nodes 0-3 and 4-7.
    let policy = policy(machine(2, 1, 4, 1, 4), Options::default(), "0");
    let hints = |state: &State, cpus: u32| {
        let pod = pod("a", &[], &[("c", cpus)]);
        let spec = requests::containers(&pod).next().expect("a container").clone();
        let hints = policy.hints(state, &pod, &spec);
        hints.get("cpu").map(|hints| shown(hints.as_ref().expect("a list")))
    };
    let fresh = policy.fresh();
    let cases = [(0, None), (2, Some("0! 1! 0,1")), (4, Some("1! 0,1")), (6, Some("0,1!")), (8, Some(""))];
    for (cpus, want) in cases {
        assert_eq!(hints(&fresh, cpus).map(|hints| hints.replace('-', ",")).as_deref(), want, "{cpus}");
    }
    let mut state = policy.fresh();
    let near = Some([1].into_iter().collect());
    let has = pod("a", &[], &[("c", 2)]);
    let spec = requests::containers(&has).next().expect("a container");
    policy.allocate(&mut state, &has, spec, near).expect("CPUs");
    assert_eq!(state.of("a", "c").map(ToString::to_string).as_deref(), Some("4-5"));
    assert_eq!(hints(&state, 2).map(|hints| hints.replace('-', ",")).as_deref(), Some("1! 0,1"), "where it is");
    assert_eq!(hints(&state, 3).as_deref(), Some(""), "it has another number");
}

#[test]
fn aligns_by_socket() {
    let options = Options { align_by_socket: true, ..Options::default() };
    let policy = policy(machine(2, 2, 2, 1, 2), options, "0");
    let pod = pod("a", &[], &[("c", 2)]);
    let hints = policy.pod_hints(&policy.fresh(), &pod);
    let preferred: Vec<Hint> = hints["cpu"].clone().expect("hints").into_iter().filter(|hint| hint.preferred).collect();
    assert_eq!(shown(&preferred), "1! 2! 3! 0-1! 2-3!");
}
