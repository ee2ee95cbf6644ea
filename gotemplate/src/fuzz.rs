//! Fuzzing harness: no template panics on any object, and the limits hold. `fuzz/` runs it with a fuzzer, the tests
//! below with mutations of valid templates.

use api::json;

use crate::{Limits, Template};

const LIMITS: Limits = Limits { depth: 250, steps: 20_000, output_bytes: 1 << 20 };

/// The input is a template, a zero byte and a JSON object.
pub fn fuzz_template(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let Ok(template) = Template::parse("output", &text) else { return };
    let object = parts.next().and_then(|text| json::decode(text).ok()).unwrap_or_default();
    for allow in [false, true] {
        let mut out = Vec::new();
        let template = template.clone().allow_missing_keys(allow).limits(LIMITS);
        // The text of an error is built from the syntax tree.
        let _ = template.execute(&object, &mut out).map_err(|error| error.to_string());
        assert!(out.len() <= LIMITS.output_bytes, "the limit of output bytes");
    }
}

#[cfg(test)]
mod tests {
    use api::generate::{self, Random};

    use super::*;

    const TEMPLATES: &[&str] = &[
        "{{range $i, $x := .items}}{{$i}}: {{$x.name | printf \"%-10s|\"}}{{else}}none{{end}}",
        "{{define \"a\"}}{{. | len}}{{template \"a\" .}}{{end}}{{template \"a\" \"x\"}}",
        "{{- with .a.b }}{{ . | html | js | urlquery }}{{ else with .c }}{{ index . 0 }}{{- end -}}",
        "{{if and (eq .a 1 2) (not .b) | or (lt 1 2.5)}}{{break}}{{end}}{{/* c */}}{{printf \"%[2]*.[1]*f %+q %#v %x\" 2 6 3.5}}",
        "{{range 100}}{{range 100}}{{range 100}}x{{end}}{{end}}{{end}}{{slice \"abc\" 1 2}}",
        "{{$x := \"ab\"}}{{range 60}}{{$x = print $x $x}}{{end}}{{base64decode \"aGk=\"}}{{exists . \"a\" 0}}",
    ];

    const PIECES: &[&str] = &[
        "{{", "}}", "|", "(", ")", "$x", ".a", "nil", "end", "else", "range", "\"", "`", "'c'", "1i", "0x1p-2", "%",
        "-", " ", ":=", ",",
    ];

    fn mutate(data: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(data.len() + 1);
        match random.below(5) {
            0 => data.truncate(at),
            1 if at < data.len() => drop(data.remove(at)),
            2 => {
                let piece = PIECES[random.below(PIECES.len())].bytes();
                drop(data.splice(at..at, piece));
            }
            3 => data.insert(at, random.number() as u8),
            _ => {
                let piece = data[at..data.len().min(at + random.below(32))].to_vec();
                let to = random.below(data.len() + 1);
                data.splice(to..to, piece);
            }
        }
    }

    #[test]
    fn templates_survive_mutations() {
        let mut random = Random::new(5);
        for round in 0..1500 {
            let mut data = TEMPLATES[round % TEMPLATES.len()].as_bytes().to_vec();
            for _ in 0..random.below(4) {
                mutate(&mut data, &mut random);
            }
            data.push(0);
            data.extend(json::encode(&generate::value(random.number()), None));
            fuzz_template(&data);
        }
    }

    fn failure(text: &str) -> String {
        let template = Template::parse("output", text).expect("a template");
        let limits = Limits { steps: 300_000, ..Limits::default() };
        let template = template.limits(limits);
        let mut out = Vec::new();
        template.execute(&api::tree! {}, &mut out).expect_err("a limit").to_string()
    }

    #[test]
    fn limits_end_what_does_not_end() {
        assert!(
            failure("{{define \"a\"}}{{template \"a\" .}}{{end}}{{template \"a\" .}}")
                .contains("exceeded maximum template depth")
        );
        assert!(failure("{{$x := \"ab\"}}{{range 60}}{{$x = print $x $x}}{{end}}").contains("too many steps"));
        let nested = format!("{}{}", "{{range 1000000}}".repeat(20), "{{end}}".repeat(20));
        assert!(failure(&nested).contains("too many steps"));
    }

    #[test]
    fn deep_nesting_is_rejected() {
        for (open, close) in [("{{if 1}}", "{{end}}"), ("{{define \"a\"}}{{block \"b\" .}}", "{{end}}{{end}}")] {
            assert!(Template::parse("output", &format!("{}{}", open.repeat(500), close.repeat(500))).is_err());
        }
        let parens = format!("{{{{{}1{}}}}}", "(".repeat(5000), ")".repeat(5000));
        assert!(Template::parse("output", &parens).is_err());
    }
}
