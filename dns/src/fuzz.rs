//! Fuzzing harnesses of the parsers: no input panics, and what is read round-trips. `fuzz/` runs them with a fuzzer; the
//! tests below with mutations of valid input.

use crate::corefile::Corefile;
use crate::message::{Message, Name};

/// A message that can be read is written and read again as the same, and is never larger than its limit.
pub fn fuzz_message(data: &[u8]) {
    let Ok(message) = Message::read(data) else { return };
    let bytes = message.write(usize::from(u16::MAX));
    let again = Message::read(&bytes).expect("our own message is read");
    // A message whose names were all compressed may be too large without compression of ours.
    if !again.header.truncated || message.header.truncated {
        assert_eq!(again, message, "a message changes");
    }
    let short = message.write(512);
    let is_bounded = short.len() <= 512 || message.answers.len() + message.authorities.len() == 0;
    assert!(is_bounded, "{} bytes instead of 512", short.len());
    Message::read(&short).expect("a truncated message is read");
    for record in message.records() {
        let text = record.name.to_string();
        assert_eq!(Name::parse(&text).as_ref(), Ok(&record.name), "a name changes as {text}");
    }
}

/// Every problem of a Corefile has a line of it.
pub fn fuzz_corefile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Err(errors) = Corefile::parse(text, &|name| Some(name.to_string())) else { return };
    assert!(!errors.is_empty());
    let lines = text.lines().count().max(1);
    assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)), "{errors:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Edns, Question, Rcode, Record, Type};

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) as usize % bound.max(1)
        }
    }

    /// Cuts, flips, doubles and splices bytes.
    fn mutate(data: &mut Vec<u8>, random: &mut Random) {
        for _ in 0..=random.below(4) {
            let at = random.below(data.len() + 1);
            match random.below(6) {
                0 => data.truncate(at),
                1 => data.insert(at, random.below(256) as u8),
                2 if at < data.len() => data[at] = random.below(256) as u8,
                3 if at < data.len() => data[at] ^= 1 << random.below(8),
                // Pointers are what a parser of names fails at.
                4 if at + 1 < data.len() => data[at..at + 2].copy_from_slice(&[0xc0, random.below(64) as u8]),
                _ => {
                    let piece = data[at..data.len().min(at + random.below(32))].to_vec();
                    let place = random.below(data.len() + 1);
                    data.splice(place..place, piece);
                }
            }
        }
    }

    fn messages() -> Vec<Vec<u8>> {
        let name = |text: &str| Name::parse(text).expect("a name");
        let query = Message::query(7, Question::new(name("a.a.web.default.svc.cluster.local"), Type::SRV));
        let mut response = query.reply(Rcode::NO_ERROR);
        response.answers =
            (0..40).map(|n| Record::address(name(&format!("x{n}.a.a.org")), n, [10, 0, 0, 1].into())).collect();
        response.authorities = vec![Record::cname(name("a"), 1, name("b.a")), Record::txt(name("a"), 1, "text")];
        response.additionals = vec![Record::ptr(name("1.1.1.1.in-addr.arpa"), 1, name("1.1.1.1.in-addr.arpa"))];
        response.edns = Some(Edns { payload: 1232, version: 0, dnssec_ok: true });
        vec![query.write(512), response.write(65535)]
    }

    fn check(target: fn(&[u8]), inputs: &[Vec<u8>], seed: u64) {
        let mut random = Random(seed);
        for _ in 0..4000 {
            let mut data = inputs[random.below(inputs.len())].clone();
            target(&data);
            for _ in 0..3 {
                mutate(&mut data, &mut random);
                target(&data);
            }
        }
        for _ in 0..4000 {
            let data: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
            target(&data);
        }
    }

    #[test]
    fn messages_survive_mutations() {
        check(fuzz_message, &messages(), 42);
    }

    #[test]
    fn corefiles_survive_mutations() {
        let more = ". a:53 10.0.0.0/8 {\nrewrite stop name regex (.*)x {1} answer name a b value c d\nlog . \"{x}\" {\n\
                    class all\n}\nhosts {\n10.0.0.1 a\nttl 5\n}\ncache 5 a {\nprefetch 1 1s 10%\n}\nbind ::1\n}\n{$X}";
        check(fuzz_corefile, &[crate::default_corefile("cluster.local").into_bytes(), more.into()], 7);
    }
}
