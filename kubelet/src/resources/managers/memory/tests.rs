//! Memory assignments as tables.

use super::super::machine::made_up::machine;
use super::*;
use crate::model::cpuset::CpuSet;

const GIB: u64 = 1 << 30;

fn policy(nodes: u32) -> Policy {
    let reserved = (0..nodes).map(|node| (node, Amounts::from([(MEMORY.to_string(), GIB)]))).collect();
    Policy::new(&Arc::new(machine(nodes, 1, 2, 1, 2)), &reserved, u64::from(nodes) * GIB).expect("a policy")
}

fn pod(uid: &str, init: &[(&str, u64)], main: &[(&str, u64)]) -> Tree {
    let container = |(name, gib): &(&str, u64)| {
        let amounts = tree! { "cpu" => "1", "memory" => format!("{gib}Gi") };
        tree! { "name" => *name, "resources" => tree! { "requests" => amounts.clone(), "limits" => amounts } }
    };
    let list = |containers: &[(&str, u64)]| containers.iter().map(container).collect::<Vec<Tree>>();
    tree! {
        "metadata" => tree! { "uid" => uid, "name" => uid },
        "spec" => tree! { "initContainers" => list(init), "containers" => list(main) },
    }
}

fn allocate(policy: &Policy, state: &mut State, pod: &Tree) -> Result<String, String> {
    for spec in requests::containers(pod) {
        policy.allocate(state, pod, spec, Hint::default()).map_err(|refusal| refusal.problem().message)?;
    }
    let shown = |spec: &Tree| state.nodes(pod::uid(pod), spec.str("name")).bits().collect::<CpuSet>().to_string();
    Ok(requests::containers(pod).map(shown).collect::<Vec<_>>().join(" "))
}

#[test]
fn assigns_memory_of_the_fewest_nodes() {
    let policy = policy(2);
    let mut state = State::default();
    let mut give = |uid: &str, gib: u64| allocate(&policy, &mut state, &pod(uid, &[], &[("c", gib)]));
    assert_eq!(give("a", 5).as_deref(), Ok("0"));
    assert_eq!(give("b", 5).as_deref(), Ok("1"), "the first has 4 left");
    assert_eq!(give("c", 4).as_deref(), Ok("0"));
    let none = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available";
    let want = format!("Allocate failed due to {none}, which is unexpected");
    assert_eq!(give("d", 5), Err(want), "nodes that give by themselves do not give together");
    state.release("a");
    state.release("b");
    state.release("c");
    let mut give = |uid: &str, gib: u64| allocate(&policy, &mut state, &pod(uid, &[], &[("c", gib)]));
    assert_eq!(give("e", 12).as_deref(), Ok("0-1"));
    assert_eq!(give("f", 1).as_deref(), Ok("0-1"), "nor by themselves while they give together");
    assert!(give("g", 6).is_err(), "5 are left");
}

#[test]
fn reuses_memory_of_init_containers() {
    let policy = policy(1);
    let mut state = State::default();
    let first = pod("a", &[("i", 6), ("j", 4)], &[("c", 5), ("d", 2)]);
    assert_eq!(allocate(&policy, &mut state, &first).as_deref(), Ok("0 0 0 0"));
    let free = |state: &State| free(&policy.cells(state), [0].into_iter().collect(), MEMORY) / GIB;
    assert_eq!(free(&state), 2, "9 less 7");
    assert_eq!(policy.to_checkpoint(&state).str("policyName"), "Static");
    let again = State::read(&policy.to_checkpoint(&state)).expect("a state");
    assert_eq!(again, state);
    assert_eq!(policy.check(policy.to_checkpoint(&state).at("machineState"), &again), Ok(()));
    state.release("a");
    assert_eq!(free(&state), 9);
}

#[test]
fn detects_another_machine() {
    let (one, two) = (policy(1), policy(2));
    let mut state = State::default();
    allocate(&two, &mut state, &pod("a", &[], &[("c", 5)])).expect("memory");
    let kept = two.to_checkpoint(&state);
    let want = "[memorymanager] the expected machine state is different from the real one";
    assert_eq!(one.check(kept.at("machineState"), &state).map_err(|error| error.to_string()), Err(want.to_string()));
}

#[test]
fn reserved_memory_must_match_allocatable() {
    let machine = Arc::new(machine(2, 1, 2, 1, 2));
    let of = |node: u32, kind: &str, gib: u64| BTreeMap::from([(node, Amounts::from([(kind.to_string(), gib * GIB)]))]);
    let check = |reserved, kept| {
        Policy::new(&machine, &reserved, kept * GIB).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(check(of(0, MEMORY, 1), 1), "");
    let cases = [
        (of(3, MEMORY, 1), 1, "references a NUMA node 3 that does not exist"),
        (BTreeMap::new(), 0, "you should specify the system reserved memory"),
        (of(0, MEMORY, 1), 2, "the total amount \"1Gi\" of type \"memory\" is not equal to the value \"2Gi\""),
    ];
    for (reserved, kept, want) in cases {
        let why = check(reserved, kept);
        assert!(why.contains(want), "{why}");
    }
}

#[test]
fn extends_a_hint_that_is_too_small() {
    let policy = policy(2);
    let mut state = State::default();
    let wanted = pod("a", &[], &[("c", 12)]);
    let spec = requests::containers(&wanted).next().expect("a container");
    let near = |preferred| Hint { affinity: Some([1].into_iter().collect()), preferred };
    policy.allocate(&mut state, &wanted, spec, near(true)).expect("memory");
    assert_eq!(state.nodes("a", "c").bits().collect::<Vec<_>>(), [0, 1]);
    let hints = policy.hints(&state, &wanted, spec);
    let both = Hint { affinity: Some([0, 1].into_iter().collect()), preferred: true };
    assert_eq!(hints, Hints::from([(MEMORY.to_string(), Some(vec![both]))]), "where it is");
}
