//! Compiles a profile into the kernel's filter: classic BPF over the system call's number, architecture and arguments.

use std::collections::BTreeMap;

use super::numbers::{ARCHITECTURE, X32_BIT, number};
use super::profile::{Action, Argument, Comparison, Profile};
use crate::error::{Result, refused};

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const GREATER_OR_EQUAL: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const MAX_INSTRUCTIONS: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// How many instructions to skip if the comparison is true, and if it is false.
    yes: u8,
    no: u8,
    constant: u32,
}

fn plain(code: u16, constant: u32) -> Instruction {
    Instruction { code, yes: 0, no: 0, constant }
}

fn return_action(action: Action) -> Instruction {
    let value = match action {
        Action::Allow => 0x7fff_0000,
        Action::Errno(errno) => 0x0005_0000 | u32::from(errno),
        Action::KillThread => 0,
        Action::KillProcess => 0x8000_0000,
        Action::Trap => 0x0003_0000,
        Action::Trace(errno) => 0x7ff0_0000 | u32::from(errno),
        Action::Log => 0x7ffc_0000,
    };
    plain(RETURN, value)
}

/// The rules of one system call: those with conditions, and the one without.
#[derive(Default)]
struct Syscall<'a> {
    conditional: Vec<(&'a [Argument], Action)>,
    otherwise: Option<Action>,
}

/// Compiles a profile into bytes, eight per instruction. Skips names that this architecture does not have, since no
/// program can call them.
pub(crate) fn compile(profile: &Profile) -> Result<Vec<u8>> {
    let mut calls: BTreeMap<u32, Syscall> = BTreeMap::new();
    for rule in &profile.rules {
        for number in rule.names.iter().filter_map(|name| number(name)) {
            let call = calls.entry(number).or_default();
            if rule.arguments.is_empty() {
                call.otherwise = call.otherwise.or(Some(rule.action));
            } else {
                call.conditional.push((&rule.arguments, rule.action));
            }
        }
    }
    let code = program(&calls, profile.default);
    if code.len() > MAX_INSTRUCTIONS {
        return refused(format!("the seccomp profile needs {} instructions; the kernel's limit is 4096", code.len()));
    }
    Ok(code.iter().flat_map(bytes).collect())
}

fn bytes(instruction: &Instruction) -> [u8; 8] {
    let [c0, c1] = instruction.code.to_ne_bytes();
    let [k0, k1, k2, k3] = instruction.constant.to_ne_bytes();
    [c0, c1, instruction.yes, instruction.no, k0, k1, k2, k3]
}

fn program(calls: &BTreeMap<u32, Syscall>, default: Action) -> Vec<Instruction> {
    let mut code = vec![
        plain(LOAD, ARCHITECTURE_AT),
        Instruction { code: EQUAL, yes: 1, no: 0, constant: ARCHITECTURE },
        // The numbers of another architecture have other meanings, so its calls cannot be checked.
        return_action(Action::KillProcess),
        plain(LOAD, NUMBER_AT),
    ];
    if let Some(bit) = X32_BIT {
        code.push(Instruction { code: GREATER_OR_EQUAL, yes: 0, no: 1, constant: bit });
        code.push(return_action(Action::Errno(libc::ENOSYS as u16)));
    }
    for (from, to, action) in ranges(calls) {
        code.push(Instruction { code: GREATER_OR_EQUAL, yes: 0, no: 2, constant: from });
        code.push(Instruction { code: GREATER, yes: 1, no: 0, constant: to });
        code.push(return_action(action));
    }
    for (number, call) in calls.iter().filter(|(_, c)| !c.conditional.is_empty()) {
        let block = block(call, default);
        // The block may be longer than the maximum jump of a comparison.
        code.push(Instruction { code: EQUAL, yes: 1, no: 0, constant: *number });
        code.push(plain(JUMP, block.len() as u32));
        code.extend(block);
    }
    code.push(return_action(default));
    code
}

/// System calls without conditions; consecutive numbers with the same action form a range.
fn ranges(calls: &BTreeMap<u32, Syscall>) -> Vec<(u32, u32, Action)> {
    let mut ranges: Vec<(u32, u32, Action)> = Vec::new();
    let plain = calls.iter().filter(|(_, c)| c.conditional.is_empty());
    for (number, action) in plain.filter_map(|(n, c)| Some((*n, c.otherwise?))) {
        match ranges.last_mut() {
            Some((_, to, same)) if *to + 1 == number && *same == action => *to = number,
            _ => ranges.push((number, number, action)),
        }
    }
    ranges
}

fn block(call: &Syscall, default: Action) -> Vec<Instruction> {
    let mut code = Vec::new();
    for (arguments, action) in &call.conditional {
        let tests: Vec<_> = arguments.iter().map(test).collect();
        let mut left: usize = tests.iter().map(Vec::len).sum::<usize>() + 1;
        for test in tests {
            for instruction in test {
                left -= 1;
                code.push(resolve(instruction, left));
            }
        }
        code.push(return_action(*action));
    }
    code.push(return_action(call.otherwise.unwrap_or(default)));
    code
}

/// A placeholder for the jump to the next rule, whose distance is only known when the rule is complete.
const NEXT_RULE: u8 = u8::MAX;

/// Resolves the placeholder: the next rule begins after `left` more instructions.
fn resolve(instruction: Instruction, left: usize) -> Instruction {
    let target = |jump: u8| if jump == NEXT_RULE { left as u8 } else { jump };
    Instruction { yes: target(instruction.yes), no: target(instruction.no), ..instruction }
}

/// The test of one argument, which falls through if it matches. Arguments have 64 bits and are compared in halves.
fn test(argument: &Argument) -> Vec<Instruction> {
    let (low, high) = halves(argument.index);
    let (value_low, value_high) = (argument.value as u32, (argument.value >> 32) as u32);
    let compare = |code, yes, no, constant| Instruction { code, yes, no, constant };
    match argument.comparison {
        Comparison::Equal => vec![
            plain(LOAD, high),
            compare(EQUAL, 0, NEXT_RULE, value_high),
            plain(LOAD, low),
            compare(EQUAL, 0, NEXT_RULE, value_low),
        ],
        Comparison::NotEqual => vec![
            plain(LOAD, high),
            compare(EQUAL, 0, 2, value_high),
            plain(LOAD, low),
            compare(EQUAL, NEXT_RULE, 0, value_low),
        ],
        Comparison::Masked(mask) => vec![
            plain(LOAD, high),
            plain(AND, (mask >> 32) as u32),
            compare(EQUAL, 0, NEXT_RULE, value_high),
            plain(LOAD, low),
            plain(AND, mask as u32),
            compare(EQUAL, 0, NEXT_RULE, value_low),
        ],
        Comparison::Greater => ordered(argument, GREATER, true),
        Comparison::GreaterOrEqual => ordered(argument, GREATER_OR_EQUAL, true),
        Comparison::Less => ordered(argument, GREATER_OR_EQUAL, false),
        Comparison::LessOrEqual => ordered(argument, GREATER, false),
    }
}

/// The high halves decide unless they are equal. `holds` is the outcome of the low comparison that matches.
fn ordered(argument: &Argument, low_code: u16, holds: bool) -> Vec<Instruction> {
    let (low, high) = halves(argument.index);
    let (value_low, value_high) = (argument.value as u32, (argument.value >> 32) as u32);
    // After the two comparisons of the high half, two instructions remain in this test.
    let (greater, less) = if holds { (3, NEXT_RULE) } else { (NEXT_RULE, 2) };
    let (yes, no) = if holds { (0, NEXT_RULE) } else { (NEXT_RULE, 0) };
    vec![
        plain(LOAD, high),
        Instruction { code: GREATER, yes: greater, no: 0, constant: value_high },
        Instruction { code: EQUAL, yes: 0, no: less, constant: value_high },
        plain(LOAD, low),
        Instruction { code: low_code, yes, no, constant: value_low },
    ]
}

fn halves(index: u32) -> (u32, u32) {
    let at = 16 + 8 * index;
    if cfg!(target_endian = "little") { (at, at + 4) } else { (at + 4, at) }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Rule;
    use super::*;

    /// Interprets a filter as the kernel would.
    fn run(filter: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |at: u32| match at {
            0 => number,
            4 => architecture,
            _ => (arguments[((at - 16) / 8) as usize] >> (if at.is_multiple_of(8) { 0 } else { 32 })) as u32,
        };
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let i: [u8; 8] = filter[at * 8..at * 8 + 8].try_into().unwrap();
            let (code, constant) = (u16::from_ne_bytes([i[0], i[1]]), u32::from_ne_bytes([i[4], i[5], i[6], i[7]]));
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { i[2] } else { i[3] });
            match code {
                LOAD => accumulator = word(constant),
                AND => accumulator &= constant,
                EQUAL => jump(accumulator == constant),
                GREATER => jump(accumulator > constant),
                GREATER_OR_EQUAL => jump(accumulator >= constant),
                JUMP => at += constant as usize,
                _ => return constant,
            }
        }
    }

    const ALLOWED: u32 = 0x7fff_0000;
    const REFUSED: u32 = 0x0005_0001;

    #[test]
    fn compares_64_bit_values() {
        let big = 0x1_0000_0005u64;
        let table = [
            (Comparison::Equal, vec![big], vec![5, big + 1, big - 1, 0]),
            (Comparison::NotEqual, vec![5, big + 1, 1 << 32], vec![big]),
            (Comparison::Less, vec![0, 5, big - 1, 0xffff_ffff], vec![big, big + 1, 2 << 32]),
            (Comparison::LessOrEqual, vec![0, big, 7], vec![big + 1, 2 << 32]),
            (Comparison::Greater, vec![big + 1, 2 << 32], vec![big, big - 1, 6]),
            (Comparison::GreaterOrEqual, vec![big, big + 1, 2 << 32], vec![big - 1, 6]),
            (Comparison::Masked(0xf_0000_000f), vec![big, big | 0x70], vec![5, big | 8]),
        ];
        for (comparison, holding, failing) in table {
            let argument = Argument { index: 1, value: big, comparison };
            let rule = Rule { names: vec!["socket".into()], action: Action::Allow, arguments: vec![argument] };
            let filter = compile(&Profile { default: Action::Errno(1), rules: vec![rule] }).unwrap();
            let socket = number("socket").unwrap();
            let result = |value| run(&filter, ARCHITECTURE, socket, [0, value, 0, 0, 0, 0]);
            for value in holding {
                assert_eq!(result(value), ALLOWED, "{comparison:?} {value:#x}");
            }
            for value in failing {
                assert_eq!(result(value), REFUSED, "{comparison:?} {value:#x}");
            }
        }
    }

    #[test]
    fn evaluates_several_rules_of_one_call() {
        let one = |value| Argument { index: 0, value, comparison: Comparison::Equal };
        let rule = |arguments, action| Rule { names: vec!["personality".into()], action, arguments };
        let rules = vec![
            rule(vec![one(0)], Action::Allow),
            rule(vec![one(8), Argument { index: 1, ..one(3) }], Action::Allow),
            rule(vec![], Action::Log),
        ];
        let filter = compile(&Profile { default: Action::Errno(1), rules }).unwrap();
        let result = |a, b| run(&filter, ARCHITECTURE, number("personality").unwrap(), [a, b, 0, 0, 0, 0]);
        assert_eq!(result(0, 9), ALLOWED);
        assert_eq!(result(8, 3), ALLOWED);
        assert_eq!(result(8, 4), 0x7ffc_0000);
    }

    #[test]
    fn compiles_the_default_profile() {
        let filter = compile(&super::super::default_profile(0)).unwrap();
        let call = |name: &str, first: u64| run(&filter, ARCHITECTURE, number(name).unwrap(), [first, 0, 0, 0, 0, 0]);
        for (name, first, expected) in [
            ("read", 0, ALLOWED),
            ("execve", 0, ALLOWED),
            ("mount", 0, REFUSED),
            ("unshare", 0, REFUSED),
            ("bpf", 0, REFUSED),
            ("keyctl", 0, REFUSED),
            ("io_uring_setup", 0, REFUSED),
            ("clone", 0, ALLOWED),
            ("clone", libc::CLONE_NEWUSER as u64, REFUSED),
            ("clone3", 0, 0x0005_0000 | libc::ENOSYS as u32),
            ("personality", 0xffff_ffff, ALLOWED),
            ("personality", 1, REFUSED),
            ("socket", libc::AF_INET as u64, ALLOWED),
            ("socket", libc::AF_VSOCK as u64, REFUSED),
            ("socket", libc::AF_VSOCK as u64 | 1 << 32, REFUSED),
            ("socket", libc::AF_VSOCK as u64 | 0xffff_ffff << 32, REFUSED),
            ("socket", libc::AF_INET as u64 | 1 << 32, ALLOWED),
            ("personality", u64::MAX, ALLOWED),
            ("personality", 1 | 1 << 32, REFUSED),
            ("clone", libc::CLONE_NEWUSER as u64 | 1 << 32, REFUSED),
            ("chroot", 0, REFUSED),
        ] {
            assert_eq!(call(name, first), expected, "{name}({first:#x})");
        }
        assert_eq!(run(&filter, 0x4000_0003, 0, [0; 6]), 0x8000_0000);
        let admin = compile(&super::super::default_profile(crate::capabilities::ALL)).unwrap();
        assert_eq!(run(&admin, ARCHITECTURE, number("mount").unwrap(), [0; 6]), ALLOWED);
        assert_eq!(run(&admin, ARCHITECTURE, number("clone3").unwrap(), [0; 6]), ALLOWED);
    }
}
