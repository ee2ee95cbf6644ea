//! cgroup v2 has no list of device rules: a BPF program decides on each access.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::error::{Context, Result};
use crate::spec::DeviceRule;
use crate::sys;

const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;
const TYPE_CGROUP_DEVICE: u64 = 15;
const ATTACH_CGROUP_DEVICE: u64 = 6;
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// The kernel's encoding of an instruction.
fn instruction(code: u8, destination: u8, source: u8, offset: i16, constant: i32) -> u64 {
    u64::from(code)
        | u64::from(destination | source << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(constant as u32) << 32
}

const LOAD_WORD: u8 = 0x61;
const MOVE_REGISTER: u8 = 0xbc;
const MOVE_CONSTANT: u8 = 0xb7;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_NOT_EQUAL_REGISTER: u8 = 0x5d;
const EXIT: u8 = 0x95;

/// The last rule that matches an access decides; an access without a matching rule is denied.
fn program(rules: &[DeviceRule]) -> Vec<u64> {
    // Registers: 2 is the device type, 3 the access, 4 the major and 5 the minor number.
    let mut code = vec![
        instruction(LOAD_WORD, 2, 1, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(LOAD_WORD, 3, 1, 0, 0),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(LOAD_WORD, 4, 1, 4, 0),
        instruction(LOAD_WORD, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let block = block(rule);
        let decides = block.len() == VERDICT_LENGTH;
        code.extend(block);
        if decides {
            // The kernel refuses a program with unreachable instructions.
            return code;
        }
    }
    code.extend(verdict(false));
    code
}

const VERDICT_LENGTH: usize = 2;

fn verdict(allow: bool) -> [u64; VERDICT_LENGTH] {
    [instruction(MOVE_CONSTANT, 0, 0, 0, allow.into()), instruction(EXIT, 0, 0, 0, 0)]
}

fn block(rule: &DeviceRule) -> Vec<u64> {
    let access = rule.access.chars().fold(0, |bits, c| {
        bits | match c {
            'm' => 1,
            'r' => 2,
            'w' => 4,
            _ => 0,
        }
    });
    // Each test jumps to the end of the block if it does not match; the offsets are filled in below.
    let mut tests: Vec<Vec<u64>> = Vec::new();
    match rule.kind.as_str() {
        "b" => tests.push(vec![instruction(JUMP_NOT_EQUAL, 2, 0, 0, BLOCK)]),
        "c" => tests.push(vec![instruction(JUMP_NOT_EQUAL, 2, 0, 0, CHARACTER)]),
        _ => {}
    }
    if access != 7 {
        // The rule must contain every requested access.
        tests.push(vec![
            instruction(MOVE_REGISTER, 1, 3, 0, 0),
            instruction(AND, 1, 0, 0, access),
            instruction(JUMP_NOT_EQUAL_REGISTER, 1, 3, 0, 0),
        ]);
    }
    for (register, number) in [(4, rule.major), (5, rule.minor)] {
        tests.extend(number.map(|n| vec![instruction(JUMP_NOT_EQUAL, register, 0, 0, n as i32)]));
    }
    let mut code: Vec<u64> = tests.concat();
    let length = code.len() + VERDICT_LENGTH;
    for (index, word) in code.iter_mut().enumerate() {
        if matches!(*word as u8, JUMP_NOT_EQUAL | JUMP_NOT_EQUAL_REGISTER) {
            *word |= ((length - index - 1) as u64) << 16;
        }
    }
    code.extend(verdict(rule.allow));
    code
}

pub(super) fn attach(directory: &Path, rules: &[DeviceRule]) -> Result<()> {
    let code = program(rules);
    let license = c"Apache-2.0";
    let mut load = [0u64; 16];
    load[0] = TYPE_CGROUP_DEVICE | (code.len() as u64) << 32;
    load[1] = code.as_ptr() as u64;
    load[2] = license.as_ptr() as u64;
    let program = sys::bpf(PROG_LOAD, &mut load).at("loading the device program")?;
    // SAFETY: the kernel just gave this descriptor to us.
    let program = unsafe { OwnedFd::from_raw_fd(program as i32) };
    let group = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("opening {}", directory.display()))?;
    let mut attach = [0u64; 4];
    attach[0] = group.as_raw_fd() as u64 | (program.as_raw_fd() as u64) << 32;
    attach[1] = ATTACH_CGROUP_DEVICE;
    sys::bpf(PROG_ATTACH, &mut attach).at("attaching the device program").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program as the kernel would.
    fn decide(code: &[u64], kind: u64, access: u64, major: u64, minor: u64) -> bool {
        let mut registers = [0u64; 11];
        let context = [kind | access << 16, major, minor];
        let mut at = 0;
        loop {
            let word = code[at];
            let (destination, source) = ((word >> 8 & 15) as usize, (word >> 12 & 15) as usize);
            let (offset, constant) = ((word >> 16) as i16, word >> 32);
            at += 1;
            let mut jump = |taken: bool| {
                if taken {
                    at += offset as usize
                }
            };
            match word as u8 {
                LOAD_WORD => registers[destination] = context[offset as usize / 4],
                MOVE_REGISTER => registers[destination] = registers[source],
                MOVE_CONSTANT => registers[destination] = constant,
                AND => registers[destination] &= constant,
                SHIFT_RIGHT => registers[destination] >>= constant,
                JUMP_NOT_EQUAL => jump(registers[destination] != constant),
                JUMP_NOT_EQUAL_REGISTER => jump(registers[destination] != registers[source]),
                _ => return registers[0] == 1,
            }
        }
    }

    fn rule(allow: bool, kind: &str, major: Option<u32>, minor: Option<u32>, access: &str) -> DeviceRule {
        DeviceRule { allow, kind: kind.into(), major, minor, access: access.into() }
    }

    #[test]
    fn emits_no_code_after_a_rule_that_matches_everything() {
        let all = rule(false, "a", None, None, "rwm");
        assert_eq!(program(std::slice::from_ref(&all)), program(&[]), "both refuse everything");
        let null = rule(true, "c", Some(1), Some(3), "rwm");
        assert_eq!(program(&[null.clone(), all.clone()]), program(std::slice::from_ref(&all)));
        assert_eq!(program(&[all, null.clone()]), program(&[null]));
    }

    #[test]
    fn the_last_matching_rule_decides() {
        let code = program(&[
            rule(false, "a", None, None, "rwm"),
            rule(true, "c", None, None, "m"),
            rule(true, "c", Some(1), Some(3), "rwm"),
            rule(true, "b", Some(8), None, "r"),
            rule(false, "b", Some(8), Some(1), "rwm"),
        ]);
        let table = [
            (2, 2, 1, 3, true),
            (2, 6, 1, 3, true),
            (2, 2, 1, 4, false),
            (2, 1, 9, 9, true),
            (2, 3, 9, 9, false),
            (1, 2, 8, 0, true),
            (1, 4, 8, 0, false),
            (1, 2, 8, 1, false),
        ];
        for (kind, access, major, minor, expected) in table {
            assert_eq!(decide(&code, kind, access, major, minor), expected, "{kind} {access} {major}:{minor}");
        }
    }
}
