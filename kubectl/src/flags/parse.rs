//! The parser of flags.

use super::value::{ValueError, check};
use super::{Flag, Values};

/// Why a command line is invalid. The texts are those of upstream's flag library.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("unknown flag: --{0}")]
    Unknown(String),
    #[error("unknown shorthand flag: '{letter}' in -{group}")]
    UnknownShort { letter: char, group: String },
    #[error("flag needs an argument: {0}")]
    NoArgument(String),
    #[error("invalid argument {value} for {flag} flag: {problem}")]
    Invalid { value: String, flag: String, problem: ValueError },
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    #[error("help")]
    Help,
}

/// The result: values, positional arguments, and how many of them come before `--`.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) values: Values,
    pub(crate) arguments: Vec<String>,
    pub(crate) dash: Option<usize>,
}

/// Parses arguments with these groups of flags. The first flag of equal names wins, so that a command can replace a
/// global one.
pub(crate) fn parse(groups: &[&[Flag]], arguments: &[String], interspersed: bool) -> Result<Parsed, ParseError> {
    let mut parsed = Parsed::default();
    for flag in groups.iter().flat_map(|group| group.iter()) {
        parsed.values.known.entry(flag.name).or_insert(*flag);
    }
    let mut rest = arguments;
    while let Some((argument, after)) = rest.split_first() {
        rest = after;
        if argument == "--" {
            parsed.dash = Some(parsed.arguments.len());
            parsed.arguments.extend_from_slice(rest);
            break;
        }
        if let Some(long) = argument.strip_prefix("--") {
            rest = parsed.values.parse_long(long, rest)?;
        } else if argument.len() > 1 && argument.starts_with('-') {
            rest = parsed.values.parse_short(&argument[1..], rest)?;
        } else {
            parsed.arguments.push(argument.clone());
            if !interspersed {
                parsed.arguments.extend_from_slice(rest);
                break;
            }
        }
    }
    Ok(parsed)
}

impl Values {
    fn parse_long<'a>(&mut self, long: &str, rest: &'a [String]) -> Result<&'a [String], ParseError> {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        if name.is_empty() || name.starts_with('-') {
            return Err(ParseError::Syntax(format!("--{long}")));
        }
        // Underscores are accepted for dashes, as upstream does for old scripts.
        let normalized = name.replace('_', "-");
        let Some(flag) = self.known.get(normalized.as_str()).copied() else {
            return Err(if name == "help" { ParseError::Help } else { ParseError::Unknown(name.to_string()) });
        };
        if let Some(value) = value {
            self.add(&flag, value)?;
        } else if let Some(bare) = flag.bare {
            self.add(&flag, bare)?;
        } else {
            let (value, after) = rest.split_first().ok_or_else(|| ParseError::NoArgument(format!("--{name}")))?;
            self.add(&flag, value)?;
            return Ok(after);
        }
        Ok(rest)
    }

    fn parse_short<'a>(&mut self, group: &str, rest: &'a [String]) -> Result<&'a [String], ParseError> {
        let mut letters = group;
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let Some(flag) = self.known.values().find(|flag| flag.short == letter && letter != '\0').copied() else {
                if letter == 'h' {
                    return Err(ParseError::Help);
                }
                return Err(ParseError::UnknownShort { letter, group: letters.to_string() });
            };
            if let Some(value) = after.strip_prefix('=') {
                self.add(&flag, value)?;
                return Ok(rest);
            }
            if let Some(bare) = flag.bare {
                self.add(&flag, bare)?;
                letters = after;
                continue;
            }
            if !after.is_empty() {
                self.add(&flag, after)?;
                return Ok(rest);
            }
            let missing = || ParseError::NoArgument(format!("'{letter}' in -{letters}"));
            let (value, after) = rest.split_first().ok_or_else(missing)?;
            self.add(&flag, value)?;
            return Ok(after);
        }
        Ok(rest)
    }

    pub(super) fn add(&mut self, flag: &Flag, text: &str) -> Result<(), ParseError> {
        if let Err(problem) = check(flag, text) {
            let name = match flag.short {
                '\0' => format!("\"--{}\"", flag.name),
                short => format!("\"-{short}, --{}\"", flag.name),
            };
            return Err(ParseError::Invalid { value: api::field::go_quote(text), flag: name, problem });
        }
        self.set.entry(flag.name).or_default().push(text.to_string());
        self.order.push((flag.name, text.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, switch, text, typed};
    use super::*;

    const FLAGS: &[Flag] = &[
        text("output", 'o', "", "").bare(""),
        text("filename", 'f', "", ""),
        switch("all", 'A', ""),
        switch("watch", 'w', ""),
        typed("replicas", '\0', Kind::Int32, "1", ""),
        typed("timeout", '\0', Kind::Duration, "0s", ""),
        typed("verbs", '\0', Kind::Slice, "", ""),
        text("dry-run", '\0', "none", "").bare("unchanged"),
        typed("env", '\0', Kind::Pairs, "", ""),
    ];

    fn run(line: &str) -> Result<Parsed, ParseError> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&[FLAGS], &arguments, true)
    }

    #[test]
    fn parses_all_forms() {
        let parsed = run("get pods -Aw -ffile --replicas 3 --verbs=a,b --verbs c --dry-run -- -x").expect("valid");
        assert_eq!(parsed.arguments, ["get", "pods", "-x"]);
        assert_eq!(parsed.dash, Some(2));
        let values = parsed.values;
        assert!(values.bool("all") && values.bool("watch"));
        assert_eq!(values.str("filename"), "file");
        assert_eq!(values.int("replicas"), 3);
        assert_eq!(values.list("verbs"), ["a", "b", "c"]);
        assert_eq!(values.str("dry-run"), "unchanged");
        assert!(!values.changed("timeout"));
    }

    #[test]
    fn pairs_are_divided_at_commas() {
        let values = run("--env A=1,B=x=y --env C=a,b --env A=2").expect("valid").values;
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        assert_eq!(values.pairs("env"), [pair("B", "x=y"), pair("C", "a,b"), pair("A", "2")]);
    }

    #[test]
    fn errors_have_upstreams_texts() {
        let check = |line: &str, want: &str| assert_eq!(run(line).expect_err(line).to_string(), want);
        check("--nope", "unknown flag: --nope");
        check("-Az", "unknown shorthand flag: 'z' in -z");
        check("--filename", "flag needs an argument: --filename");
        check("-f", "flag needs an argument: 'f' in -f");
        check(
            "--replicas=x",
            "invalid argument \"x\" for \"--replicas\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
        );
        check(
            "--all=x",
            "invalid argument \"x\" for \"-A, --all\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
        check("--env=x", "invalid argument \"x\" for \"--env\" flag: x must be formatted as key=value");
        check("--timeout=5", "invalid argument \"5\" for \"--timeout\" flag: time: missing unit in duration \"5\"");
    }
}
